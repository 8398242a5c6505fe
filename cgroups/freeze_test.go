package cgroups

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestAwaitEventEnds: who waits for a cgroup hears of the end of his context, whatever has ended it, and leaves no file
// open.
func TestAwaitEventEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cgroup.events") // a plain file never says that it has changed
	if err := os.WriteFile(path, []byte("populated 1\nfrozen 0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	events, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	before := openFiles(t)
	given := errors.New("given up")
	for name, begin := range map[string]func() (context.Context, context.CancelFunc, error){
		"cancelled": func() (context.Context, context.CancelFunc, error) {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Millisecond, func() { cancel(given) })
			return ctx, func() {}, given
		},
		"before": func() (context.Context, context.CancelFunc, error) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			return ctx, cancel, context.Canceled
		},
		"deadline": func() (context.Context, context.CancelFunc, error) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			return ctx, cancel, context.DeadlineExceeded
		},
	} {
		ctx, cancel, want := begin()
		if err := awaitEvent(ctx, events, "populated", 0); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
		if err := awaitEvent(ctx, events, "populated", 1); err != nil {
			t.Errorf("%s: what is so need not be awaited: %v", name, err)
		}
		cancel()
	}
	if after := openFiles(t); after != before {
		t.Errorf("%d files are open, before %d", after, before)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
