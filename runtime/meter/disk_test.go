package meter

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hutch-sh/hutch/internal/diskuse"
	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

const mega = 1 << 20

// TestWatchDisk: who writes more than the limit is ended; what goes on then, is no command's; what has ended may stay,
// and more be written when it is gone.
func TestWatchDisk(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(w *world) { w.dir, w.step = dir, time.Millisecond })
		b := w.box()
		b.limit(api.Limits{DiskBytes: mega, Inodes: 100})
		b.meter.Watch()
		testenv.Elapse(time.Second)
		if len(b.ended()) > 0 {
			t.Fatalf("ended %q", b.ended())
		}
		b.write("large", 2*mega)
		testenv.Elapse(time.Second)
		if !slices.Equal(b.ended(), []string{""}) || len(b.hits) != 1 || b.hits[0].Limit != api.VerdictDisk {
			t.Errorf("ended %q, hits %+v", b.ended(), b.hits)
		}
		if size, bounded := b.meter.FileSize(); size != 0 || !bounded {
			t.Errorf("a file may have %d bytes, %v", size, bounded)
		}
		refused(t, api.ResourceExhausted, b.meter.Admit(true))
		if err := b.meter.Admit(false); err != nil {
			t.Error(err)
		}
		b.write("more", 2*mega)
		b.atEnd(func() { b.remove("more") })
		testenv.Elapse(time.Second)
		if len(b.ended()) != 2 || b.ended()[1] == "" {
			t.Errorf("ended %q", b.ended())
		}
		b.remove("large")
		if err := b.meter.Admit(true); err != nil { // which looks again
			t.Error(err)
		}
		if size, _ := b.meter.FileSize(); size != mega {
			t.Errorf("a file may have %d bytes", size)
		}
		// Nothing looks while it is paused.
		b.set.Clock.Stop(time.Now())
		testenv.Elapse(time.Second)
		b.write("paused", 2*mega)
		b.atEnd(nil)
		testenv.Elapse(time.Hour)
		if len(b.ended()) != 2 {
			t.Errorf("ended %q while it was paused", b.ended())
		}
		w.fail("EndAll", errInjected) // and it goes on
		b.set.Clock.GoOn(time.Now())
		testenv.Elapse(time.Second)
		if len(b.ended()) < 3 {
			t.Errorf("ended %q", b.ended())
		}
		w.close()
	})
}

// TestIdleDisk: a sandbox in which nothing uses the CPU is looked at ever less often, and again at once when somebody
// uses it.
func TestIdleDisk(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(w *world) { w.dir = dir })
		b := w.box(func(b *box) { b.idle = true })
		b.limit(api.Limits{DiskBytes: mega})
		b.meter.Watch()
		testenv.Elapse(time.Minute)
		b.write("large", 2*mega)
		w.busy()
		b.meter.BeginUse()
		testenv.Elapse(minLook)
		if len(b.ended()) != 1 {
			t.Errorf("ended %q", b.ended())
		}
		b.die()
		w.group.Wait()
	})
}

// TestUse: a command that crosses the limit has met it, one that begins behind it has not; where the kernel holds the
// limit, one that has failed while nothing was left has.
func TestUse(t *testing.T) {
	w := newWorld(t)
	b := w.box()
	u := b.meter.BeginUse()
	if used, full := b.meter.EndUse(u, time.Second, true); full || used != (diskuse.Usage{}) {
		t.Errorf("without a limit: %+v, %v", used, full)
	}
	if _, hit := b.meter.DiskLimit(diskuse.Usage{Bytes: 7}); hit.Name != "" || hit.Peak != 7 {
		t.Errorf("%+v", hit)
	}
	b.limit(api.Limits{DiskBytes: mega, Inodes: 70})
	if err := b.meter.Begin(t.Context(), false); err != nil {
		t.Error(err)
	}
	u = b.meter.BeginUse()
	b.write("small", 4096)
	if used, full := b.meter.EndUse(u, time.Second, false); full || used.Bytes < 4096 {
		t.Errorf("%+v, %v", used, full)
	}
	u = b.meter.BeginUse()
	b.write("large", 2*mega)
	used, full := b.meter.EndUse(u, time.Second, false)
	n, hit := b.meter.DiskLimit(used)
	if !full || n.Target != "disk_bytes" || hit.Limit != mega || hit.Peak != used.Bytes {
		t.Errorf("%v, %+v, %+v", full, n, hit)
	}
	if _, full := b.meter.EndUse(b.meter.BeginUse(), time.Second, true); full {
		t.Error("it was over the limit before")
	}
	refused(t, api.ResourceExhausted, b.meter.Full())
	b.remove("large")
	b.meter.BeginUse() // looks
	if err := b.meter.Full(); err != nil {
		t.Error(err)
	}
	for i := range 80 {
		b.write(string(rune('a'+i%26))+string(rune('a'+i/26)), 0)
	}
	if err := b.meter.Measure(t.Context()); err != nil {
		t.Error(err)
	}
	if n, hit := b.meter.DiskLimit(diskuse.Usage{Inodes: 82}); n.Target != "inodes" || hit.Limit != 70 || hit.Peak != 82 {
		t.Errorf("%+v, %+v", n, hit)
	}
	if size, bounded := b.meter.WorkerFileSize(); size != mega || !bounded {
		t.Errorf("a worker's files may have %d bytes, %v", size, bounded)
	}
}

