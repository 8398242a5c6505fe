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

// server is all that hutch-launch holds, across the lives of hutchd.
type server struct {
	payload  *payload
	children *children
	// slots bounds the creates under way: libcontainer's start is CPU, and more of
	// them than cores only make each slower.
	slots chan struct{}
	wg    sync.WaitGroup // one for each live PID 1

	mu        sync.Mutex
	closing   bool
	session   *session            // of the living hutchd, nil between two
	sandboxes map[string]*sandbox // also those being created or destroyed
	kept      map[string]heldFile // hutchd's own, by its keys
}

func newServer(p *payload, kids *children) *server {
	return &server{
		payload: p, children: kids,
		slots:     make(chan struct{}, runtime.NumCPU()),
		sandboxes: map[string]*sandbox{},
		kept:      map[string]heldFile{},
	}
}

// session is the channel to one hutchd.
type session struct {
	*server
	conn   *packet.Conn
	served chan struct{}  // closed when the channel has ended
	wg     sync.WaitGroup // requests under way
}

// open starts to serve a hutchd. The one before must have been left.
func (s *server) open(conn *packet.Conn) *session {
	ses := &session{server: s, conn: conn, served: make(chan struct{})}
	go func() {
		defer close(ses.served)
		ses.serve()
	}()
	s.mu.Lock()
	s.session = ses
	s.mu.Unlock()
	return ses
}

// leave ends the service for a hutchd that has died. Whatever it has sent is still read
// and done; a sandbox that it will not hear of is destroyed.
func (ses *session) leave() {
	ses.mu.Lock()
	if ses.session == ses {
		ses.session = nil
	}
	ses.mu.Unlock()
	// Not the end of the channel: a hutchd that was taken over may have left its own end
	// with another process.
	_ = ses.conn.CloseRead()
	<-ses.served
	_ = ses.conn.Close()
	ses.wg.Wait()
	ses.endGeneric()
}

// serve reads requests until the channel ends.
func (ses *session) serve() {
	for {
		var req launchapi.Request
		files, err := ses.conn.Recv(&req)
		// Without its fds a request fails in its handler.
		if err != nil && !errors.Is(err, packet.ErrFDsLost) {
			return
		}
		ses.dispatch(req, files)
	}
}

