package guest

import "github.com/hutch-sh/hutch/runtime/guest/guestapi"

// maxUnacked bounds the ends that are remembered. hutchd acknowledges them with its next
// execs, so there are about as many as it has in flight.
const maxUnacked = 2 * maxExecs

// postEnd reports how an exec failed or ended, and remembers it until hutchd has it on
// record. The caller holds s.mu.
func (s *server) postEnd(e *execution, ev guestapi.Event) {
	if e.worker {
		s.ch.post(ev)
		return
	}
	if len(s.unacked) >= maxUnacked {
		for id := range s.unacked { // any: this is not a hutchd that works
			delete(s.unacked, id)
			break
		}
	}
	s.unacked[ev.Exec] = ev
	s.ch.post(ev)
}

// acknowledge forgets ends that are on record. The caller holds s.mu.
func (s *server) acknowledge(ids []uint64) {
	for _, id := range ids {
		delete(s.unacked, id)
	}
}

// list tells a new hutchd of every exec that the one before may not have put on record.
// Events that were queued for that one come before, so some come twice.
func (s *server) list(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, e := range s.execs {
		switch {
		case e.announced: // below, unless it is on record
		case e.started:
			s.ch.post(guestapi.Event{Ev: guestapi.EvStarted, Exec: id, PID: e.pid})
		default:
			s.ch.post(guestapi.Event{Ev: guestapi.EvPending, Exec: id})
		}
	}
	for _, ev := range s.unacked {
		s.ch.post(ev)
	}
	s.ch.post(guestapi.Event{Ev: guestapi.EvListed, Exec: id})
}
