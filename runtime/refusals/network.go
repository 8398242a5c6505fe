package refusals

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Denied records that a sandbox was refused a target, and reports it: to subscribers of events and the execs that run.
// Of a sandbox that is just being taken over or removed there is an event and no more.
func (f *Refusals) Denied(sandbox string, e api.DeniedEvent) {
	s, listed := f.cfg.Sandboxes.Listed(sandbox)
	e.Count, e.Probe = max(1, e.Count), probe(&e.NetTarget)
	if !listed {
		f.cfg.Events.Emit(api.EventNetworkDenied, sandbox, "", e)
		return
	}
	d := api.Denial{
		Kind: api.KindNet, Target: e.Where(), NetTarget: e.NetTarget, Rule: e.Rule, Why: e.Why,
		HowToAllow: e.HowToAllow, Count: e.Count, Time: now(), Refusal: e.Refusal, Probe: e.Probe,
	}
	d.Exec = s.Attribute(d, e.Cgroup)
	s.Audit(api.AuditDenied, d.Exec, e)
	f.learn(s, d.NetTarget)
	s.Ledger().Enter(d, e.Untold, func(count, untold int64) {
		e.Count, e.Untold = count, untold
		f.cfg.Events.Emit(api.EventNetworkDenied, sandbox, d.Exec, e)
	})
}

// Failed records that a connection of a sandbox failed outside of it, and reports it as Denied does.
func (f *Refusals) Failed(sandbox string, e api.FailedEvent) {
	s, listed := f.cfg.Sandboxes.Listed(sandbox)
	e.Count = max(1, e.Count)
	if !listed {
		f.cfg.Events.Emit(api.EventNetworkFailed, sandbox, "", e)
		return
	}
	d := api.Denial{
		Kind: Failed, Target: e.Where(), NetTarget: e.NetTarget, Why: e.Why, HowToAllow: e.Hint,
		Count: e.Count, Time: now(), Refusal: api.Refusal{Errno: e.Errno},
	}
	d.Exec = s.Attribute(d, 0)
	s.Audit(api.AuditFailed, d.Exec, e)
	s.Ledger().Enter(d, e.Untold, func(count, untold int64) {
		e.Count, e.Untold = count, untold
		f.cfg.Events.Emit(api.EventNetworkFailed, sandbox, d.Exec, e)
	})
}

// Passed records what a sandbox has reached, and by which rule: for the audit log, and in mode learn.
func (f *Refusals) Passed(sandbox string, t api.NetTarget, rule string) {
	s, listed := f.cfg.Sandboxes.Listed(sandbox)
	if !listed {
		return
	}
	s.Audit(api.AuditAllowed, "", api.AuditConnection{NetTarget: t, Rule: rule})
	f.learn(s, t)
}

// Learned is the file below a sandbox's folder that has what it wanted in mode learn.
const Learned = "wanted"

// learn adds t to what a sandbox in mode learn wanted, also for the next hutchd. There are few different targets, and
// each is written once.
func (f *Refusals) learn(s Sandbox, t api.NetTarget) {
	if s.Record().Network.Mode != api.NetLearn || !s.Ledger().Learn(t) {
		return
	}
	line, err := json.Marshal(t)
	if err == nil {
		err = appendLine(filepath.Join(s.Dir(), Learned), line)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // it is being removed
		f.cfg.Log.Warn("note what a sandbox wants to reach", "sandbox", s.ID(), "err", err)
	}
}

func appendLine(path string, line []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}

func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }
