package launch

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"

	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/launch/launchapi"
)

// server answers hutchd.
type server struct {
	conn     *packet.Conn
	payload  *payload
	children *children
	// slots bounds the creates under way: libcontainer's start is CPU, and more of
	// them than cores only make each slower.
	slots chan struct{}
	// wg counts goroutines: requests, and one for each live PID 1.
	wg sync.WaitGroup

	mu        sync.Mutex
	closing   bool
	sandboxes map[string]*sandbox // also those being created or destroyed
}

func newServer(conn *packet.Conn, p *payload, kids *children) *server {
	return &server{
		conn: conn, payload: p, children: kids,
		slots:     make(chan struct{}, runtime.NumCPU()),
		sandboxes: map[string]*sandbox{},
	}
}

// serve reads requests until the channel ends.
func (s *server) serve() {
	for {
		var req launchapi.Request
		files, err := s.conn.Recv(&req)
		// Without its fds a request fails in its handler.
		if err != nil && !errors.Is(err, packet.ErrFDsLost) {
			return
		}
		s.dispatch(req, files)
	}
}

// hangUp ends serve.
func (s *server) hangUp() { _ = s.conn.Close() }

// dispatch starts the handler of req, which owns files. The sandbox is looked up
// here, in the order of the requests, so that a destroy that follows a create
// finds it.
func (s *server) dispatch(req launchapi.Request, files []*os.File) {
	sb, err := s.lookup(req)
	if err != nil {
		packet.CloseAll(files)
		s.reply(launchapi.Reply{Seq: req.Seq, Error: launchapi.FromError(err)})
		return
	}
	s.wg.Go(func() {
		switch req.Op {
		case launchapi.OpSpool, launchapi.OpFlush, launchapi.OpDrop:
			s.spool(req, sb, files) // owns them
			return
		}
		defer packet.CloseAll(files)
		switch req.Op {
		case launchapi.OpCreate:
			s.create(req, sb, files)
		case launchapi.OpKill:
			s.finish(req, sb.kill())
		case launchapi.OpDestroy:
			s.finish(req, s.destroy(sb))
		}
	})
}

// lookup finds req's sandbox, or enters a new one.
func (s *server) lookup(req launchapi.Request) (*sandbox, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sb, exists := s.sandboxes[req.ID]
	switch req.Op {
	case launchapi.OpCreate:
		switch {
		case s.closing:
			return nil, api.Errorf(api.Unavailable, "create sandbox %s: hutch-launch is ending", req.ID)
		case exists:
			return nil, api.Errorf(api.AlreadyExists, "create sandbox %s: it exists", req.ID)
		case req.Create == nil:
			return nil, api.Errorf(api.InvalidArgument, "create sandbox %s: no parameters", req.ID)
		}
		sb = newSandbox(req.ID)
		s.sandboxes[req.ID] = sb
		return sb, nil
	case launchapi.OpKill:
		if !exists {
			return nil, api.Errorf(api.NotFound, "kill sandbox %s: not running here", req.ID)
		}
		return sb, nil
	case launchapi.OpDestroy:
		if !exists {
			return destroyed(req.ID), nil
		}
		return sb, nil
	case launchapi.OpSpool, launchapi.OpFlush, launchapi.OpDrop:
		switch {
		case !exists:
			return nil, api.Errorf(api.NotFound, "%s in sandbox %s: not running here", req.Op, req.ID)
		case req.Spool == nil || req.Spool.Exec == "":
			return nil, api.Errorf(api.InvalidArgument, "%s in sandbox %s: no exec", req.Op, req.ID)
		}
		return sb, nil
	}
	return nil, api.Errorf(api.Unimplemented, "operation %q", req.Op)
}

// create runs a create and sends its result.
func (s *server) create(req launchapi.Request, sb *sandbox, files []*os.File) {
	s.slots <- struct{}{}
	result, out, err := s.launch(sb, req.Create, files)
	<-s.slots
	if err != nil {
		s.forget(sb)
		close(sb.created)
		s.finish(req, err)
		return
	}
	err = s.conn.Send(launchapi.Reply{Seq: req.Seq, Create: result}, out...)
	packet.CloseAll(out)
	// Only now, so that hutchd never hears of the end of a sandbox before it has
	// heard of the sandbox.
	s.wg.Go(func() { s.watch(sb) })
	close(sb.created)
	if err != nil {
		// hutchd is gone, or the fds could not be sent (ETOOMANYREFS: too many of
		// this kernel uid are in flight). It does not know this sandbox.
		s.finish(req, errors.Join(fmt.Errorf("hand over sandbox %s: %w", sb.id, err), s.destroy(sb)))
	}
}

// watch reports the end of PID 1.
func (s *server) watch(sb *sandbox) {
	sb.status = s.children.wait(sb.pid, sb.pidfd)
	s.reply(launchapi.Reply{Exited: &launchapi.Exited{ID: sb.id, Status: int(sb.status)}})
	close(sb.exited)
}

// destroy removes sb and everything of it.
func (s *server) destroy(sb *sandbox) error {
	err := sb.destroy()
	s.forget(sb)
	return err
}

func (s *server) forget(sb *sandbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sandboxes[sb.id] == sb {
		delete(s.sandboxes, sb.id)
	}
}

// finish answers a request that has no result but success.
func (s *server) finish(req launchapi.Request, err error) {
	r := launchapi.Reply{Seq: req.Seq}
	if err != nil {
		r.Error = launchapi.FromError(err)
	}
	s.reply(r)
}

// reply sends r. That it can not be sent means that hutchd is gone, which
// serve and supervise see for themselves.
func (s *server) reply(r launchapi.Reply) { _ = s.conn.Send(r) }

// close destroys all sandboxes, also those being created, and waits for every
// goroutine. The caller has ended serve.
func (s *server) close() error {
	s.mu.Lock()
	s.closing = true
	all := make([]*sandbox, 0, len(s.sandboxes))
	for _, sb := range s.sandboxes {
		all = append(all, sb)
	}
	s.mu.Unlock()

	errs := make([]error, len(all))
	for i, sb := range all {
		s.wg.Go(func() { errs[i] = s.destroy(sb) })
	}
	s.wg.Wait()
	return errors.Join(append(errs, s.payload.close())...)
}
