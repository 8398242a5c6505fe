package launch

import (
	"bytes"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/internal/testenv"
)

// buffer is a bytes.Buffer for two goroutines, which tells of every write.
type buffer struct {
	mu    sync.Mutex
	b     bytes.Buffer
	wrote chan struct{}
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, err := b.b.Write(p)
	select {
	case b.wrote <- struct{}{}:
	default:
	}
	return n, err
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// TestPumpFinish: what was written before finish arrives, although somebody still
// holds the pipe open and may write later.
func TestPumpFinish(t *testing.T) {
	for range 200 {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		dst := &buffer{wrote: make(chan struct{}, 1)}
		p := startPump(r, dst, nil)
		if _, err := w.WriteString("the last words"); err != nil {
			t.Fatal(err)
		}
		if err := p.finish(); err != nil {
			t.Fatal(err)
		}
		if got := dst.String(); got != "the last words" {
			t.Fatalf("arrived: %q", got)
		}
		w.Close()
	}
}

// TestPumpEnds: end of file ends the pump and releases the destination.
func TestPumpEnds(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	released := make(chan struct{})
	p := startPump(r, &buffer{wrote: make(chan struct{}, 1)}, func() { close(released) })
	w.Close()
	testenv.Within(t, released, 10*time.Second, "the destination was not released")
	if err := p.finish(); err != nil {
		t.Error(err)
	}
}

// TestPumpFinishTwice: abort and collect may both finish a pump.
func TestPumpFinishTwice(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	p := startPump(r, &buffer{wrote: make(chan struct{}, 1)}, nil)
	if err := p.finish(); err != nil {
		t.Error(err)
	}
	if err := p.finish(); err != nil {
		t.Error(err)
	}
}
