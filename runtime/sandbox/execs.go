package sandbox

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/excerpt"
)

// keptExecs is how many ended execs of one sandbox can still be read.
const keptExecs = 64

// addExec enters an exec that runs. It reports false when the sandbox is being
// removed.
func (m *Manager) addExec(r *running) bool {
	m.mu.Lock()
	m.execs[r.id] = r
	m.running++
	_, here := m.byID[r.s.id]
	m.mu.Unlock()
	r.s.mu.Lock()
	for _, other := range r.s.execs {
		r.company, other.company = true, true
	}
	r.s.execs[r.id] = r
	delete(r.s.starting, r)
	if r.s.idle != nil {
		r.s.idle.Stop()
	}
	r.s.mu.Unlock()
	m.tellEarly(r.s)
	r.s.wakeMeter()
	return here
}

// endExec moves an exec from those that run to those that are kept, and forgets
// the oldest of them.
func (m *Manager) endExec(r *running) {
	m.mu.Lock()
	m.running--
	m.lastBusy = time.Now()
	m.mu.Unlock()
	r.s.mu.Lock()
	delete(r.s.execs, r.id)
	r.s.ended = append(r.s.ended, r)
	var old *running
	if len(r.s.ended) > keptExecs {
		old = r.s.ended[0]
		r.s.ended = r.s.ended[1:]
	}
	r.s.mu.Unlock()
	if old != nil {
		m.forgetExec(old)
	}
	r.s.rearmIdle(m)
}

// forgetExec drops an ended exec and its output. Its id stays taken until hutch-launch
// was told: what is dropped must not be the next exec's.
func (m *Manager) forgetExec(r *running) {
	if m.unlist(r, func() { m.taken[r.id]++ }) {
		defer m.untake(r.id)
		m.dropNow(r)
	}
}

// unlist makes an ended exec unknown and reports whether it was known: then it has called
// instead, holding m.mu.
func (m *Manager) unlist(r *running, instead func()) bool {
	m.mu.Lock()
	_, known := m.execs[r.id]
	delete(m.execs, r.id)
	delete(m.shells, r.shell)
	if known {
		instead()
	}
	m.mu.Unlock()
	if !known {
		return false
	}
	r.s.mu.Lock()
	r.s.ended = slices.DeleteFunc(r.s.ended, func(o *running) bool { return o == r })
	r.s.mu.Unlock()
	r.io.forget()
	return true
}