// dispatch does what a request asks for, which owns files. Notes of hutchd are taken
// at once, so that their order is kept; everything else has its own goroutine. The
// sandbox is looked up here, in the order of the requests, so that a destroy that
// follows a create finds it.
func (ses *session) dispatch(req launchapi.Request, files []*os.File) {
	switch req.Op {
	case launchapi.OpKeep, launchapi.OpUnkeep:
		ses.keep(req.Key, files)
		ses.finish(req, nil)
		return
	case launchapi.OpAdopt:
		packet.CloseAll(files)
		ses.wg.Go(func() { ses.finish(req, ses.adopt()) })
		return
	}
	sb, err := ses.lookup(req)
	if err != nil {
		packet.CloseAll(files)
		ses.finish(req, err)
		return
	}
	switch req.Op {
	case launchapi.OpHold:
		if req.Seq == 0 {
			ses.hold(req, sb, files)
			return
		}
		ses.wg.Go(func() { ses.hold(req, sb, files) })
		return
	case launchapi.OpFlush:
		// Waits for callers that do not read, so nobody waits for it; the exec's drop or the
		// sandbox's end ends it.
		packet.CloseAll(files)
		go ses.flush(req, sb)
		return
	case launchapi.OpTake:
		packet.CloseAll(files)
		return
	case launchapi.OpEnd:
		sb.execs.end(req.Exec.ID, req.Exec.End)
		packet.CloseAll(files)
		return
	case launchapi.OpNote:
		sb.execs.note(req.Exec.ID, req.Exec.Note)
		packet.CloseAll(files)
		return
	case launchapi.OpLoosen:
		sb.execs.loosen(req.Exec.ID)
		packet.CloseAll(files)
		return
	case launchapi.OpDrop:
		if h := sb.execs.drop(req.Exec.ID); h != nil {
			ses.wg.Go(h.close)
		}
		packet.CloseAll(files)
		return
	}
	ses.wg.Go(func() {
		defer packet.CloseAll(files)
		switch req.Op {
		case launchapi.OpCreate:
			ses.create(req, sb, files)
		case launchapi.OpClaim:
			ses.finish(req, ses.claim(sb, req.Claim))
		case launchapi.OpKill:
			ses.finish(req, sb.kill())
		case launchapi.OpDestroy:
			ses.finish(req, ses.destroy(sb))
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
		sb.generic = req.Create.Generic
		s.sandboxes[req.ID] = sb
		return sb, nil
	case launchapi.OpKill:
		if !exists {
			return nil, api.Errorf(api.NotFound, "kill sandbox %s: not running here", req.ID)
		}
		return sb, nil
	case launchapi.OpClaim:
		switch {
		case !exists || !sb.generic || sb.claimed:
			return nil, api.Errorf(api.NotFound, "claim sandbox %s: it does not wait for that", req.ID)
		case req.Claim == nil:
			return nil, api.Errorf(api.InvalidArgument, "claim sandbox %s: no parameters", req.ID)
		}
		sb.generic, sb.claimed = req.Claim.Ahead, true // whatever becomes of it
		return sb, nil
	case launchapi.OpTake:
		if !exists || !sb.claimed {
			return nil, api.Errorf(api.NotFound, "take sandbox %s: it was not claimed", req.ID)
		}
		sb.generic = false
		return sb, nil
	case launchapi.OpDestroy:
		if !exists {
			return destroyed(req.ID), nil
		}
		return sb, nil
	case launchapi.OpHold, launchapi.OpFlush, launchapi.OpEnd, launchapi.OpNote, launchapi.OpLoosen, launchapi.OpDrop:
		switch {
		case !exists:
			return nil, api.Errorf(api.NotFound, "%s in sandbox %s: not running here", req.Op, req.ID)
		case req.Exec == nil || req.Exec.ID == "":
			return nil, api.Errorf(api.InvalidArgument, "%s in sandbox %s: no exec", req.Op, req.ID)
		}
		return sb, nil
	}
	return nil, api.Errorf(api.Unimplemented, "operation %q", req.Op)
}

// create runs a create and sends its result.
func (ses *session) create(req launchapi.Request, sb *sandbox, files []*os.File) {
	ses.slots <- struct{}{}
	result, out, err := ses.launch(sb, req.Create, files)
	<-ses.slots
	if err != nil {
		ses.forget(sb)
		close(sb.created)
		ses.finish(req, err)
		return
	}
	err = ses.conn.Send(launchapi.Reply{Seq: req.Seq, Create: result}, out...)
	packet.CloseAll(out)
	// Only now, so that hutchd never hears of the end of a sandbox before it has
	// heard of the sandbox.
	ses.server.wg.Go(func() { ses.watch(sb) })
	close(sb.created)
	if err != nil {
		// hutchd is gone, or the fds could not be sent (ETOOMANYREFS: too many of
		// this kernel uid are in flight). It does not know this sandbox.
		ses.finish(req, errors.Join(fmt.Errorf("hand over sandbox %s: %w", sb.id, err), ses.destroy(sb)))
	}
}

// watch reports the end of PID 1 to the hutchd that then lives; the next one hears
// of it when it adopts.
func (s *server) watch(sb *sandbox) {
	sb.status = s.children.wait(sb.pid, sb.pidfd)
	close(sb.exited)
	s.mu.Lock()
	ses := s.session
	s.mu.Unlock()
	if ses != nil {
		ses.reply(sb.exit())
	}
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
func (ses *session) finish(req launchapi.Request, err error) {
	if req.Seq == 0 {
		return
	}
	r := launchapi.Reply{Seq: req.Seq}
	if err != nil {
		r.Error = launchapi.FromError(err)
	}
	ses.reply(r)
}

// reply sends r. That it cannot be sent means that hutchd is gone, which the
// launcher sees for itself.
func (ses *session) reply(r launchapi.Reply) { _ = ses.conn.Send(r) }

// holds reports whether there is anything that a hutchd could take over.
func (s *server) holds() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sb := range s.sandboxes {
		if !sb.generic {
			return true
		}
	}
	return false
}

// close destroys all sandboxes, also those being created, and waits for every
// goroutine. The caller has left the session.
func (s *server) close() error {
	s.mu.Lock()
	s.closing = true
	all := make([]*sandbox, 0, len(s.sandboxes))
	for _, sb := range s.sandboxes {
		all = append(all, sb)
	}
	kept := s.kept
	s.kept = map[string]heldFile{}
	s.mu.Unlock()

	errs := make([]error, len(all))
	for i, sb := range all {
		s.wg.Go(func() { errs[i] = s.destroy(sb) })
	}
	s.wg.Wait()
	for _, p := range kept {
		p.close()
	}
	return errors.Join(append(errs, s.payload.close())...)
}
