package exec

import (
	"context"
	"crypto/rand"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/hutch-sh/hutch/internal/audit"
	"github.com/hutch-sh/hutch/runtime/api"
)

// maxEnded is how many ended execs of one sandbox can still be read.
const maxEnded = 64

// Table are the commands of all sandboxes. Its methods may be called from any goroutine.
type Table struct {
	cfg Config

	// dropping is held while hutch-launch is told to drop what was answered, so that its id
	// is free for who waits for that. It is taken before mu.
	dropping sync.Mutex

	mu       sync.Mutex               // guards what follows, and is taken before any Set.mu
	execs    map[string]*Exec         // also those that ended and are kept
	taken    map[string]int           // ids of execs that are being started or forgotten
	starting map[string]chan struct{} // of those that are being started: closed then
	answered map[string]*Exec         // forgotten but for their output at hutch-launch
	running  int
	lastBusy time.Time // when one has ended last
}

// New makes one without commands.
func New(cfg Config) *Table {
	return &Table{cfg: cfg, execs: map[string]*Exec{}, taken: map[string]int{}, starting: map[string]chan struct{}{},
		answered: map[string]*Exec{}}
}

// newID makes a short random id: 60 bits in 12 letters.
func newID(prefix string) string { return prefix + strings.ToLower(rand.Text()[:12]) }

// Counts is how many commands run, and when one has ended last.
func (t *Table) Counts() (running int, last time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.running, t.lastBusy
}

// Left counts what there is of commands, for who looks whether something was left.
func (t *Table) Left() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return map[string]int{"execs": len(t.execs), "taken ids": len(t.taken), "starting": len(t.starting),
		"running": t.running, "answered": len(t.answered)}
}

// Find finds a command by its id: one that runs, or has ended and is kept.
func (t *Table) Find(id string) (*Exec, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r, ok := t.execs[id]; ok {
		return r, nil
	}
	return nil, errNoExec(id)
}

func errNoExec(id string) error {
	return api.Errorf(api.NotFound, "no exec %q", id).
		WithHint("hutch rpc exec.list lists those of a sandbox that run or ended lately")
}

// live finds an exec that runs.
func (t *Table) live(id string) (*Exec, error) {
	r, err := t.Find(id)
	if err != nil {
		return nil, err
	}
	if isClosed(r.done) {
		return nil, api.Errorf(api.FailedPrecondition, "exec %s has ended", id).WithHint("exec.wait gives its result")
	}
	return r, nil
}

