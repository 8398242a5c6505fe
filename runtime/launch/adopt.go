package launch

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/runtime/launch/launchapi"
)

// keep holds an fd of hutchd's own under key, in place of the one before; without
// one it only forgets that.
func (s *server) keep(key string, files []*os.File) {
	next, err := heldFile(-1), error(nil)
	if len(files) == 1 {
		next, err = hold(files[0])
		files = nil
	}
	packet.CloseAll(files)
	if err != nil {
		fmt.Fprintf(os.Stderr, "hutch-launch: %s: %v\n", key, err)
	}
	s.mu.Lock()
	old, had := s.kept[key]
	delete(s.kept, key)
	if next >= 0 && !s.closing {
		s.kept[key], next = next, -1
	}
	s.mu.Unlock()
	if had {
		old.close()
	}
	if next >= 0 {
		next.close()
	}
}

// adopt gives a new hutchd all that is held. The requests of the one before are over
// (see leave), so nothing of it is still coming or going.
func (ses *session) adopt() error {
	ses.mu.Lock()
	kept := maps.Clone(ses.kept)
	all := slices.SortedFunc(maps.Values(ses.sandboxes), func(a, b *sandbox) int { return cmp.Compare(a.id, b.id) })
	ses.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(kept)) {
		if err := ses.handOverKept(key, kept[key]); err != nil {
			return fmt.Errorf("hand over %s: %w", key, err)
		}
	}
	for _, sb := range all {
		if err := ses.handOver(sb); err != nil {
			return fmt.Errorf("hand over sandbox %s: %w", sb.id, err)
		}
	}
	return nil
}

func (ses *session) handOverKept(key string, p heldFile) error {
	f, err := p.file()
	if err != nil {
		return err
	}
	defer f.Close()
	return ses.conn.Send(adopted(launchapi.Adopted{Key: key}), f)
}

func adopted(a launchapi.Adopted) launchapi.Reply { return launchapi.Reply{Adopted: &a} }

func (ses *session) handOver(sb *sandbox) error {
	<-sb.created
	if sb.undo == nil {
		return nil // its creation has failed
	}
	what := launchapi.Adopted{Sandbox: &launchapi.AdoptedSandbox{ID: sb.id, PID: sb.pid}}
	if err := ses.conn.Send(adopted(what), sb.guest, sb.pidfd); err != nil {
		return err
	}
	if err := sb.execs.handOver(func(e launchapi.Exec, files []*os.File) error {
		return ses.conn.Send(adopted(launchapi.Adopted{Exec: &launchapi.AdoptedExec{Sandbox: sb.id, Exec: e}}),
			files...)
	}); err != nil {
		return err
	}
	select {
	case <-sb.exited:
		return ses.conn.Send(sb.exit())
	default: // watch tells when
		return nil
	}
}

// exit is the event about the end of PID 1.
func (sb *sandbox) exit() launchapi.Reply {
	return launchapi.Reply{Exited: &launchapi.Exited{ID: sb.id, PID: sb.pid, Status: int(sb.status)}}
}
