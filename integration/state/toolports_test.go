package state_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"io"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"sync"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/runtime/api"
)

// TestToolPorts: a model gives the user a link to its server, which passes nobody without the token; it has a share of
// the ports, and closes none of the user's.
func TestToolPorts(t *testing.T) {
	t.Parallel()
	world.Needs(t, "python3")
	w := world.New(t)
	b := toolsIn(t, w, "-w", "/srv", "host")
	b.good(t, api.ToolNameWriteFile, `{"path":"/srv/index.html","content":"from inside"}`, nil)
	var link api.ToolPort
	text := b.good(t, api.ToolNameExposePort, `{"port":3000}`, &link)
	if !strings.HasPrefix(text, link.URL+"\n") || !strings.HasPrefix(link.URL, "http://127.0.0.1:") || !link.Tool {
		t.Errorf("%q %+v", text, link)
	}
	var again api.ToolPort
	if b.good(t, api.ToolNameExposePort, `{"port":3000}`, &again); again != link {
		t.Errorf("%+v, then %+v", link, again)
	}
	// The server is ready when it has said so.
	w.OK(t, "exec", b.sandbox, "sh", "-c",
		`mkfifo said; python3 -u -m http.server --bind 127.0.0.1 3000 >said 2>/dev/null & read line <said`)
	get := func(url string) (status int, body string) {
		t.Helper()
		jar, err := cookiejar.New(nil) // as a browser has
		if err != nil {
			t.Fatal(err)
		}
		browser := &http.Client{Jar: jar, Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := browser.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(data)
	}
	if status, body := get(link.URL); status != http.StatusOK || body != "from inside" {
		t.Errorf("%d %q", status, body)
	}
	if status, body := get("http://" + link.Address); status != http.StatusUnauthorized ||
		strings.Contains(body, "inside") {
		t.Errorf("without the token: %d %q", status, body)
	}

	// The user's ports are seen, but neither their tokens, nor closed.
	users, err := b.c.ExposePort(t.Context(), api.PortExposeParams{Sandbox: b.sandbox, Port: 3000, Token: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var list api.ToolPorts
	text = b.good(t, api.ToolNameListPorts, `{}`, &list)
	if len(list.Ports) != 2 || strings.Contains(text, users.Token) || !strings.Contains(text, link.URL) ||
		!strings.Contains(text, users.Address+"\t[exposed by the user]") {
		t.Errorf("%q", text)
	}
	b.good(t, api.ToolNameClosePort, `{"port":3000}`, &list)
	if len(list.Ports) != 1 || list.Ports[0] != link {
		t.Errorf("closed %+v", list)
	}
	b.bad(t, api.ToolNameClosePort, `{"port":3000}`, api.NotFound, "no link")
	if left, err := b.c.Ports(t.Context(), b.sandbox); err != nil || len(left) != 1 ||
		left[0].Address != users.Address {
		t.Errorf("%+v, %v", left, err)
	}
	for port := range api.MaxToolPorts {
		b.good(t, api.ToolNameExposePort, fmt.Sprintf(`{"port":%d}`, 4000+port), nil)
	}
	b.bad(t, api.ToolNameExposePort, `{"port":5000}`, api.ResourceExhausted, "sandbox_close_port")
	// Nor are there more when they are asked for at once.
	for port := range 4 {
		b.good(t, api.ToolNameClosePort, fmt.Sprintf(`{"port":%d}`, 4000+port), nil)
	}
	var together sync.WaitGroup
	for port := range 30 {
		together.Go(func() { b.call(t, api.ToolNameExposePort, fmt.Sprintf(`{"port":%d}`, 6000+port)) })
	}
	together.Wait()
	links := 0
	b.good(t, api.ToolNameListPorts, `{}`, &list)
	for _, p := range list.Ports {
		if p.Tool {
			links++
		}
	}
	if links > api.MaxToolPorts || links <= api.MaxToolPorts-4 {
		t.Errorf("%d links, of at most %d", links, api.MaxToolPorts)
	}
	for _, arguments := range []string{`{"port":0}`, `{"port":65536}`, `{}`, `{"port":80,"address":"0.0.0.0:80"}`,
		`{"port":80,"tool":true}`} {
		b.bad(t, api.ToolNameExposePort, arguments, api.InvalidArgument)
	}
}

// TestToolImages: images are shown as they are, with their size in words; what a model cannot take is not.
func TestToolImages(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	b := toolsIn(t, w, "-w", "/srv", "host")
	write := func(name string, data []byte) {
		t.Helper()
		arguments, err := json.Marshal(world.Args{"path": name, "encoding": "base64",
			"content": base64.StdEncoding.EncodeToString(data)})
		if err != nil {
			t.Fatal(err)
		}
		b.good(t, api.ToolNameWriteFile, string(arguments), nil)
	}
	var small, wide bytes.Buffer
	if err := png.Encode(&small, image.NewGray(image.Rect(0, 0, 30, 20))); err != nil {
		t.Fatal(err)
	}
	if err := png.Encode(&wide, image.NewGray(image.Rect(0, 0, api.MaxToolImageSide+1, 1))); err != nil {
		t.Fatal(err)
	}
	write("small.png", small.Bytes())
	write("wide.png", wide.Bytes())
	write("broken.png", small.Bytes()[:20])
	write("large.png", small.Bytes())
	w.OK(t, "exec", b.sandbox, "truncate", "-s", fmt.Sprint(api.MaxToolImageBytes+1), "large.png")
	for name, want := range map[string]struct {
		text  string
		shown bool
	}{
		"small.png":  {fmt.Sprintf("[image/png, 30 x 20 pixels, %d bytes]", small.Len()), true},
		"wide.png":   {"more than 8000 pixels on a side", false},
		"large.png":  {"more than 2097152 bytes", false},
		"broken.png": {"[binary file, 20 bytes", false},
	} {
		r := b.call(t, api.ToolNameReadFile, `{"path":"`+name+`"}`)
		if r.IsError || !strings.Contains(r.Content[0].Text, want.text) || (len(r.Content) == 2) != want.shown {
			t.Errorf("%s: %+v", name, r)
			continue
		}
		var f api.ToolFileText
		if err := json.Unmarshal(r.Structured, &f); err != nil || !f.Binary ||
			(f.Image != nil && f.Image.Shown) != want.shown {
			t.Errorf("%s: %s, %v", name, r.Structured, err)
		}
		if want.shown && (r.Content[1].Type != "image" || r.Content[1].MIMEType != "image/png" ||
			r.Content[1].Data != base64.StdEncoding.EncodeToString(small.Bytes())) {
			t.Errorf("%s: %+v", name, r.Content[1])
		}
	}
}