// TestUnlinked: when the file system has lost so much more than there are files with names that the limit may be
// exceeded, open files without one are searched. Those that are on no overlay are not the sandbox's.
func TestUnlinked(t *testing.T) {
	w := newWorld(t)
	b := w.box()
	b.limit(api.Limits{DiskBytes: mega})
	d := b.meter.Disk()
	lose := func(bytes int64) diskuse.Usage {
		d.mu.Lock()
		d.spent = diskuse.Usage{Bytes: bytes} // whatever it was
		d.mu.Unlock()
		if err := b.meter.Measure(t.Context()); err != nil {
			t.Error(err)
		}
		return d.lost
	}
	if lost := lose(mega / 2); lost.Bytes < mega/4 {
		t.Errorf("%+v are lost", lost)
	}
	if lost := lose(mega); lost.Bytes != 0 || d.isOver() {
		t.Errorf("%+v are lost that were searched", lost)
	}
}

// TestDue: the more may have been written, the sooner it is measured.
func TestDue(t *testing.T) {
	at := time.Now()
	for _, tt := range []struct {
		spent int64
		wait  time.Duration
	}{{0, 990 * time.Millisecond}, {50, 90 * time.Millisecond}, {95, 10 * time.Millisecond}} {
		d := &Disk{at: at, cost: 10 * time.Millisecond, allowed: diskuse.Usage{Bytes: 100},
			used: diskuse.Usage{Bytes: 10}, spent: diskuse.Usage{Bytes: tt.spent}}
		if d.due(at.Add(tt.wait-1)) || !d.due(at.Add(tt.wait)) {
			t.Errorf("with %d spent it is not due after %v", tt.spent, tt.wait)
		}
	}
}

// TestLimitDisk: what holds a limit, and what is undone of it.
func TestLimitDisk(t *testing.T) {
	shm, err := os.MkdirTemp("/dev/shm", "hutch-meter-")
	if err != nil || !inMemory(t, shm) {
		testenv.Require(t, probe.Check{Name: "shared memory", Status: probe.No,
			Detail: "/dev/shm is no folder in memory", Remedy: "mount a tmpfs there"})
	}
	t.Cleanup(func() { _ = os.RemoveAll(shm) })
	huge := api.Limits{DiskBytes: 1 << 60, Inodes: 1000} // more than there is in memory
	for name, tt := range map[string]struct {
		limits api.Limits
		change func(w *world)
		place  DiskPlace
		detail string
		hard   bool
		code   api.Code
		undone func(w *world) bool
	}{
		"none":    {api.Limits{}, nil, DiskPlace{}, "none", false, "", nil},
		"watched": {huge, nil, DiskPlace{}, "watched", false, "", nil},
		"layers": {api.Limits{DiskBytes: mega}, nil, DiskPlace{Layered: true, Base: diskuse.Usage{Bytes: 5}}, "watched",
			false, "", nil},
		"own": {api.Limits{DiskBytes: mega, Inodes: 100}, nil, DiskPlace{},
			"a file system of its own, in memory", true, "", func(w *world) bool { return w.unmounts == 1 }},
		"own fails": {api.Limits{DiskBytes: mega}, func(w *world) { w.fail("Tmpfs", errInjected) }, DiskPlace{},
			"a file system of its own, in memory", true, api.Internal, nil},
		"quota": {huge, func(w *world) { w.cfg.Projects = projects{w} }, DiskPlace{},
			"a file system of its own, in memory", true, "",
			func(w *world) bool { return slices.Equal(w.quotas, []int64{1 << 60, 0}) }},
		"quota fails": {huge, func(w *world) {
			w.cfg.Projects = projects{w}
			w.fail("Projects", errInjected)
		}, DiskPlace{}, "watched", false, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(w *world) {
				if w.dir = filepath.Join(shm, t.Name()); tt.change != nil {
					tt.change(w)
				}
			})
			b := w.box()
			b.Set(tt.limits)
			var undo []func() error
			tt.place.Dir = b.dir
			err := b.meter.LimitDisk(tt.place, func(back func() error) { undo = append(undo, back) })
			if tt.code != "" {
				refused(t, tt.code, err)
			} else if err != nil {
				t.Error(err)
			}
			d := b.meter.Disk()
			if got := d.Detail(); got != tt.detail || d.Hard() != tt.hard || d.ByProject() != (name == "quota") {
				t.Errorf("%s, hard %v", got, d.Hard())
			}
			if err := b.meter.Measure(t.Context()); err != nil {
				t.Error(err)
			}
			if name == "layers" && d.use().Bytes < 5 {
				t.Errorf("%+v", d.use())
			}
			for _, back := range undo {
				if err := back(); err != nil {
					t.Error(err)
				}
			}
			if tt.undone != nil && !tt.undone(w) {
				t.Errorf("not undone: unmounted %d, quotas %v", w.unmounts, w.quotas)
			}
		})
	}
}

// TestAdoptDisk: the next hutchd knows what holds a limit, and what the layers took; a prepared one's is taken over.
func TestAdoptDisk(t *testing.T) {
	w := newWorld(t, func(w *world) { w.cfg.Projects = projects{w} })
	b := w.box(func(b *box) { b.rec.Limits = api.Limits{DiskBytes: mega, Inodes: 100} })
	b.meter.AdoptDisk(DiskPlace{Dir: b.dir, Base: diskuse.Usage{Bytes: 3}}, true)
	if d := b.meter.Disk(); !d.Hard() || !d.ByProject() || d.base.Bytes != 3 {
		t.Errorf("%+v", d)
	}
	other := w.box()
	other.meter.TakeDisk(b.meter.Disk())
	if other.meter.Disk() != b.meter.Disk() {
		t.Error("it was not taken over")
	}
	full := b.meter.Disk()
	full.used = diskuse.Usage{Bytes: mega - 100}
	if !full.full() {
		t.Error("a project with no block left is not full")
	}
}
