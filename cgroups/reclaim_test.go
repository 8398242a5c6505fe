package cgroups

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// pretended is a cgroup of files, with a pipe for a memory.reclaim: what is written waits until the test reads, and
// a signal ends it, as in the kernel's.
type pretended struct {
	dir  string
	pipe *os.File
}

func pretend(t *testing.T, cache, current int64) *pretended {
	t.Helper()
	p := &pretended{dir: t.TempDir()}
	p.put(t, "memory.stat",
		fmt.Sprintf("anon 4096\nfile %d\nfile_dirty 8192\nfile_writeback 4096\ninactive_file %d\nactive_file %d\n",
			cache+20480, cache+8192, 4096))
	p.put(t, "memory.current", strconv.FormatInt(current, 10)+"\n")
	name := filepath.Join(p.dir, "memory.reclaim")
	if err := unix.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if p.pipe, err = os.OpenFile(name, os.O_RDWR, 0); err != nil { // to read alone would wait for a writer
		t.Fatal(err)
	}
	t.Cleanup(func() { p.pipe.Close() })
	return p
}

func (p *pretended) put(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, file), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// stuff fills the pipe, so that the next write waits.
func (p *pretended) stuff(t *testing.T) {
	t.Helper()
	n, err := unix.FcntlInt(p.pipe.Fd(), unix.F_SETPIPE_SZ, os.Getpagesize())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.pipe.Write(make([]byte, n)); err != nil {
		t.Fatal(err)
	}
}

// awaitWrite returns when the thread of q waits in a write: wchan or the state of its stat say so.
func awaitWrite(t *testing.T, q *reclaims) {
	t.Helper()
	for {
		q.mu.Lock()
		thread, open := q.thread, q.now != nil && q.now.file >= 0
		q.mu.Unlock()
		text, _ := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/syscall", thread))
		if open && len(text) > 2 && string(text[:2]) == strconv.Itoa(unix.SYS_WRITE)+" " {
			return
		}
	}
}

// TestReclaim: pieces that together are the page cache, and what memory.current is less is told.
func TestReclaim(t *testing.T) {
	p := pretend(t, 10<<20+1<<19, 20<<20)
	var q reclaims
	told := make(chan int64, 1)
	stop := q.add(p.dir, func(n int64) { told <- n })
	if got := <-told; got != 0 { // nothing was taken here
		t.Errorf("told about %d", got)
	}
	stop()
	stop()
	buf := make([]byte, 100)
	n, err := p.pipe.Read(buf)
	// ten pieces and a half
	if want := strings.Repeat("1048576", 10) + "524288"; err != nil || string(buf[:n]) != want {
		t.Errorf("%q, %v, want %q", buf[:n], err, want)
	}
	q.close()
	q.add(p.dir, func(int64) { t.Error("after the end") })()
}

// TestReclaimNothing: no memory.reclaim, and no cgroup any more, are no answer.
func TestReclaimNothing(t *testing.T) {
	p := pretend(t, 10<<20, 20<<20)
	var q reclaims
	defer q.close()
	if err := os.Remove(filepath.Join(p.dir, "memory.reclaim")); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{p.dir, filepath.Join(p.dir, "gone")} {
		q.add(dir, func(int64) { t.Error("told about nothing") })
	}
	small := pretend(t, 4096, 20<<20) // less than which nothing is asked for
	small.put(t, "memory.stat", "inactive_file 0\nactive_file 0\n")
	told := make(chan int64)
	q.add(small.dir, func(n int64) { told <- n })
	if n := <-told; n != 0 {
		t.Errorf("told about %d", n)
	}
	for _, x := range []*Execs{{}, {mode: V1, mounts: map[string]string{"memory": "/m", "": "/u"}}} {
		x.Reclaim("s", func(int64) { t.Error("there is no cgroup v2") })()
	}
}

// TestReclaimStop: a write that waits ends when it is stopped, whenever that is, and the next one has its turn; those
// that wait for theirs never begin.
func TestReclaimStop(t *testing.T) {
	var q reclaims
	defer q.close()
	for round := range 200 {
		p, other := pretend(t, 10<<20, 20<<20), pretend(t, 4096, 5)
		p.stuff(t)
		stop := q.add(p.dir, func(int64) { t.Error("one that was stopped has told") })
		waits := q.add(p.dir, func(int64) { t.Error("one that was stopped in the queue has told") })
		told := make(chan bool, 1)
		q.add(other.dir, func(int64) { told <- true })
		waits()
		if round%2 == 0 { // else just before it, or even before it has begun
			awaitWrite(t, &q)
		}
		stop()
		<-told
		p.pipe.Close()
		other.pipe.Close()
	}
}

// TestReclaimStray: a signal that nobody has sent for that ends nothing.
func TestReclaimStray(t *testing.T) {
	p := pretend(t, 4<<20, 20<<20)
	p.stuff(t)
	var q reclaims
	defer q.close()
	told := make(chan int64, 1)
	q.add(p.dir, func(n int64) { told <- n })
	for range 20 {
		awaitWrite(t, &q)
		if err := unix.Tgkill(os.Getpid(), q.thread, interruptSignal); err != nil {
			t.Fatal(err)
		}
	}
	p.put(t, "memory.current", "1048576\n")
	if _, err := p.pipe.Read(make([]byte, os.Getpagesize())); err != nil {
		t.Fatal(err)
	}
	if got := <-told; got != 19<<20 {
		t.Errorf("told about %d", got)
	}
}

// TestReclaimClose: the end of the daemon ends the one that is written and all that wait.
func TestReclaimClose(t *testing.T) {
	var q reclaims
	p := pretend(t, 10<<20, 20<<20)
	p.stuff(t)
	var stops []func()
	for range 10 {
		stops = append(stops, q.add(p.dir, func(int64) { t.Error("told") }))
	}
	awaitWrite(t, &q)
	q.close()
	for _, stop := range slices.Backward(stops) {
		stop()
	}
}

// TestReclaimMany: the queue has an end, and any number of goroutines may add and stop at once.
func TestReclaimMany(t *testing.T) {
	var q reclaims
	p := pretend(t, 10<<20, 20<<20)
	p.stuff(t)
	first := q.add(p.dir, func(int64) { t.Error("told") })
	awaitWrite(t, &q)
	var wg sync.WaitGroup
	for range 2 * maxReclaims {
		wg.Go(func() { q.add(p.dir, func(int64) { t.Error("told") })() })
	}
	wg.Wait()
	for range maxReclaims + 1 {
		q.add(p.dir, func(int64) { t.Error("told") })
	}
	if len(q.queue) != maxReclaims {
		t.Errorf("%d wait", len(q.queue))
	}
	first()
	q.close()
	if len(q.queue) != 0 {
		t.Errorf("%d are left", len(q.queue))
	}
}
