package web_test

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// TestFiles: files whole and in parts, conditions, folders, forms, and an upload that breaks off.
func TestFiles(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	s := serve(t, w, "--max-upload", "3m")
	at := "/sandboxes/" + s.sandbox(t, object{}) + "/files"
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // 1 MiB
	var wrote struct {
		Size    int64
		Created bool
	}
	s.ask(t, "PUT", at+"?path=/root/a/big", bytes.NewReader(big)).want(http.StatusOK, &wrote)
	if wrote.Size != int64(len(big)) || !wrote.Created {
		t.Errorf("%+v", wrote)
	}
	whole := s.ask(t, "GET", at+"?path=/root/a/big", nil).want(http.StatusOK)
	tag := whole.header.Get("ETag")
	if !bytes.Equal(whole.body, big) || tag == "" || !strings.HasPrefix(whole.header.Get("Content-Disposition"),
		"attachment") {
		t.Errorf("%d bytes, %v", len(whole.body), whole.header)
	}
	part := s.ask(t, "GET", at+"?path=/root/a/big", nil, "Range", "bytes=16-35").want(http.StatusPartialContent)
	if string(part.body) != "0123456789abcdef0123" || part.header.Get("Content-Range") != "bytes 16-35/1048576" {
		t.Errorf("%q, %v", part.body, part.header)
	}
	s.ask(t, "GET", at+"?path=/root/a/big", nil, "If-None-Match", tag).want(http.StatusNotModified)
	s.ask(t, "GET", at+"?path=/root/a/big", nil, "Range", "bytes=2000000-").
		want(http.StatusRequestedRangeNotSatisfiable)
	s.ask(t, "PUT", at+"?path=/root/a/big", strings.NewReader("new"), "If-Match", tag).want(http.StatusOK)
	s.ask(t, "PUT", at+"?path=/root/a/big", strings.NewReader("newer"), "If-Match", tag).
		fails(http.StatusPreconditionFailed, "precondition_failed")
	s.ask(t, "PUT", at+"?path=/root/a/big", strings.NewReader("newer"), "If-None-Match", "*").
		fails(http.StatusPreconditionFailed, "precondition_failed")
	if got := s.ask(t, "GET", at+"?path=/root/a/big", nil).want(http.StatusOK); string(got.body) != "new" {
		t.Errorf("%q", got.body)
	}
	s.ask(t, "PUT", at+"?path=/root/a/huge", bytes.NewReader(bytes.Repeat(big, 4))).
		fails(http.StatusRequestEntityTooLarge, "too_large")
	// of unknown length
	s.ask(t, "PUT", at+"?path=/root/a/huge", io.MultiReader(bytes.NewReader(bytes.Repeat(big, 4)))).
		fails(http.StatusRequestEntityTooLarge, "too_large")
	s.ask(t, "GET", at+"/stat?path=/root/a/huge", nil).fails(http.StatusNotFound, "not_found")
	var dir struct{ Entries []struct{ Path, Type string } }
	s.ask(t, "PATCH", at, object{"mkdir": "/root/a/b/c"}).want(http.StatusNoContent)
	s.ask(t, "PATCH", at, object{"from": "/root/a/big", "to": "/root/a/b/small"}).want(http.StatusNoContent)
	s.ask(t, "GET", at+"/list?path=/root/a&depth=3", nil).want(http.StatusOK, &dir)
	if got := sprint("%v", dir.Entries); got != "[{/root/a/b folder} {/root/a/b/c folder} {/root/a/b/small file}]" {
		t.Error(got)
	}
	s.ask(t, "DELETE", at+"?path=/root/a", nil).fails(http.StatusConflict, "failed_precondition")
	s.ask(t, "DELETE", at+"?path=/root/a&recursive=true", nil).want(http.StatusNoContent)
	s.ask(t, "GET", at+"?path=/dev/null", nil).fails(http.StatusConflict, "failed_precondition")
	s.ask(t, "GET", at, nil).fails(http.StatusBadRequest, "invalid_argument", "path")
	s.ask(t, "POST", at, strings.NewReader("--x\r\n"), "Content-Type", "multipart/form-data; boundary=x").
		fails(http.StatusBadRequest, "invalid_argument", "form")
	for _, name := range []string{"/root/../etc/passwd2", "/root/a\x00b"} { // inside the sandbox, whatever it is called
		a := s.ask(t, "PUT", at+"?path="+strings.ReplaceAll(name, "\x00", "%00"), strings.NewReader("x"))
		if strings.Contains(name, "\x00") {
			a.fails(http.StatusBadRequest, "invalid_argument", "NUL")
		}
	}
	if _, err := os.Stat("/etc/passwd2"); err == nil {
		t.Error("it is on the host")
	}
	s.ask(t, "PUT", at+"?path=/root/kept", strings.NewReader("old")).want(http.StatusOK)
	broken := io.MultiReader(bytes.NewReader(big), failing{})
	req, err := http.NewRequestWithContext(t.Context(), "PUT", s.url+at+"?path=/root/kept", broken)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = s.header.Clone()
	if resp, err := s.client.Do(req); err == nil {
		resp.Body.Close()
		t.Errorf("an upload that broke off: %s", resp.Status)
	}
	if got := s.ask(t, "GET", at+"?path=/root/kept", nil); string(got.body) != "old" {
		t.Errorf("what an upload that broke off has left: %q", got.body)
	}
}

// TestConditions: of clients who write what they have read and one more, none loses what another has written.
func TestConditions(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	const writers, each = 5, 6
	w := world.New(t)
	s := serve(t, w)
	at := "/sandboxes/" + s.sandbox(t, object{}) + "/files?path=/root/count"
	s.ask(t, "PUT", at, strings.NewReader("100")).want(http.StatusOK)
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for done := 0; done < each; {
				a := s.ask(t, "GET", at, nil)
				n, err := strconv.Atoi(string(a.body))
				if err != nil {
					t.Errorf("%d: %s", a.status, a.body)
					return
				}
				switch a = s.ask(t, "PUT", at, strings.NewReader(strconv.Itoa(n+1)), "If-Match",
					a.header.Get("ETag")); a.status {
				case http.StatusOK:
					done++
				case http.StatusPreconditionFailed:
				default:
					t.Errorf("%d: %s", a.status, a.body)
					return
				}
			}
		})
	}
	wg.Wait()
	if got := s.ask(t, "GET", at, nil); string(got.body) != strconv.Itoa(100+writers*each) {
		t.Errorf("%s after %d writes", got.body, writers*each)
	}
	gone := strings.Replace(at, "count", "gone", 1)
	for _, tag := range []string{"*", `"1-2-3"`} {
		s.ask(t, "PUT", gone, strings.NewReader("x"), "If-Match", tag).
			fails(http.StatusPreconditionFailed, "precondition_failed")
	}
	s.ask(t, "PUT", at, strings.NewReader("x"), "If-Match", "*", "If-None-Match", "*").
		fails(http.StatusBadRequest, "invalid_argument", "If-None-Match")
	s.ask(t, "PUT", at, strings.NewReader("x"), "If-Match", "*").want(http.StatusOK)
}
