package state_test

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// TestToolDownload: a link is good once, on the loopback, under its own name only, for what the file is when somebody
// comes.
func TestToolDownload(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	b := toolsIn(t, w, "-w", "/srv", "host")
	w.OK(t, "exec", b.sandbox, "sh", "-euc",
		`mkdir d; echo hi >d/a; chmod 755 d/a; ln -s a d/l; ln d/a d/h; ln -s / d/root; : >empty; head -c 3000000 /dev/zero >big; mkfifo fifo; touch "$(printf 'o"d\nd/../x' | tr / _)"`)
	offer := func(arguments string) api.ToolDownload {
		t.Helper()
		var d api.ToolDownload
		b.good(t, api.ToolNameDownloadURL, arguments, &d)
		return d
	}
	get := func(url string, change ...func(*http.Request)) (*http.Response, []byte) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Close = true
		for _, f := range change {
			f(req)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp, body
	}

	raw := offer(`{"path":"big"}`)
	if resp, body := get(raw.URL); resp.StatusCode != 200 || len(body) != 3000000 || raw.Size != 3000000 ||
		!strings.Contains(resp.Header.Get("Content-Disposition"), "filename=big") {
		t.Errorf("%v, %d bytes", resp, len(body))
	}
	if resp, _ := get(raw.URL); resp.StatusCode != 404 {
		t.Errorf("again: %v", resp.Status)
	}
	if resp, body := get(offer(`{"path":"empty"}`).URL); resp.StatusCode != 200 || len(body) != 0 {
		t.Errorf("empty: %v", resp.Status)
	}
	packed := offer(`{"path":"d","format":"zip"}`)
	_, body := get(packed.URL)
	z, err := zip.NewReader(bytes.NewReader(body), int64(len(body)))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(r)
		got = append(got, fmt.Sprintf("%s %v %s", f.Name, f.Mode(), text))
	}
	slices.Sort(got)
	want := []string{"d/ drwxr-xr-x ", "d/a -rwxr-xr-x hi\n", "d/h Lrwxrwxrwx a", "d/l Lrwxrwxrwx a",
		"d/root Lrwxrwxrwx /"}
	if packed.Filename != "d.zip" || !slices.Equal(got, want) {
		t.Errorf("%s %q", packed.Filename, got)
	}
	_, body = get(offer(`{"path":"d"}`).URL)
	if gz, err := gzip.NewReader(bytes.NewReader(body)); err != nil {
		t.Error(err)
	} else if text, err := io.ReadAll(gz); err != nil || !bytes.Contains(text, []byte("hi\n")) {
		t.Errorf("%v %q", err, text)
	}

	once := offer(`{"path":"empty"}`)
	if resp, _ := get(once.URL,
		func(r *http.Request) { r.Host = "evil.example" }); resp.StatusCode != http.StatusMisdirectedRequest {
		t.Errorf("another name: %v", resp.Status)
	}
	if resp, _ := get(once.URL,
		func(r *http.Request) { r.Method = http.MethodHead }); resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("HEAD: %v", resp.Status)
	}
	w.OK(t, "exec", b.sandbox, "rm", "empty")
	if resp, _ := get(once.URL); resp.StatusCode != http.StatusGone {
		t.Errorf("removed: %v", resp.Status)
	}
	// a link whose time is over; a slow machine's may be, before anybody comes, or not
	for deadline := time.Now().Add(world.AWhile()); ; {
		if resp, _ := get(offer(`{"path":"big","expires_s":0.001}`).URL); resp.StatusCode == http.StatusNotFound {
			break
		}
		if time.Now().After(deadline) {
			testenv.Late(t, "links do not end")
		}
	}
	b.bad(t, api.ToolNameDownloadURL, `{"path":"fifo"}`, api.FailedPrecondition, "fifo")
	b.bad(t, api.ToolNameDownloadURL, `{"path":"d","format":"raw"}`, api.InvalidArgument, "folder")
	b.bad(t, api.ToolNameDownloadURL, `{"path":"none"}`, api.NotFound)
}
