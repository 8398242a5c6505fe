package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// fakeInit is the PID 1 of a sandbox: it speaks guestapi and starts nothing. The first words of a command say what
// becomes of it:
//
//	true                  ends well
//	exit N                ends with N
//	signal N              ends by signal N
//	write TEXT N          writes TEXT N times to stdout, and ends well
//	cat                   writes what it reads from stdin until its end
//	hang                  runs until it is killed, or gets a signal
//	obey N                ends with N when it gets a signal
//	stubborn              runs until it is killed
//	missing, forbidden    cannot be started
//	silent                is neither started nor refused
//	immortal              runs, and PID 1 does not report its end when it is killed
//	takeover              makes PID 1 say what hutch-init never does
//	crash                 ends PID 1
type fakeInit struct {
	r    *rig
	id   string
	pid  int
	conn *channel
	dead chan struct{} // closed with it

	mu     sync.Mutex
	over   bool
	status int // of its end
	next   int // pid of a command
	execs  map[uint64]*command
	setup  guestapi.Request
	asked  []guestapi.Request // to start something
	held   bool               // folders are not moved
	moving string             // the folder that is
	made   []string           // repositories
	more   bool               // than these
}

// command is one that a PID 1 has started.
type command struct {
	init  *fakeInit
	id    uint64
	pid   int
	argv  []string
	files []*os.File
	ended bool
}

// channel is a guest channel without a socket.
type channel struct {
	init   *fakeInit
	events chan []byte
	ours   chan struct{} // closed with hutchd's end
	theirs chan struct{} // closed with PID 1's
	once   [2]sync.Once
}

func newChannel() *channel {
	return &channel{events: make(chan []byte, 4096), ours: make(chan struct{}), theirs: make(chan struct{})}
}

// Receive hands over what was sent before the end first.
func (c *channel) Receive(take func(packet []byte)) error {
	select {
	case p := <-c.events:
		take(p)
		return nil
	default:
	}
	select {
	case p := <-c.events:
		take(p)
		return nil
	case <-c.ours:
		return os.ErrClosed
	case <-c.theirs:
		select {
		case p := <-c.events:
			take(p)
			return nil
		default:
			return io.EOF
		}
	}
}

// Send has PID 1 do what a request asks for.
func (c *channel) Send(_ time.Time, packet []byte, files []*os.File) error {
	select {
	case <-c.ours:
		return os.ErrClosed
	case <-c.theirs:
		return unix.EPIPE
	default:
	}
	var req guestapi.Request
	if err := json.Unmarshal(packet, &req); err != nil {
		return err
	}
	if err := c.init.r.points.at("Init." + req.Op); err != nil {
		return err
	}
	return c.init.handle(&req, files)
}

func (c *channel) Close() error {
	c.once[0].Do(func() { close(c.ours) })
	return nil
}

// says sends an event.
func (p *fakeInit) says(ev guestapi.Event) {
	data, err := json.Marshal(ev)
	if err != nil {
		p.r.t.Error(err)
		return
	}
	select {
	case p.conn.events <- data:
	case <-p.conn.ours:
	}
}

// die ends it, and all in its sandbox, with a wait status.
func (p *fakeInit) die(status int) {
	p.mu.Lock()
	if p.over {
		p.mu.Unlock()
		return
	}
	p.over, p.status = true, status
	for _, c := range p.execs {
		c.stop()
	}
	p.mu.Unlock()
	p.conn.once[1].Do(func() { close(p.conn.theirs) })
	p.r.kernel.reap(p)
	close(p.dead)
	p.r.launcher.reaped(p)
}

func (p *fakeInit) handle(req *guestapi.Request, files []*os.File) error {
	switch req.Op {
	case guestapi.OpSetup:
		if p.r.launcher.mute {
			return nil
		}
		p.mu.Lock()
		p.setup = *req
		p.mu.Unlock()
		p.says(guestapi.Event{Ev: guestapi.EvReady, Version: guestapi.Version, IDs: true, CapDrop: true})
	case guestapi.OpGuard, guestapi.OpStop, guestapi.OpGoOn:
		p.says(guestapi.Event{Ev: guestapi.EvReady, Exec: req.Exec})
	case guestapi.OpHold, guestapi.OpRelease:
		p.mu.Lock()
		p.held = req.Op == guestapi.OpHold
		moving := p.moving
		p.mu.Unlock()
		p.says(guestapi.Event{Ev: guestapi.EvReady, Exec: req.Exec, Moving: moving})
	case guestapi.OpMade:
		p.mu.Lock()
		made, more := p.made, p.more
		p.made, p.more = nil, false
		p.mu.Unlock()
		p.says(guestapi.Event{Ev: guestapi.EvReady, Exec: req.Exec, Made: made, More: more})
	case guestapi.OpExec:
		return p.start(req, files)
	case guestapi.OpSignal, guestapi.OpKill:
		p.mu.Lock()
		c := p.execs[req.Exec]
		p.mu.Unlock()
		if c != nil {
			c.signal(req)
		}
	case guestapi.OpList:
		p.mu.Lock()
		for id, c := range p.execs {
			p.says(guestapi.Event{Ev: guestapi.EvStarted, Exec: id, PID: c.pid})
		}
		p.mu.Unlock()
		p.says(guestapi.Event{Ev: guestapi.EvListed, Exec: req.Exec})
	default:
		return fmt.Errorf("unknown request %q", req.Op)
	}
	return nil
}

