package launch

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/launch/launchapi"
)

// maxHeld bounds the execs of one sandbox that are held, running or not.
const maxHeld = 8192

// execs are what is held of a sandbox's execs. hutch-launch alone writes their spools,
// so that no byte is lost or doubled when hutchd dies between reading and writing.
type execs struct {
	dir string // whose file system holds the spools

	mu     sync.Mutex
	closed bool
	byID   map[string]*heldExec
	free   []freeSpool    // of dropped execs, for the next
	wg     sync.WaitGroup // one for each stream
}

// heldExec is one exec; its fields change under execs.mu only.
type heldExec struct {
	launchapi.Exec
	streams []*stream  // of RoleSpool, in order
	kept    []*os.File // of RoleKeep, in order
	relays  relays     // of the other roles
}

// hold takes an exec and its files, which it owns from now on. The files it returns
// are the caller's: for each spool the file, for reading, and the eventfd.
func (x *execs) hold(exec *launchapi.Exec, files []*os.File) (out []*os.File, err error) {
	h := &heldExec{Exec: *exec}
	defer func() {
		if err != nil {
			packet.CloseAll(append(out, files...))
			h.close()
		}
	}()
	if len(files) != len(exec.Roles) {
		return nil, api.Errorf(api.Internal, "hold %s: %d fds for %d roles", exec.ID, len(files), len(exec.Roles))
	}
	for roles := exec.Roles; len(roles) > 0; {
		role, n := roles[0], 1
		if role == launchapi.RoleFrom || role == launchapi.RoleOut || mirrored(roles) {
			n = 2
		}
		if len(roles) < n {
			return out, api.Errorf(api.Internal, "hold %s: nothing follows role %q", exec.ID, role)
		}
		given, err := x.take(h, roles[:n], files[:n])
		files, roles = files[n:], roles[n:]
		out = append(out, given...)
		if err != nil {
			return out, fmt.Errorf("hold %s: %w", exec.ID, err)
		}
	}
	return out, x.enter(h)
}

// mirrored tells whether the first of roles is a terminal that is spooled and passed on.
func mirrored(roles []launchapi.Role) bool {
	return len(roles) > 1 && roles[0] == launchapi.RoleSpool && roles[1] == launchapi.RoleInto
}

// take does what the first of roles says; it owns files.
func (x *execs) take(h *heldExec, roles []launchapi.Role, files []*os.File) ([]*os.File, error) {
	switch roles[0] {
	case launchapi.RoleSpool:
		st, err := x.newStream(h.Size, files[0])
		if err != nil {
			packet.CloseAll(files[1:])
			return nil, err
		}
		h.streams = append(h.streams, st)
		if len(files) > 1 {
			if st.mirror, err = newMirror(files[1]); err != nil {
				return nil, err
			}
		}
		return st.share()
	case launchapi.RoleKeep:
		h.kept = append(h.kept, files[0])
		return nil, nil
	case launchapi.RoleFrom, launchapi.RoleOut:
		return nil, h.relays.add(roles[0], roles[1], files[0], files[1])
	}
	packet.CloseAll(files)
	return nil, api.Errorf(api.Unimplemented, "role %q", roles[0])
}

func (x *execs) enter(h *heldExec) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.closed:
		return api.Errorf(api.FailedPrecondition, "the sandbox is being removed")
	case x.byID[h.ID] != nil:
		return api.Errorf(api.AlreadyExists, "%s is held already", h.ID)
	case len(x.byID) >= maxHeld:
		return api.Errorf(api.ResourceExhausted, "%d commands of the sandbox run or are kept", len(x.byID)).
			WithHint("remove the sandbox, or forget ended commands")
	}
	if err := h.relays.start(); err != nil {
		return err
	}
	x.byID[h.ID] = h
	for _, st := range h.streams {
		x.wg.Go(st.run)
		if st.mirror != nil {
			x.wg.Go(st.mirror.run)
		}
	}
	return nil
}

// handOver gives every exec to send, with files that stay the callee's for the call.
func (x *execs) handOver(send func(launchapi.Exec, []*os.File) error) error {
	x.mu.Lock()
	all := make([]*heldExec, 0, len(x.byID))
	for _, h := range x.byID {
		all = append(all, h)
	}
	x.mu.Unlock()
	for _, h := range all {
		if err := x.handOverOne(h, send); err != nil {
			return err
		}
	}
	return nil
}

