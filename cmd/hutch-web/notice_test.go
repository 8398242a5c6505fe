package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/internal/webapi"
)

// TestPost: a notice is posted once, to where the user said and nowhere else, and not for long; its URL is in no error.
func TestPost(t *testing.T) {
	elsewhere := make(chan string, 1)
	release := make(chan struct{})
	var got string
	mux := http.NewServeMux()
	mux.HandleFunc("POST /ok", func(_ http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		got = r.Header.Get("Content-Type") + " " + string(text)
	})
	mux.HandleFunc("/redirect", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	})
	mux.HandleFunc("/elsewhere", func(http.ResponseWriter, *http.Request) { elsewhere <- "" })
	mux.HandleFunc("/stuck", func(http.ResponseWriter, *http.Request) { <-release })
	s := httptest.NewServer(mux)
	defer s.Close()
	defer close(release)
	for path, c := range map[string]struct {
		want string
		most time.Duration
	}{
		"/ok":       {"", noticeTimeout},
		"/redirect": {"307", noticeTimeout},
		"/none":     {"404", noticeTimeout},
		"/stuck":    {"deadline", time.Millisecond},
	} {
		err := post(t.Context(), &webapi.Notice{URL: s.URL + path + "?token=secret", Body: []byte("{}")}, c.most)
		if (err == nil) != (c.want == "") || err != nil &&
			(!strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if got != "application/json {}" || len(elsewhere) > 0 {
		t.Errorf("%q, %d elsewhere", got, len(elsewhere))
	}
}