// liveSoon is live, and waits for an exec that is being started: its command may have been heard of before this process
// knows that it runs.
func (t *Table) liveSoon(ctx context.Context, id string) (*Exec, error) {
	t.mu.Lock()
	starting := t.starting[id]
	t.mu.Unlock()
	if starting != nil {
		select {
		case <-starting:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return t.live(id)
}

// take reserves the id of an exec that is being started; "" makes one.
func (t *Table) take(id string) (string, error) {
	if id == "" {
		id = newID("ex_")
	} else {
		t.dropAnswered(id) // its caller has the result, or would not use the id again
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.execs[id]; ok || t.taken[id] > 0 {
		return "", api.Errorf(api.AlreadyExists, "exec %s exists", id).WithField("exec").
			WithHint("choose a new id for each command")
	}
	t.taken[id]++
	t.starting[id] = make(chan struct{})
	return id, nil
}

// startEnds ends what take has begun: t.execs has the id then, or nobody.
func (t *Table) startEnds(id string) {
	t.mu.Lock()
	close(t.starting[id])
	delete(t.starting, id)
	t.mu.Unlock()
	t.untake(id)
}

func (t *Table) untake(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.taken[id]--; t.taken[id] == 0 {
		delete(t.taken, id)
	}
}

// add enters an exec that runs. It reports false when the sandbox is being removed; nobody finds one that came when all
// were forgotten.
func (t *Table) add(r *Exec) bool {
	t.mu.Lock()
	t.running++
	listed := r.set.add(r)
	if listed {
		t.execs[r.id] = r
	}
	t.mu.Unlock()
	if !r.isKept() {
		r.s.BeginCall()
	}
	if !listed {
		r.forgetOutput()
	}
	t.tellEarly(r.s)
	r.s.Started()
	return listed && r.s.Here()
}

// end moves an exec from those that run to those that are kept, and forgets the oldest of them.
func (t *Table) end(r *Exec) {
	t.mu.Lock()
	t.running--
	t.lastBusy = time.Now()
	t.mu.Unlock()
	if old := r.set.end(r); old != nil {
		t.forget(old)
	}
	if r.isKept() { // its end is use as well
		r.s.BeginCall()
	}
	r.s.EndCall()
}

// forgetOutput releases what is kept of an exec that nobody finds any more.
func (r *Exec) forgetOutput() {
	close(r.forgotten)
	r.io.Forget()
}

// forget drops an ended exec and its output. Its id stays taken until hutch-launch
// was told: what is dropped must not be the next exec's.
func (t *Table) forget(r *Exec) {
	if t.unlist(r, func() { t.taken[r.id]++ }) {
		defer t.untake(r.id)
		t.dropNow(r)
	}
}

// unlist makes an ended exec unknown and reports whether it was known: then it has called
// instead, holding t.mu.
func (t *Table) unlist(r *Exec, instead func()) bool {
	t.mu.Lock()
	known := t.execs[r.id] == r
	if known {
		delete(t.execs, r.id)
		instead()
	}
	t.mu.Unlock()
	if !known {
		return false
	}
	r.set.drop(r)
	r.forgetOutput()
	return true
}

// forgetAnswered drops an exec whose caller gets all of its output, unless somebody is
// attached to it, who may not be through yet. hutch-launch keeps the output until the caller
// has it: hutchd may be killed before.
func (t *Table) forgetAnswered(r *Exec, sent func(func())) {
	switch {
	case r.followed.Load():
	case sent == nil:
		t.forget(r)
	case t.unlist(r, func() { t.answered[r.id] = r }):
		sent(func() { t.dropAnswered(r.id) })
	}
}

// dropAnswered makes hutch-launch forget the output of an exec that was answered; the id
// is free when it returns.
func (t *Table) dropAnswered(id string) {
	t.dropping.Lock()
	defer t.dropping.Unlock()
	t.mu.Lock()
	r, ok := t.answered[id]
	delete(t.answered, id)
	t.mu.Unlock()
	if ok {
		t.dropNow(r)
	}
}

// dropNow makes hutch-launch forget an exec's output.
func (t *Table) dropNow(r *Exec) {
	if err := t.cfg.Launcher.Drop(r.s.ID(), r.id); err != nil {
		t.cfg.Log.Debug("drop output", "exec", r.id, "err", err)
	}
}

// Forget ends and drops all execs of a sandbox whose PID 1 is gone, and waits for that; what comes later is in no list.
// What hutch-launch has kept of them goes with the sandbox.
func (t *Table) Forget(set *Set) {
	set.close()
	set.End()
	ended := set.takeEnded()
	t.mu.Lock()
	maps.DeleteFunc(t.answered, func(_ string, r *Exec) bool { return r.set == set })
	known := ended[:0]
	for _, r := range ended {
		if t.execs[r.id] == r {
			delete(t.execs, r.id)
			known = append(known, r)
		}
	}
	t.mu.Unlock()
	for _, r := range known {
		r.forgetOutput()
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// emit tells subscribers of events, and the audit log, which has the same word for it.
func (t *Table) emit(kind api.EventKind, s Sandbox, exec string, data any) {
	t.cfg.Events.Emit(kind, s.ID(), exec, data)
	t.audit(context.Background(), s, exec, api.AuditKind(kind), data, 0)
}

// audit notes what happened in s's log, by whose call as ctx knows; data holds on to so many bytes.
func (t *Table) audit(ctx context.Context, s Sandbox, exec string, kind api.AuditKind, data any, size int) {
	_, own := s.Env()
	t.cfg.Audit.Note(audit.Entry{
		Sandbox: s.ID(), Exec: exec, By: audit.Caller(ctx), Kind: kind, Data: data,
		Secrets: []map[string]string{own}, Size: int64(size),
	})
}
