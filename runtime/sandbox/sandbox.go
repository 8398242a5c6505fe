package sandbox

import (
	"os"
	"sync"
	"time"

	"github.com/hutch-sh/hutch/runtime/admission"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/egress"
	"github.com/hutch-sh/hutch/runtime/exec"
	"github.com/hutch-sh/hutch/runtime/files"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
	"github.com/hutch-sh/hutch/runtime/history"
	"github.com/hutch-sh/hutch/runtime/keep"
	"github.com/hutch-sh/hutch/runtime/meter"
	"github.com/hutch-sh/hutch/runtime/ports"
	"github.com/hutch-sh/hutch/runtime/refusals"
	"github.com/hutch-sh/hutch/runtime/servers"
	"github.com/hutch-sh/hutch/runtime/spec"
	"github.com/hutch-sh/hutch/runtime/workspace"
)

// Sandbox is one sandbox of this daemon. Its name, its conn and the Owner of its spec are written with Manager.mu and
// mu held, so that who reads them needs one of the two; the rest of the spec stays as it is.
type Sandbox struct {
	id    string
	name  string
	dir   string // <state>/daemons/<daemon>/sandboxes/<id>
	spec  api.Spec
	root  *spec.Root
	nproc uint64 // RLIMIT_NPROC of its files workers
	// cgroup is the path of its cgroup below the mount of each hierarchy, "" with
	// none; grouped says that execs have theirs below it.
	cgroup  string
	grouped bool
	user    uint32 // who created it, as the monitor saw; quotas are the user's
	// templated is what its template says beside the spec; nil of most.
	templated *templated
	unready   bool   // it is being built, or what its template starts is not ready; mu guards it
	pooled    pooled // Manager.mu guards it once the sandbox waits
	conn      uint64 // the creating connection, when Spec.Owner ties the sandbox to it

	guest *guestapi.Client
	pidfd *os.File
	// exited is closed when PID 1 is gone.
	exited chan struct{}
	// destroy undoes all that create did, in reverse. It belongs to Manager.Remove.
	destroy func() error
	// leases are those parts of destroy that come before the reply to a removal.
	leases []func() error

	// changed tells of a new state. It is called in the order of the changes.
	changed func(to api.State, reason string)

	files   files.Workers
	gate    *admission.Gate // where who starts something enters
	execs   *exec.Set       // its commands
	meter   *meter.Meter    // of what it uses, and of that may
	folders workspace.Set   // that it was given
	net     Network         // nil in mode none
	plain   Namespace       // in mode none, of a hutchd before; what this one has made is its creation's to undo
	// enforced is the policy in the kernel.
	enforced Enforced
	narrowed egress.Set      // of execs with a network policy of their own
	seen     refusals.Ledger // of what it wanted to reach
	ports    ports.Set       // that the host reaches
	servers  servers.Watch

	// turn keeps stop, start and removal apart. stopped says that it was stopped: its folder is on the shelf, lock
	// the lock of it and release gives that back.
	turn    admission.Turn
	stopped bool
	lock    *os.File
	release func() error
	kept    keep.Files  // what its files are made of beside its upper folders; turn guards it
	history history.Set // what they were before the last calls; turn guards it

	// saving is held while the record is written, and guards struck: it is gone for good.
	saving sync.Mutex
	struck bool

	// updates is the turn to change its limits, or what it may reach.
	updates sync.Mutex

	// orphaned says that the connection it is tied to went with a hutchd before, and
	// that its creator may come back; Manager.mu guards it, and conn then.
	orphaned bool

	mu      sync.Mutex // guards what follows; never held over a call that blocks
	record  api.Sandbox
	idle    *time.Timer
	ttl     *time.Timer // fires at record.Expires
	claim   *time.Timer // fires when nobody has claimed it
	exposed []api.Port  // as record.json has them
	// workersGroup is the cgroup of files workers, "" when there is none yet.
	workersGroup string

	calls int // under way: of fs.* and shell.run, and commands, but for those that may be idle
}

// transitions lists where a sandbox may go from each state.
var transitions = map[api.State][]api.State{
	api.Creating: {api.Running, api.Waiting, api.Failed},
	api.Waiting:  {api.Running, api.Stopped, api.Failed},
	// Waiting of a pool's once all that its template starts is ready
	api.Running: {api.Paused, api.Waiting, api.Stopped, api.Failed},
	// and by keepStopped and start, which make another Sandbox of it, Stopped <-> Creating
	api.Paused: {api.Running, api.Stopped, api.Failed},
}

// transition is the only place where a state changes. It reports whether the
// change was allowed; a refused one changes nothing.
func (s *Sandbox) transition(to api.State, reason string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, allowed := range transitions[s.record.State] {
		if allowed == to {
			s.record.State = to
			s.record.Reason = reason
			if s.changed != nil {
				s.changed(to, reason)
			}
			if to == api.Stopped || to == api.Failed {
				s.record.PID = 0
			}
			return true
		}
	}
	return false
}

// Record is a copy of the sandbox's record.
func (s *Sandbox) Record() api.Sandbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record
}

// note changes the record. Its creation, which alone does until it is admitted, may read it without mu.
func (s *Sandbox) note(change func(r *api.Sandbox)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.record)
}

func (s *Sandbox) setPID(pid int) { s.note(func(r *api.Sandbox) { r.PID = pid }) }

// isPID1 says whether pid may be its PID 1, that is not the one before that could not be claimed.
func (s *Sandbox) isPID1(pid int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record.State != api.Creating && (s.record.PID == 0 || s.record.PID == pid)
}

// limits are those in force.
func (s *Sandbox) limits() api.Limits {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record.Limits
}

func (s *Sandbox) setLimits(l api.Limits) { s.note(func(r *api.Sandbox) { r.Limits = l }) }

// specNow is a copy of the spec.
func (s *Sandbox) specNow() api.Spec {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.spec
}

// state is the current state.
func (s *Sandbox) state() api.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record.State
}

// now is the record with what its background command is doing.
func (s *Sandbox) now() api.Sandbox {
	rec := s.Record()
	rec.Background = s.execs.Background()
	return rec
}

// awaitEnd waits until the state tells that PID 1 is gone, which the channel told already.
func (s *Sandbox) awaitEnd() {
	select {
	case <-s.exited:
	case <-time.After(2 * exitGrace): // watchChannel ends one that does not tell after one
	}
}

func (s *Sandbox) markExited() {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.exited:
	default:
		close(s.exited)
	}
}
