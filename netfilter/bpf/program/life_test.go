package program

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/netfilter/bpf"
	"github.com/hutch-sh/hutch/netfilter/bpf/bpftest"
)

// ids are the programs of a cgroup and the maps that they use.
func ids(t testing.TB, dir string) (programs map[ebpf.ProgramID]bool, used map[ebpf.MapID]bool) {
	t.Helper()
	programs, used = map[ebpf.ProgramID]bool{}, map[ebpf.MapID]bool{}
	folder := must(os.Open(dir))(t)
	defer folder.Close()
	for at := range (&Set{}).hooks() {
		got := must(link.QueryPrograms(link.QueryOptions{Target: int(folder.Fd()), Attach: at}))(t)
		for _, one := range got.Programs {
			programs[one.ID] = true
			p := must(ebpf.NewProgramFromID(one.ID))(t)
			maps, _ := must(p.Info())(t).MapIDs()
			for _, id := range maps {
				used[id] = true
			}
			_ = p.Close()
		}
	}
	return programs, used
}

// TestRemoved: with nobody left who holds the maps, and after collections of garbage (which
// closes what Go finds dropped), the programs are in force, and what they allow is reached.
// The removal of the cgroup frees them and their maps.
func TestRemoved(t *testing.T) {
	dir := filepath.Join(bpftest.Cgroup(t, 0), "sandboxes")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, dir: dir, files: loaded(t, dir, "yes")}
	func() { // the maps are dropped, not closed
		r.maps = must(bpf.Open(r.files))(t)
		r.sandbox("sb", &bpf.Policy{Addresses: []bpf.Address{at("198.18.0.5:7000", bpf.TCP)}})
		r.maps = nil
	}()
	t.Run("in force", func(t *testing.T) {
		w := startWorker(t, dir+"/sb")
		hold := func(want string) {
			t.Helper()
			if got := w.do("%s", tcp4+"198.18.0.5:7000"); got != "ok" {
				t.Errorf("%s: allowed: %s", want, got)
			}
			if got := w.do("%s", tcp4+"198.18.0.6:7000"); got != refusal {
				t.Errorf("%s: %s, want %s", want, got, refusal)
			}
		}
		if got := w.do("listen"); got != "ok" {
			t.Fatal(got)
		}
		hold("before")
		for range 3 {
			runtime.GC()
		}
		hold("after collections of garbage")
		// The fds that are left still work: what was refused is told.
		again := must(bpf.Open(r.files))(t)
		defer again.Close()
		events := must(again.Events())(t)
		defer events.Close()
		for range 2 {
			events.SetDeadline(time.Now().Add(testenv.Patience(20 * time.Second)))
			if e, err := events.Read(); err != nil || e.Errno != refusedErrno || e.Verdict != bpf.Deny {
				t.Errorf("%+v, %v", e, err)
			}
		}
		packet.CloseAll(r.files)
		hold("without any fd of the maps")
	})
	programs, maps := ids(t, dir)
	if len(programs) != 6 || len(maps) < bpf.Count {
		t.Fatalf("%d programs, %d maps", len(programs), len(maps))
	}
	// Others have programs, too: they stay.
	other := newRig(t, "yes")
	others, _ := ids(t, other.dir)
	testenv.Unpopulated(t, dir, 20*time.Second)
	for _, path := range []string{dir + "/sb", dir} {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	gone(t, "program", programs, func(id ebpf.ProgramID) (interface{ Close() error },
		error) {
		return ebpf.NewProgramFromID(id)
	})
	gone(t, "map", maps, func(id ebpf.MapID) (interface{ Close() error }, error) { return ebpf.NewMapFromID(id) })
	if now, _ := ids(t, other.dir); len(now) != len(others) || len(now) != 6 {
		t.Errorf("another cgroup has %d programs, had %d", len(now), len(others))
	}
}

// gone waits until the kernel, which does so behind rmdir, has freed what has these ids.
func gone[ID comparable](t *testing.T, what string, all map[ID]bool,
	open func(ID) (interface{ Close() error }, error)) {
	t.Helper()
	for id := range all {
		testenv.Poll(t, 20*time.Second, fmt.Sprintf("%s %v is still there", what, id), func() bool {
			held, err := open(id)
			if errors.Is(err, os.ErrNotExist) {
				return true
			}
			if err != nil {
				t.Fatal(err)
			}
			_ = held.Close()
			return false
		})
	}
}

// TestHalf: a loader that is killed between two steps leaves some programs and no maps.
// Everything is refused there, also to the next loader; a fresh folder is as good as ever.
func TestHalf(t *testing.T) {
	r := newRig(t, "yes")
	dir := bpftest.Cgroup(t, 0)
	folder := bpftest.Open(t, dir)
	level := must(Level(folder))(t)
	half := must(load(level+1, refusedErrno != unix.EPERM))(t)
	at := ebpf.AttachCGroupInetSockCreate
	if err := link.RawAttachProgram(link.RawAttachProgramOptions{Target: int(folder.Fd()), Program: half.hooks()[at],
		Attach: at, Flags: allowMulti}); err != nil {
		t.Fatal(err)
	}
	if err := half.Close(); err != nil {
		t.Fatal(err)
	}
	next := must(Load(level + 1))(t)
	defer next.Close()
	if err := next.Attach(folder); !errors.Is(err, ErrAttached) {
		t.Errorf("%v, want ErrAttached", err)
	}
	if programs, _ := ids(t, dir); len(programs) != 1 {
		t.Errorf("%d programs, want the one", len(programs))
	}
	if err := os.Mkdir(dir+"/sb", 0o755); err != nil {
		t.Fatal(err)
	}
	if got := startWorker(t, dir+"/sb").do("socket 2 1 0"); got != refusal {
		t.Errorf("half: %s, want %s", got, refusal)
	}
	r.sandbox("sb", &bpf.Policy{})
	r.expect(r.worker("sb"), "socket 2 1 0", "ok")
}