func (x *execs) handOverOne(h *heldExec, send func(launchapi.Exec, []*os.File) error) error {
	x.mu.Lock()
	exec, kept := h.Exec, h.kept
	x.mu.Unlock()
	var files, own []*os.File
	defer func() { packet.CloseAll(own) }()
	streams := h.streams
	for _, role := range exec.Roles {
		switch role {
		case launchapi.RoleKeep:
			files, kept = append(files, kept[0]), kept[1:]
		case launchapi.RoleSpool:
			given, err := streams[0].share()
			if err != nil {
				return err
			}
			own, files, streams = append(own, given...), append(files, given...), streams[1:]
		}
	}
	return send(exec, files)
}

// end notes how an exec has ended. One that was dropped meanwhile needs no note.
func (x *execs) end(id string, end json.RawMessage) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if h := x.byID[id]; h != nil {
		h.End = end
		h.loosen()
	}
}

// note replaces what the next hutchd is told about an exec.
func (x *execs) note(id string, note json.RawMessage) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if h := x.byID[id]; h != nil {
		h.Note = note
	}
}

// loosen closes the files of an exec that are only kept.
func (x *execs) loosen(id string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if h := x.byID[id]; h != nil {
		h.loosen()
	}
}

// loosen is guarded by execs.mu.
func (h *heldExec) loosen() {
	packet.CloseAll(h.kept)
	h.kept = nil
	h.Roles = slices.DeleteFunc(slices.Clone(h.Roles), func(r launchapi.Role) bool { return r == launchapi.RoleKeep })
}

// flush spools, or passes on, what an exec has written. What is written later, by its
// left-over background processes say, is spooled as it comes. It waits for callers that
// do not read; drop ends that.
func (x *execs) flush(id string) ([]launchapi.Spooled, error) {
	x.mu.Lock()
	h := x.byID[id]
	x.mu.Unlock()
	if h == nil {
		return nil, api.Errorf(api.NotFound, "%s is not held", id)
	}
	res := make([]launchapi.Spooled, 0, len(h.streams))
	err := h.relays.finish()
	for _, st := range h.streams {
		res = append(res, st.flush())
		if st.mirror != nil {
			st.mirror.finish()
		}
	}
	return res, err
}

// drop forgets an exec, which the caller must close. A process that still writes gets
// SIGPIPE then.
func (x *execs) drop(id string) *heldExec {
	x.mu.Lock()
	defer x.mu.Unlock()
	h := x.byID[id]
	delete(x.byID, id)
	return h
}

func (h *heldExec) close() {
	for _, st := range h.streams {
		st.close()
	}
	h.relays.close()
	packet.CloseAll(h.kept) // nil when it was loosened
}

// close stores what the pipes still hold, drops everything and waits for the
// goroutines. The sandbox's processes are dead.
func (x *execs) close() {
	x.mu.Lock()
	x.closed = true
	all, free := x.byID, x.free
	x.byID, x.free = nil, nil
	x.mu.Unlock()
	for _, f := range free {
		_ = f.w.Close()
	}
	for _, h := range all {
		for _, st := range h.streams {
			st.flush()
		}
		h.close()
	}
	x.wg.Wait()
}

// hold handles OpHold.
func (ses *session) hold(req launchapi.Request, sb *sandbox, files []*os.File) {
	<-sb.created
	if sb.undo == nil {
		packet.CloseAll(files)
		ses.finish(req, api.Errorf(api.NotFound, "sandbox %s does not exist", sb.id))
		return
	}
	out, err := sb.execs.hold(req.Exec, files)
	if err != nil || req.Seq == 0 {
		packet.CloseAll(out)
		ses.finish(req, err)
		return
	}
	if err := ses.conn.Send(launchapi.Reply{Seq: req.Seq}, out...); err != nil && !errors.Is(err, io.EOF) {
		if h := sb.execs.drop(req.Exec.ID); h != nil {
			h.close()
		}
		ses.finish(req, fmt.Errorf("hand over the streams of %s: %w", req.Exec.ID, err))
	}
	packet.CloseAll(out)
}

// flush handles OpFlush.
func (ses *session) flush(req launchapi.Request, sb *sandbox) {
	spooled, err := sb.execs.flush(req.Exec.ID)
	if err != nil {
		ses.finish(req, err)
		return
	}
	ses.reply(launchapi.Reply{Seq: req.Seq, Spooled: spooled})
}