// take reserves the id of an exec that is being started; "" makes one.
func (m *Manager) take(id string) (string, error) {
	if id == "" {
		id = newID("ex_")
	} else {
		m.dropAnswered(id) // its caller has the result, or would not use the id again
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.execs[id]; ok || m.taken[id] > 0 {
		return "", api.Errorf(api.AlreadyExists, "exec %s exists", id).WithField("exec").
			WithHint("choose a new id for each command")
	}
	m.taken[id]++
	m.starting[id] = make(chan struct{})
	return id, nil
}

// startEnds ends what take has begun: m.execs has the id then, or nobody.
func (m *Manager) startEnds(id string) {
	m.mu.Lock()
	close(m.starting[id])
	delete(m.starting, id)
	m.mu.Unlock()
	m.untake(id)
}

// liveSoon is live, and waits for an exec that is being started: its command may have been heard of before this process
// knows that it runs.
func (m *Manager) liveSoon(ctx context.Context, id string) (*running, error) {
	m.mu.Lock()
	starting := m.starting[id]
	m.mu.Unlock()
	if starting != nil {
		select {
		case <-starting:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return m.live(id)
}

func (m *Manager) untake(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.taken[id]--; m.taken[id] == 0 {
		delete(m.taken, id)
	}
}

// dropNow makes hutch-launch forget an exec's output.
func (m *Manager) dropNow(r *running) {
	if err := m.cfg.Launcher.Drop(r.s.id, r.id); err != nil {
		m.cfg.Logger.Debug("drop output", "exec", r.id, "err", err)
	}
}

// forgetExecs drops all execs of a sandbox that has ended.
func (m *Manager) forgetExecs(s *Sandbox) {
	s.endExecs()
	s.mu.Lock()
	ended := s.ended
	s.ended = nil
	s.mu.Unlock()
	m.mu.Lock()
	maps.DeleteFunc(m.answered, func(_ string, r *running) bool { return r.s == s })
	m.mu.Unlock()
	for _, r := range ended {
		m.mu.Lock()
		delete(m.execs, r.id)
		delete(m.shells, r.shell)
		m.mu.Unlock()
		r.io.forget()
	}
}

func (m *Manager) findExec(id string) (*running, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r, ok := m.execs[id]; ok {
		return r, nil
	}
	return nil, errNoExec(id)
}

func errNoExec(id string) error {
	return api.Errorf(api.NotFound, "no exec %q", id).
		WithHint("hutch rpc exec.list lists those of a sandbox that run or ended lately")
}

// keepOutput keeps what the exec has written readable until done is called, which must be soon after its end.
func (r *running) keepOutput() (done func(), err error) {
	r.io.reading.RLock()
	if r.io.forgotten {
		r.io.reading.RUnlock()
		return nil, errNoExec(r.id)
	}
	return r.io.reading.RUnlock, nil
}

// live finds an exec that runs.
func (m *Manager) live(id string) (*running, error) {
	r, err := m.findExec(id)
	if err != nil {
		return nil, err
	}
	select {
	case <-r.done:
		return nil, api.Errorf(api.FailedPrecondition, "exec %s has ended", id).WithHint("exec.wait gives its result")
	default:
		return r, nil
	}
}

// Wait waits for the end of an exec; it never kills.
func (m *Manager) Wait(ctx context.Context, p api.WaitParams) (api.ExecResult, error) {
	r, err := m.findExec(p.Exec)
	if err != nil {
		return api.ExecResult{}, err
	}
	done, err := r.keepOutput()
	if err != nil {
		return api.ExecResult{}, err
	}
	defer done()
	if p.WaitS != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, seconds(*p.WaitS), errStillRuns)
		defer cancel()
	}
	select {
	case <-r.done:
		return r.result(p.OutputBytes, p.Encoding)
	default:
	}
	select {
	case <-r.done:
		return r.result(p.OutputBytes, p.Encoding)
	case <-ctx.Done():
		return api.ExecResult{}, context.Cause(ctx)
	}
}

var errStillRuns = api.Errorf(api.DeadlineExceeded, "the exec still runs").WithHint("wait again; exec.kill ends it")

// Read reads output of an exec, also after its end.
func (m *Manager) Read(ctx context.Context, p api.ReadParams) (api.Chunk, error) {
	if err := p.Validate(); err != nil {
		return api.Chunk{}, err
	}
	r, err := m.findExec(p.Exec)
	if err != nil {
		return api.Chunk{}, err
	}
	if len(r.io.streams) == 0 {
		return api.Chunk{}, nothingKept(p.Exec)
	}
	done, err := r.keepOutput()
	if err != nil {
		return api.Chunk{}, err
	}
	defer done()
	st := r.io.streams[0]
	if p.Stream == api.Stderr {
		st = r.io.streams[1]
	}
	off := p.Offset
	if off < 0 {
		total, _ := st.known()
		off = max(0, total+off)
	}
	if p.WaitS > 0 {
		waiting, cancel := context.WithTimeout(ctx, seconds(p.WaitS))
		st.awaitByte(waiting, off, r.done)
		cancel()
	}
	limit := p.Limit
	if limit == 0 {
		limit = api.DefaultReadBytes
	}
	return r.chunk(st, off, limit, p.Encoding)
}

// chunk reads and encodes one piece of a stream.
func (r *running) chunk(st *stream, off, limit int64, want api.Encoding) (api.Chunk, error) {
	ended := false
	select {
	case <-r.done: // before the read: what was written before the end is then seen
		ended = true
	default:
	}
	data, start, err := st.read(off, limit)
	if err != nil {
		return api.Chunk{}, err
	}
	total, _ := st.known()
	next := start + int64(len(data))
	text, enc, cut := excerpt.Encode(data, want, ended && next == total)
	next -= int64(cut)
	return api.Chunk{Offset: start, Next: next, Data: text, Encoding: enc, EOF: ended && next >= total}, nil
}

// KillExec kills an exec and everything it started, and returns its result. Of an
// exec that has ended it kills what that left behind.
func (m *Manager) KillExec(ctx context.Context, p api.ExecRef) (api.ExecResult, error) {
	r, err := m.findExec(p.Exec)
	if err != nil {
		return api.ExecResult{}, err
	}
	select {
	case <-r.done:
		m.audit(ctx, r.s, r.id, api.AuditKill, api.AuditSent{}, 0)
		left, err := m.endLeft(r)
		if err != nil {
			return api.ExecResult{}, err
		}
		res, err := m.Wait(ctx, api.WaitParams{Exec: p.Exec})
		res.Killed = r.merge(res.Killed, left)
		return res, err
	default:
	}
	m.audit(ctx, r.s, r.id, api.AuditKill, api.AuditSent{}, 0)
	r.stop(errKilled)
	return m.Wait(ctx, api.WaitParams{Exec: p.Exec})
}

// Execs lists the execs of a sandbox that run or ended lately, oldest first.
func (m *Manager) Execs(_ context.Context, p api.SandboxParams) (api.Execs, error) {
	s, err := m.find(p.Sandbox)
	if err != nil {
		return api.Execs{}, err
	}
	all := s.known()
	list := make([]api.Exec, 0, len(all))
	for _, r := range all {
		list = append(list, r.record())
	}
	return api.Execs{Execs: list}, nil
}

// known are the execs that run or ended lately, oldest first.
func (s *Sandbox) known() []*running {
	s.mu.Lock()
	all := slices.Clone(s.ended)
	for _, r := range s.execs {
		all = append(all, r)
	}
	s.mu.Unlock()
	slices.SortFunc(all, func(a, b *running) int { return cmp.Or(a.start.Compare(b.start), cmp.Compare(a.id, b.id)) })
	return all
}

// now is the record with what its background command is doing.
func (s *Sandbox) now() api.Sandbox {
	rec := s.Record()
	for _, r := range slices.Backward(s.known()) {
		if ex := r.record(); ex.Background && !ex.Kept {
			rec.Background = &ex
			break
		}
	}
	return rec
}

// Exec is the record of one exec.
func (m *Manager) Exec(p api.ExecRef) (api.Exec, error) {
	r, err := m.findExec(p.Exec)
	if err != nil {
		return api.Exec{}, err
	}
	return r.record(), nil
}

func (r *running) record() api.Exec {
	rec := api.Exec{
		Exec: r.id, Sandbox: r.s.id, State: api.ExecRunning, Argv: r.params.Argv, Command: r.params.Command,
		Background: r.params.Background, Kept: r.kept != "" || r.shell != "", TTY: r.params.Pty != nil, PID: r.exec.PID,
		Started: r.start.UTC().Truncate(time.Millisecond),
	}
	if len(r.io.streams) == 2 {
		rec.StdoutBytes, _ = r.io.streams[0].known()
		rec.StderrBytes, _ = r.io.streams[1].known()
	}
	select {
	case <-r.done:
		o := r.outcome()
		rec.State, rec.ExitCode, rec.Verdict, rec.DurationMS = api.ExecExited, &o.ExitCode, o.Verdict, o.DurationMS
	default:
	}
	return rec
}

// Signal sends a signal to an exec's leader.
func (m *Manager) Signal(ctx context.Context, p api.SignalParams) error {
	r, err := m.liveSoon(ctx, p.Exec)
	if err != nil {
		return err
	}
	sig, err := parseSignal(p.Signal)
	if err != nil {
		return err
	}
	err = r.exec.Signal(sig)
	sent := api.AuditSent{Signal: unix.SignalName(sig)}
	if sent.Signal == "" {
		sent.Signal = strconv.Itoa(int(sig)) // a real-time one
	}
	if err != nil {
		sent.Error = err.Error()
	}
	m.audit(ctx, r.s, r.id, api.AuditSignal, sent, 0)
	return err
}

// Resize sets the size of an exec's terminal.
func (m *Manager) Resize(_ context.Context, p api.ResizeParams) error {
	r, err := m.live(p.Exec)
	if err != nil {
		return err
	}
	if r.io.master == nil {
		return api.Errorf(api.FailedPrecondition, "exec %s has no terminal", p.Exec).WithHint("start it with pty")
	}
	return setSize(r.io.master, p.Pty)
}
