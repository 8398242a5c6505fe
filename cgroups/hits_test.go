package cgroups

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/internal/testenv"
)

// TestHitsStop: who stops a watch waits for the call under way, and there is none after it.
func TestHitsStop(t *testing.T) {
	h, err := newHits()
	if err != nil {
		t.Fatal(err)
	}
	defer h.close()
	path := filepath.Join(t.TempDir(), "pids.events")
	touch := func() {
		if err := os.WriteFile(path, []byte("max 1\n"), 0o600); err != nil {
			t.Error(err)
		}
	}
	touch()
	begun, goOn, stopped := make(chan bool, 8), make(chan bool), make(chan bool)
	calls := 0
	stop, err := h.add(path, func() {
		begun <- true
		<-goOn
		calls++
	})
	if err != nil {
		t.Fatal(err)
	}
	touch()
	<-begun
	go func() {
		stop()
		calls++ // what the race detector looks at as well
		close(stopped)
	}()
	testenv.Moment(20 * time.Millisecond) // for a stop that does not wait
	select {
	case <-stopped:
		t.Error("the watch was stopped while a hit was being reported")
	default:
	}
	close(goOn)
	<-stopped
	touch()
	if err := h.close(); err != nil { // waits for what is reported
		t.Error(err)
	}
	if calls != 2 {
		t.Errorf("%d calls", calls-1)
	}
}
