package sandbox

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/internal/spool"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/launch/launchapi"
)

// fakeLauncher is hutch-launch: it has the PID 1s, and what is held of commands.
type fakeLauncher struct {
	r  *rig
	wg sync.WaitGroup // who reports ends

	mu     sync.Mutex
	gone   bool
	silent bool                 // what is written is not counted, so that nothing waits for the kernel
	mute   bool                 // the next PID 1 does not answer
	inits  map[string]*fakeInit // not destroyed
	held   map[string]*heldExec // not dropped, by sandbox and id
}

// heldExec is what is held of a command.
type heldExec struct {
	guest  uint64
	exec   launchapi.Exec
	files  []*os.File
	spools []*spooled
}

// spooled is one stream of output.
type spooled struct {
	in    *os.File
	w     *spool.Writer
	count *os.File
	ended bool
}

func (l *fakeLauncher) count() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return map[string]int{"sandboxes at the launcher": len(l.inits), "held execs": len(l.held)}
}

// initOf is the PID 1 of a sandbox.
func (l *fakeLauncher) initOf(id string) *fakeInit {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inits[id]
}

// all are the PID 1s that live.
func (l *fakeLauncher) all() (list []*fakeInit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.inits {
		list = append(list, p)
	}
	return list
}

// lose ends the launcher: whatever it is asked for fails, and its pipes are closed.
func (l *fakeLauncher) lose() {
	l.r.m.Lost()
	l.mu.Lock()
	l.gone = true
	held, inits := l.held, l.inits
	l.held, l.inits = map[string]*heldExec{}, map[string]*fakeInit{}
	l.mu.Unlock()
	for _, p := range inits {
		p.die(int(unix.SIGKILL)) // PR_SET_PDEATHSIG
	}
	for _, e := range held {
		e.close()
	}
}

// at is points.at, and knows that the launcher is gone.
func (l *fakeLauncher) at(name string) error {
	if err := l.r.points.at("Launcher." + name); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gone {
		return api.Errorf(api.Unavailable, "hutch-launch is gone")
	}
	return nil
}

func (l *fakeLauncher) Create(ctx context.Context, id string, c launchapi.Create, netns *os.File) (*launchapi.Created,
	error) {
	if err := l.at("Create"); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	p, err := l.r.kernel.spawn(id, netns)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	l.inits[id] = p
	l.mu.Unlock()
	if c.CgroupV2 != "" {
		l.r.cgroups.enter(c.CgroupV2)
	}
	created := &launchapi.Created{PID: p.pid, Phases: map[string]float64{"clone": 1}}
	for _, f := range []**os.File{&created.Guest, &created.Filter, &created.Pidfd} {
		fd, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		*f = os.NewFile(uintptr(fd), strconv.Itoa(p.pid))
	}
	return created, nil
}

func (l *fakeLauncher) Claim(ctx context.Context, id string, _ launchapi.Claim) error {
	err := l.at("Claim")
	if err != nil {
		_ = l.Destroy(ctx, id)
	}
	return err
}

func (l *fakeLauncher) Take(string) error { return l.at("Take") }

func (l *fakeLauncher) Kill(_ context.Context, id string) error {
	if err := l.at("Kill"); err != nil {
		return err
	}
	if p := l.initOf(id); p != nil {
		p.die(int(unix.SIGKILL))
	}
	return nil
}

func (l *fakeLauncher) Destroy(_ context.Context, id string) error {
	if err := l.at("Destroy"); err != nil {
		return err
	}
	p := l.initOf(id)
	if p == nil {
		return nil
	}
	p.die(int(unix.SIGKILL))
	l.mu.Lock()
	delete(l.inits, id)
	var held []*heldExec
	for key, e := range l.held {
		if filepath.Dir(key) == id {
			held = append(held, e)
			delete(l.held, key)
		}
	}
	l.mu.Unlock()
	for _, e := range held {
		e.close()
	}
	return nil
}

// reaped reports the end of a PID 1, from a goroutine of its own.
func (l *fakeLauncher) reaped(p *fakeInit) {
	l.mu.Lock()
	known := l.inits[p.id] == p
	l.mu.Unlock()
	if m := l.r.m; known {
		l.wg.Go(func() { m.Exited(launchapi.Exited{ID: p.id, PID: p.pid, Status: p.status}) })
	}
}