// start does what the first words of a command say.
func (p *fakeInit) start(req *guestapi.Request, files []*os.File) error {
	c := &command{init: p, id: req.Exec, argv: append(req.Argv, "", "", "")}
	for _, f := range files {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return err
		}
		c.files = append(c.files, os.NewFile(uintptr(fd), f.Name()))
	}
	p.mu.Lock()
	p.next++
	c.pid = 1 + p.next
	p.asked = append(p.asked, *req)
	p.mu.Unlock()
	fails := func(reason guestapi.Reason, errno unix.Errno) {
		p.says(guestapi.Event{Ev: guestapi.EvFailed, Exec: c.id, Reason: reason, Errno: int(errno),
			Message: "execute " + c.argv[0]})
		c.close()
	}
	switch c.argv[0] {
	case "missing":
		fails(guestapi.ReasonNotFound, unix.ENOENT)
		return nil
	case "forbidden", "/":
		fails(guestapi.ReasonNotExecutable, unix.EACCES)
		return nil
	}
	p.mu.Lock()
	if p.over {
		p.mu.Unlock()
		c.close()
		return unix.EPIPE
	}
	p.execs[c.id] = c
	p.mu.Unlock()
	if c.argv[0] == "silent" {
		return nil
	}
	p.says(guestapi.Event{Ev: guestapi.EvStarted, Exec: c.id, PID: c.pid})
	return c.act()
}

// act is what a command does once it runs.
func (c *command) act() error {
	number := func(i int) int { n, _ := strconv.Atoi(c.argv[i]); return n }
	switch c.argv[0] {
	case "true":
		c.exit(0, nil)
	case "exit":
		c.exit(number(1)<<8, nil)
	case "signal":
		c.exit(number(1), nil)
	case "write":
		for range max(1, number(2)) {
			if _, err := c.files[1].WriteString(c.argv[1]); err != nil {
				return err
			}
			if err := c.init.r.launcher.pump(c.id, false); err != nil {
				return err
			}
		}
		c.exit(0, nil)
	case "cat":
		data, err := io.ReadAll(c.files[0])
		if err == nil {
			_, err = c.files[1].Write(data)
		}
		c.exit(0, nil)
		return err
	case "takeover":
		c.init.says(guestapi.Event{Ev: "hello"})
	case "crash":
		c.init.die(3 << 8)
	}
	return nil
}

// signal is a signal for it, or its kill.
func (c *command) signal(req *guestapi.Request) {
	switch {
	case req.Op == guestapi.OpKill && c.argv[0] == "immortal":
	case req.Op == guestapi.OpKill:
		c.exit(int(unix.SIGKILL), []int{c.pid})
	case c.argv[0] == "obey":
		n, _ := strconv.Atoi(c.argv[1])
		c.exit(n<<8, nil)
	case c.argv[0] == "hang":
		c.exit(req.Signal, nil)
	}
}

// exit ends it with a wait status.
func (c *command) exit(status int, killed []int) {
	c.init.mu.Lock()
	ended := c.stop()
	c.init.mu.Unlock()
	if !ended {
		return
	}
	if err := c.init.r.launcher.pump(c.id, true); err != nil {
		c.init.r.t.Error(err)
	}
	c.init.says(guestapi.Event{Ev: guestapi.EvExited, Exec: c.id, PID: c.pid, Status: status, Killed: killed,
		Usage: &guestapi.Usage{UserUS: 1000}})
}

// stop closes its files, once; the mutex of its PID 1 is held.
func (c *command) stop() bool {
	if c.ended {
		return false
	}
	c.ended = true
	delete(c.init.execs, c.id)
	c.close()
	return true
}

func (c *command) close() {
	for _, f := range c.files {
		_ = f.Close()
	}
}

// tell makes proc(5) say something else of it.
func (p *fakeInit) tell(file, text string) {
	if err := os.WriteFile(filepath.Join(p.r.kernel.Proc(p.pid), file), []byte(text), 0o644); err != nil {
		p.r.t.Error(err)
	}
}

// link makes one of its namespaces another.
func (p *fakeInit) link(file, target string) {
	at := filepath.Join(p.r.kernel.Proc(p.pid), file)
	if err := errors.Join(os.Remove(at), os.Symlink(target, at)); err != nil {
		p.r.t.Error(err)
	}
}

// ownNamespace is one of the test's own.
func ownNamespace(t *testing.T, name string) string {
	t.Helper()
	ns, err := os.Readlink("/proc/self/ns/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return ns
}
