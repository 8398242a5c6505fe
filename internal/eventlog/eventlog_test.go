package eventlog

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/internal/leak"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// TestMain is also the writer that TestKill kills.
func TestMain(m *testing.M) {
	if dir := os.Getenv("EVENTLOG_WRITER"); dir != "" {
		fmt.Fprintln(os.Stderr, writeForEver(dir))
		os.Exit(1)
	}
	os.Exit(leak.Main(m))
}

func open(t testing.TB, dir string, o Options) *Log {
	t.Helper()
	l, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.stop(t) })
	return l
}

// stop closes a log unless it is closed.
func (l *Log) stop(t testing.TB) {
	t.Helper()
	l.mu.Lock()
	closed := l.closed
	l.mu.Unlock()
	if !closed {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

func (l *Log) say(n int) { l.Emit(api.EventLimitHit, "sb_1", "ex_"+strconv.Itoa(n), n) }

// Next waits for some events.
func (c *Cursor) Next(ctx context.Context) ([]api.Event, error) {
	for {
		if err := c.Await(ctx); err != nil {
			return nil, err
		}
		if events, err := c.Read(100); err != nil || len(events) > 0 {
			return events, err
		}
	}
}

// read reads n events and gaps, and checks that numbers are as they should be.
func read(t testing.TB, c *Cursor, n int) (events []api.Event) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	last := c.next - 1
	for len(events) < n {
		some, err := c.Next(ctx)
		if err != nil {
			t.Fatalf("after %d events: %v", len(events), err)
		}
		for _, e := range some {
			if e.Seq <= last {
				t.Fatalf("%d after %d", e.Seq, last)
			}
			last = e.Seq
		}
		events = append(events, some...)
	}
	return events
}

func gapOf(t testing.TB, e api.Event) (g api.GapEvent) {
	t.Helper()
	if e.Kind != api.EventGap || json.Unmarshal(e.Data, &g) != nil || e.Seq != g.To || g.From > g.To {
		t.Fatalf("%+v is no gap", e)
	}
	return g
}

func TestFollow(t *testing.T) {
	l := open(t, t.TempDir(), Options{})
	live := l.Follow(1, true, nil)
	got := make(chan []api.Event)
	go func() { got <- read(t, live, 3) }()
	for i := range 3 {
		l.say(i)
	}
	for i, e := range <-got {
		if e.Seq != int64(i+1) || e.Exec != fmt.Sprintf("ex_%d", i) || string(e.Data) != strconv.Itoa(i) ||
			e.Sandbox != "sb_1" || time.Since(e.Time) > time.Minute {
			t.Errorf("%+v", e)
		}
	}
	some := l.Follow(2, false, func(e *api.Event) bool { return e.Exec == "ex_2" })
	if e := read(t, some, 1)[0]; e.Seq != 3 {
		t.Errorf("%+v", e)
	}
	if _, err := some.Next(t.Context()); err != io.EOF {
		t.Error(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	if _, err := live.Next(ctx); !errors.Is(err, why) {
		t.Error(err)
	}
	fresh := l.Follow(4, true, nil)
	l.say(3)
	l.stop(t)
	if e := read(t, fresh, 1)[0]; e.Seq != 4 {
		t.Errorf("%+v", e)
	}
	if _, err := fresh.Next(t.Context()); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	l.say(5) // is nobody's any more
}

// TestReopen: numbers and events outlive the writer; a torn record does not.
func TestReopen(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, Options{})
	id := l.ID()
	for i := range 10 {
		l.say(i)
	}
	l.stop(t)
	whole, err := os.ReadFile(l.path(1))
	if err != nil {
		t.Fatal(err)
	}
	lastLine := strings.LastIndexByte(strings.TrimSuffix(string(whole), "\n"), '\n') + 1
	for cut := lastLine; cut <= len(whole); cut += 7 {
		if err := os.WriteFile(l.path(1), whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		l := open(t, dir, Options{})
		want := int64(10)
		if cut == len(whole) {
			want = 11
		}
		if _, next := l.Range(); next != want || l.ID() != id {
			t.Fatalf("cut at %d: next is %d, want %d", cut, next, want)
		}
		l.say(99)
		events := read(t, l.Follow(1, true, nil), int(want))
		if e := events[want-1]; e.Seq != want || e.Exec != "ex_99" {
			t.Errorf("%+v", e)
		}
		l.stop(t)
	}
}

// TestBroken: what is broken in the middle is a gap, and no number comes twice.
func TestBroken(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, Options{})
	for i := range 10 {
		l.say(i)
	}
	l.stop(t)
	text, err := os.ReadFile(l.path(1))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(text), "\n")
	lines[3] = strings.Replace(lines[3], "ex_3", "ex_X", 1)
	lines[4] = lines[4][:20] + "\n"
	if err := os.WriteFile(l.path(1), []byte(strings.Join(lines, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	l = open(t, dir, Options{})
	events := read(t, l.Follow(1, false, nil), 9)
	if g := gapOf(t, events[3]); g != (api.GapEvent{From: 4, To: 5}) {
		t.Errorf("%+v", g)
	}
	if _, next := l.Range(); next != 11 {
		t.Errorf("next is %d", next)
	}
}

// TestRotate: old segments go, and who comes too late learns it.
func TestRotate(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, Options{SegmentBytes: 2000, Segments: 3})
	slow := l.Follow(1, true, nil)
	const n = 500
	for i := range n {
		l.say(i)
	}
	for last, c := int64(0), l.Follow(1, true, nil); last < n; { // until all is written
		for _, e := range read(t, c, 1) {
			last = e.Seq
		}
	}
	first, next := l.Range()
	if next != n+1 || first < n/2 {
		t.Errorf("from %d to %d", first, next)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*.log"))
	if len(files) != 3 {
		t.Errorf("%d segments", len(files))
	}
	for _, f := range files {
		if st, err := os.Stat(f); err != nil || st.Size() > 2000 {
			t.Errorf("%s: %d bytes, %v", f, st.Size(), err)
		}
	}
	events := read(t, slow, int(next-first)+1)
	if g := gapOf(t, events[0]); g != (api.GapEvent{From: 1, To: first - 1}) {
		t.Errorf("%+v, want up to %d", g, first-1)
	}
	for i, e := range events[1:] {
		if e.Seq != first+int64(i) || e.Exec != fmt.Sprintf("ex_%d", e.Seq-1) {
			t.Fatalf("%+v", e)
		}
	}
	l.stop(t)
	if f2, n2 := open(t, dir, Options{SegmentBytes: 2000, Segments: 3}).Range(); f2 != first || n2 != next {
		t.Errorf("reopened: from %d to %d, were %d and %d", f2, n2, first, next)
	}
}

// TestReaders: many readers at different places while the log is written and
// rotated; each sees every event once, or a gap. The first keeps up, because the writer
// waits for it; others fall behind by more than the log holds.
func TestReaders(t *testing.T) {
	l := open(t, t.TempDir(), Options{SegmentBytes: 20000, Segments: 4})
	const n, readers = 5000, 30
	var wg sync.WaitGroup
	keepsUp := make(chan struct{})
	for r := range readers {
		c := l.Follow(1, true, nil)
		wg.Go(func() {
			if r == 0 {
				defer close(keepsUp)
			}
			rnd := rand.New(rand.NewPCG(uint64(r), 0))
			for at := int64(1); at <= n; {
				events, err := c.Next(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				for _, e := range events {
					switch {
					case e.Kind == api.EventGap:
						if g := gapOf(t, e); g.From != at {
							t.Errorf("a gap from %d at %d", g.From, at)
						}
					case e.Seq != at || e.Exec != fmt.Sprintf("ex_%d", at-1):
						t.Errorf("%+v at %d", e, at)
						return
					}
					if at = e.Seq + 1; r == 0 && e.Seq%100 == 0 {
						keepsUp <- struct{}{}
					}
				}
				if r > 0 && rnd.IntN(10) == 0 { // falls behind
					if err := l.Follow(min(n, at+rnd.Int64N(1500)), true, nil).Await(t.Context()); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	for i := range n {
		if l.say(i); i%100 == 99 {
			<-keepsUp
		}
	}
	wg.Wait()
}

// TestFull: what cannot be written is counted, and said as soon as it can be.
func TestFull(t *testing.T) {
	l := open(t, t.TempDir(), Options{})
	l.say(0)
	read(t, l.Follow(1, true, nil), 1)
	good := l.file
	bad, err := os.Open(l.path(1)) // read-only: writes fail
	if err != nil {
		t.Fatal(err)
	}
	defer bad.Close()
	l.file = bad // the writer sleeps
	for i := range 3 {
		l.say(i)
		for lost := int64(-1); lost < int64(i+1); {
			l.queue.Lock()
			lost = l.queue.lost
			l.queue.Unlock()
		}
	}
	l.file = good
	l.say(4)
	events := read(t, l.Follow(2, true, nil), 2)
	if events[0].Seq != 2 || events[0].Exec != "ex_4" {
		t.Errorf("%+v", events[0])
	}
	if e := events[1]; e.Kind != api.EventsLost || string(e.Data) != `{"count":3}` {
		t.Errorf("%+v %s", e, e.Data)
	}
}

// TestSync: what was emitted before is there afterwards.
func TestSync(t *testing.T) {
	l := open(t, t.TempDir(), Options{})
	for i := range 200 {
		l.say(i)
		if err := l.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, next := l.Range(); next != int64(i)+2 {
			t.Fatalf("next is %d after %d events", next, i+1)
		}
	}
	l.stop(t)
	if err := l.Sync(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestSweep: logs that nobody has open and nobody wrote to lately go.
func TestSweep(t *testing.T) {
	root := t.TempDir()
	open(t, filepath.Join(root, "open"), Options{})
	open(t, filepath.Join(root, "closed"), Options{}).stop(t)
	if err := os.Mkdir(filepath.Join(root, "strange"), 0o700); err != nil {
		t.Fatal(err)
	}
	if removed, err := Sweep(root, time.Now().Add(-time.Hour)); err != nil || len(removed) != 0 {
		t.Errorf("%q %v", removed, err)
	}
	removed, err := Sweep(root, time.Now().Add(time.Hour))
	if err != nil || len(removed) != 1 || removed[0] != filepath.Join(root, "closed") {
		t.Errorf("%q %v", removed, err)
	}
	if removed, err := Sweep(filepath.Join(root, "none"), time.Now()); err != nil || removed != nil {
		t.Errorf("%q %v", removed, err)
	}
}

// writeForEver emits events, and prints each that a reader saw. The reader is never so far
// behind that the log has forgotten what comes next.
func writeForEver(dir string) error {
	fmt.Println("begins") // with what the kill before it has left
	l, err := Open(dir, Options{SegmentBytes: 30000, Segments: 3})
	if err != nil {
		return err
	}
	_, next := l.Range()
	unread := make(chan struct{}, 50) // an element for each event that the reader has not seen
	go func() {
		for i := 0; ; i++ {
			unread <- struct{}{}
			l.say(i)
		}
	}()
	for c := l.Follow(next, true, nil); ; {
		events, err := c.Next(context.Background())
		if err != nil {
			return err
		}
		for _, e := range events {
			fmt.Printf("%d %s %d\n", e.Seq, e.Exec, e.Time.UnixNano())
			<-unread
		}
	}
}

// TestKill: an event that a reader saw is there after kill -9 of the writer, with
// its number, and no number is ever given to another.
func TestKill(t *testing.T) {
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int64]string{}
	var last int64
	for round := range 60 {
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), "EVENTLOG_WRITER="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(out)
		if line, err := lines.ReadString('\n'); line != "begins\n" {
			t.Fatalf("round %d: %q, %v", round, line, err)
		}
		var killed sync.WaitGroup
		killed.Go(func() {
			testenv.RandomMoment(35 * time.Millisecond)
			_ = cmd.Process.Kill()
		})
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				break // also half a line
			}
			var seq int64
			if _, err := fmt.Sscan(line, &seq); err != nil || seq != last+1 {
				t.Fatalf("round %d: %q after %d", round, line, last)
			}
			last, seen[seq] = seq, line
		}
		killed.Wait()
		_ = cmd.Wait()
		l := open(t, dir, Options{SegmentBytes: 30000, Segments: 3})
		first, next := l.Range()
		if next <= last {
			t.Fatalf("round %d: %d was seen, and %d is the next", round, last, next)
		}
		c := l.Follow(first, false, nil)
		for {
			events, err := c.Next(t.Context())
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range events {
				if line := fmt.Sprintf("%d %s %d\n", e.Seq, e.Exec, e.Time.UnixNano()); seen[e.Seq] != "" &&
					seen[e.Seq] != line || e.Kind == api.EventGap {
					t.Fatalf("round %d: %q is %q", round, seen[e.Seq], line)
				}
			}
		}
		last = next - 1
		l.stop(t)
	}
	if last < 60 {
		t.Errorf("only %d events in all", last)
	}
}

func BenchmarkEmit(b *testing.B) {
	l := open(b, b.TempDir(), Options{})
	for b.Loop() {
		l.Emit(api.EventExecStarted, "sb_abcdefghijkl", "ex_abcdefghijkl",
			api.StartedEvent{Program: "/bin/true", PID: 2})
	}
}
