package servers

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hutch-sh/hutch/internal/testenv"
)

// fake is a sandbox whose sockets are a file.
type fake struct {
	t      *testing.T
	proc   string
	alone  bool
	exited chan struct{}

	mu     sync.Mutex
	opened []string
}

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{t: t, proc: t.TempDir(), exited: make(chan struct{})}
	if err := os.Mkdir(filepath.Join(f.proc, "net"), 0o700); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fake) Proc() string            { return f.proc }
func (f *fake) Alone() bool             { return f.alone }
func (f *fake) Exited() <-chan struct{} { return f.exited }
func (f *fake) Opened(at netip.AddrPort) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.opened = append(f.opened, at.String())
}

// listen makes these the sockets that listen: addresses as /proc has them.
func (f *fake) listen(at ...string) {
	f.t.Helper()
	var text strings.Builder
	text.WriteString("  sl  local_address rem_address st\n")
	for i, a := range at {
		fmt.Fprintf(&text, "   %d: %s 00000000:0000 0A 0:0 00:0 0 0 0 %d 1\n", i, a, 1000+len(a)+i)
	}
	if err := os.WriteFile(filepath.Join(f.proc, "net/tcp"), []byte(text.String()), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

const local, other, everywhere, hutchds = "0100007F:1F90", "0100007F:1F91", "00000000:0050", "0100007F:0001"

// TestWatch: each new server is told once, also one that listens only after PID 1 has said so, and who waits hears of
// each look. What was known before is told no more.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.listen(local)
		var w Watch
		w.Know(f)
		var bg sync.WaitGroup
		looked := w.Next()
		f.listen(local)
		w.Listens(f, bg.Go)
		time.AfterFunc(100*time.Millisecond, func() { f.listen(local, other) })
		<-looked
		w.Listens(f, bg.Go) // while somebody looks
		testenv.Elapse(2 * time.Second)
		if !slices.Equal(f.opened, []string{"127.0.0.1:8081"}) {
			t.Errorf("opened %v", f.opened)
		}
		bg.Wait() // nobody looks any more
		f.listen(other)
		w.Listens(f, bg.Go)
		close(f.exited)
		bg.Wait()
	})
}

// TestWhose: a server on the loopback counts, on all addresses where nobody else is in the network, and never hutchd's.
func TestWhose(t *testing.T) {
	f := newFake(t)
	f.listen(local, everywhere, hutchds)
	for port, want := range map[int][2]bool{8080: {true, true}, 80: {false, true}, 1: {false, true},
		9: {false, false}} {
		for i, alone := range []bool{false, true} {
			if f.alone = alone; On(f, port) != want[i] {
				t.Errorf("port %d, alone %v: %v", port, alone, !want[i])
			}
		}
	}
	f.proc = ""
	if On(f, 8080) {
		t.Error("a server in a sandbox that has ended")
	}
}

// TestMany: one look tells of so many servers and no more, and knows all.
func TestMany(t *testing.T) {
	f := newFake(t)
	var at []string
	for i := range 3 * maxOpened {
		at = append(at, fmt.Sprintf("0100007F:%04X", 2000+i))
	}
	f.listen(at...)
	var w Watch
	if !w.tell(f) || len(f.opened) != maxOpened || w.tell(f) {
		t.Errorf("%d were reported", len(f.opened))
	}
}