func (l *fakeLauncher) Hold(id string, e launchapi.Exec, files ...*os.File) (await func() ([]launchapi.Stream, error),
	err error) {
	if err := l.at("Hold"); err != nil {
		return nil, err
	}
	key := filepath.Join(id, e.ID)
	h := &heldExec{exec: e}
	var meta struct{ Guest uint64 }
	if err := json.Unmarshal(e.Meta, &meta); err != nil {
		return nil, err
	}
	h.guest = meta.Guest
	var streams []launchapi.Stream
	for i, f := range files {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return nil, err
		}
		own := os.NewFile(uintptr(fd), f.Name())
		if e.Roles[i] != launchapi.RoleSpool {
			h.files = append(h.files, own)
			continue
		}
		st, err := h.spool(filepath.Join(l.r.dir, "spools"), own, e.Size, l.silent)
		if err != nil {
			return nil, err
		}
		streams = append(streams, st)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held[key] != nil {
		h.close()
		return nil, api.Errorf(api.AlreadyExists, "exec %s is held", e.ID)
	}
	l.held[key] = h
	return func() ([]launchapi.Stream, error) { return streams, nil }, nil
}

// spool begins to keep what comes out of a pipe, which it owns.
func (h *heldExec) spool(dir string, in *os.File, size int64, silent bool) (st launchapi.Stream, err error) {
	s := &spooled{in: in}
	if s.w, err = spool.NewWriter(dir, size); err != nil {
		return st, err
	}
	if st.File, err = s.w.Reader(); err != nil {
		return st, err
	}
	efd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return st, err
	}
	dup, err := unix.FcntlInt(uintptr(efd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return st, err
	}
	s.count, st.Count = os.NewFile(uintptr(efd), "count"), os.NewFile(uintptr(dup), "count")
	if silent { // an empty file is one to read from, and nothing to wait for
		if err := errors.Join(s.count.Close(), st.Count.Close()); err != nil {
			return st, err
		}
		if st.Count, err = os.Open(os.DevNull); err != nil {
			return st, err
		}
		s.count, err = os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	}
	h.spools = append(h.spools, s)
	return st, err
}

// pump moves what the pipes of a command hold into its spools.
func (l *fakeLauncher) pump(guest uint64, ended bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range l.held {
		if h.guest != guest {
			continue
		}
		for _, s := range h.spools {
			if err := s.pump(ended); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *spooled) pump(end bool) error {
	if s.ended {
		return nil
	}
	var moved uint64
	for {
		n, err := s.w.Splice(int(s.in.Fd()))
		if err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, io.EOF) {
			return err
		}
		if moved += uint64(max(0, n)); n <= 0 || err != nil {
			break
		}
	}
	if s.ended = end; end {
		moved |= launchapi.StreamEnd
	}
	if moved == 0 {
		return nil
	}
	_, err := s.count.Write(binary.NativeEndian.AppendUint64(nil, moved))
	return err
}

// adopted is what the next hutchd gets of one whose output is not kept.
func (h *heldExec) adopted(id string) launchapi.HeldExec {
	e := h.exec
	e.ID = id
	return launchapi.HeldExec{Exec: e}
}

func (h *heldExec) close() {
	for _, s := range h.spools {
		_ = s.w.Close()
		packet.CloseAll([]*os.File{s.in, s.count})
	}
	packet.CloseAll(h.files)
	h.spools, h.files = nil, nil
}

// of is what is held of a command.
func (l *fakeLauncher) of(id, exec string) *heldExec {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held[filepath.Join(id, exec)]
}

func (l *fakeLauncher) Flush(_ context.Context, id, exec string) ([]launchapi.Spooled, error) {
	if err := l.at("Flush"); err != nil {
		return nil, err
	}
	h := l.of(id, exec)
	if h == nil {
		return nil, api.Errorf(api.NotFound, "exec %s is not held", exec)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []launchapi.Spooled
	for _, s := range h.spools {
		if err := s.pump(false); err != nil {
			return nil, err
		}
		all = append(all, launchapi.Spooled{Total: s.w.Total(), Lost: -1})
	}
	return all, nil
}

func (l *fakeLauncher) Note(string, string, json.RawMessage) error { return l.at("Note") }

func (l *fakeLauncher) End(string, string, json.RawMessage) error { return l.at("End") }

func (l *fakeLauncher) Drop(id, exec string) error {
	if err := l.at("Drop"); err != nil {
		return err
	}
	key := filepath.Join(id, exec)
	l.mu.Lock()
	h := l.held[key]
	delete(l.held, key)
	l.mu.Unlock()
	if h != nil {
		h.close()
	}
	return nil
}

func (l *fakeLauncher) Settle(context.Context) error { return l.at("Settle") }

func (l *fakeLauncher) Loosen(string, string) error { return l.at("Loosen") }
