package client

import (
	"testing"

	"github.com/hutch-sh/hutch/runtime/api"
)

// TestNews: of news that nobody takes the later ones are dropped, but not those that come once and that something waits
// for.
func TestNews(t *testing.T) {
	w := &call{news: make(chan struct{}, 1)}
	for range maxNews + 10 {
		w.note(api.Progress{Kind: "image.progress"})
	}
	w.note(api.Progress{Kind: api.ProgressReady})
	w.note(api.Progress{Kind: "image.progress"})
	w.note(api.Progress{Kind: api.ProgressStarted})
	var got []string
	w.deliver(func(p api.Progress) { got = append(got, p.Kind) })
	if n := len(got); n != maxNews+2 || got[n-2] != api.ProgressReady || got[n-1] != api.ProgressStarted {
		t.Errorf("%d news, the last %q", len(got), got[max(0, len(got)-3):])
	}
}
