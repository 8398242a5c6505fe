package guest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
	"github.com/hutch-sh/hutch/runtime/guest/supervisor"
)

// maxExecs bounds the execs that are alive, or over with children left.
const maxExecs = 4096

// server is PID 1's state.
type server struct {
	ch          *channel
	stub        int // sealed memfd of the exec stub
	self        int // hutch-init's own binary, a sealed memfd too
	ids         userNamespace
	oomScoreAdj uint32 // of commands

	// filter is the memfd of the exec filter; -1 until setup.
	filter int
	// cgroups is the mount that execs' cgroups are below; -1 without.
	cgroups int
	// starter forks commands in a Landlock domain; nil without one. It is set by setup.
	starter *starter
	// asked answers the calls that PID 1's filter does not decide by itself; nil where it decides all.
	asked *supervisor.Supervisor

	// slots bounds the execs between pipe and fork, that is the fds they hold.
	slots chan struct{}

	// mu guards the table and every exec in it. It is held across fork, so that
	// the reaper never meets a pid that is not in the table yet.
	mu    sync.Mutex
	execs map[uint64]*execution
	byPID map[int]*execution // leaders that were not reaped yet
	// unacked are the ends that hutchd has not put on record yet.
	unacked map[uint64]guestapi.Event
}

func newServer(ch *channel) (_ *server, err error) {
	s := &server{
		ch:          ch,
		filter:      -1,
		cgroups:     -1,
		slots:       make(chan struct{}, 8),
		oomScoreAdj: commandOOMScore(),
		execs:       map[uint64]*execution{},
		byPID:       map[int]*execution{},
		unacked:     map[uint64]guestapi.Event{},
	}
	if s.ids, err = readUserNamespace(); err != nil {
		return nil, err
	}
	if s.self, err = openSelf(); err != nil {
		return nil, err
	}
	if s.stub, err = memfd("hutch-stub", stubELF, memfdExec); err != nil {
		return nil, err
	}
	return s, nil
}

// commandOOMScore is 500 above hutch-init's own score, at most 1000: when memory
// is short, the kernel must take a command and not PID 1.
func commandOOMScore() uint32 {
	own := 0
	if data, err := os.ReadFile("/proc/self/oom_score_adj"); err == nil {
		own, _ = strconv.Atoi(string(bytes.TrimSpace(data)))
	}
	return uint32(min(1000, max(0, own)+500))
}

// serve answers requests until the channel is closed.
func (s *server) serve() error {
	go s.ch.sendLoop()
	for {
		req, fds, err := s.ch.receive()
		var bad errBadRequest
		switch {
		case errors.As(err, &bad):
			s.ch.post(failure(bad.exec, guestapi.ReasonInternal, nil, "bad request: "+bad.text))
		case errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET):
			return nil
		case err != nil:
			return err
		default:
			s.handle(req, fds)
		}
	}
}

// handle must not block: the next request may be the kill of what blocks.
func (s *server) handle(req *guestapi.Request, fds []int) {
	switch req.Op {
	case guestapi.OpSetup:
		s.setup(req, fds)
	case guestapi.OpGuard:
		s.guard(req)
	case guestapi.OpExec:
		s.exec(req, fds)
	case guestapi.OpSignal:
		s.signal(req.Exec, unix.Signal(req.Signal))
	case guestapi.OpKill:
		s.kill(req.Exec)
	case guestapi.OpStop:
		s.signalAll(req.Exec, unix.SIGSTOP)
	case guestapi.OpGoOn:
		s.signalAll(req.Exec, unix.SIGCONT)
	case guestapi.OpHold:
		go s.hold(req)
	case guestapi.OpRelease:
		s.asked.Release()
		s.answer(guestapi.Event{Exec: req.Exec})
	case guestapi.OpMade:
		s.made(req)
	case guestapi.OpList:
		s.list(req.Exec)
	}
}

// setup keeps the exec filter, as a copy that nobody else can change, and the mount
// of the cgroups.
func (s *server) setup(req *guestapi.Request, fds []int) {
	prog, err := readFilter(os.NewFile(uintptr(fds[0]), "exec filter"))
	if err == nil && s.filter >= 0 {
		err = errors.New("already set up")
	}
	if err == nil && req.Guard != nil && (!s.asked.Makes() || req.Landlock == 0) {
		err = errors.New("a guard of names that are not there takes a Landlock domain, and " + guestapi.ArgMakes)
	}
	if err == nil && req.Landlock != 0 {
		var rules *supervisor.Rules
		if req.Guard != nil {
			rules = supervisor.NewRules(req.Guard)
		}
		if s.starter, err = newStarter(req.Landlock, rules); err == nil && rules != nil {
			s.asked.SetRules(rules)
		}
	}
	if err == nil {
		s.filter, err = memfd("hutch-filter", prog, memfdData)
	}
	if err != nil {
		closeAll(fds[1:])
		s.ch.post(failure(0, guestapi.ReasonInternal, err, "setup"))
		return
	}
	if req.Cgroups {
		s.cgroups = fds[1]
	}
	if req.Hostname != "" {
		// Whoever creates the sandbox sets its name; PID 1 normally lacks the
		// right (CAP_SYS_ADMIN).
		_ = unix.Sethostname([]byte(req.Hostname))
	}
	s.ch.post(guestapi.Event{Ev: guestapi.EvReady, Version: guestapi.Version, IDs: s.asked.Emulates(), CapDrop: true})
}

// guard takes another guard than that of setup.
func (s *server) guard(req *guestapi.Request) {
	err := errors.New("there was none at setup")
	if s.starter != nil && s.asked.Rules() != nil {
		rules := supervisor.NewRules(req.Guard)
		if err = s.starter.guard(rules); err == nil {
			s.asked.SetRules(rules)
		}
	}
	if err != nil {
		s.ch.post(failure(req.Exec, guestapi.ReasonInternal, err, "guard"))
		return
	}
	s.answer(guestapi.Event{Exec: req.Exec})
}

// answer sends what a request asked for.
func (s *server) answer(ev guestapi.Event) {
	ev.Ev, ev.Version = guestapi.EvReady, guestapi.Version
	s.ch.post(ev)
}

// hold answers when no folder is being moved, and none will be until release.
func (s *server) hold(req *guestapi.Request) {
	s.answer(guestapi.Event{Exec: req.Exec, Moving: s.asked.Hold(time.Duration(req.WaitMS) * time.Millisecond)})
}

// made hands over which repositories there are since it did so last.
func (s *server) made(req *guestapi.Request) {
	ev := guestapi.Event{Exec: req.Exec}
	ev.Made, ev.More = s.asked.Made(req.Exec, req.Acks)
	s.answer(ev)
}

// failure makes the event for a command that never ran. The errno is err's, if
// it has one.
func failure(exec uint64, reason guestapi.Reason, err error, what string) guestapi.Event {
	ev := guestapi.Event{Ev: guestapi.EvFailed, Exec: exec, Reason: reason, Message: what}
	if err != nil {
		ev.Message = fmt.Sprintf("%s: %v", what, err)
	}
	var errno unix.Errno
	if errors.As(err, &errno) {
		ev.Errno = int(errno)
	}
	if len(ev.Message) > guestapi.MaxMessage {
		ev.Message = ev.Message[:guestapi.MaxMessage]
	}
	return ev
}
