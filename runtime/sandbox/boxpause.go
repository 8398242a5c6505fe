package sandbox

import (
	"github.com/hutch-sh/hutch/runtime/admission"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/meter/procs"
)

// pauseHost is the Manager as package admission uses it.
type pauseHost struct{ m *Manager }

func (h pauseHost) Find(ref string) (admission.Sandbox, error) {
	s, err := h.m.find(ref)
	return pauseBox{h.m, s}, err
}

// pauseBox is a sandbox as package admission uses it.
type pauseBox struct {
	m *Manager
	s *Sandbox
}

func (b pauseBox) ID() string                               { return b.s.id }
func (b pauseBox) Gate() *admission.Gate                    { return b.s.gate }
func (b pauseBox) Record() api.Sandbox                      { return b.s.Record() }
func (b pauseBox) State() api.State                         { return b.s.state() }
func (b pauseBox) Here() bool                               { return b.m.here(b.s) }
func (b pauseBox) MustRun() error                           { return b.s.mustRun() }
func (b pauseBox) Transition(to api.State, why string) bool { return b.s.transition(to, why) }
func (b pauseBox) SaveAs(to api.State) error                { return b.s.saveAs(to) }
func (b pauseBox) Save()                                    { b.m.saveEnd(b.s) }
func (b pauseBox) Idle() bool                               { return b.s.idleNow() }
func (b pauseBox) StopIdle()                                { b.s.stopIdle() }
func (b pauseBox) RearmIdle()                               { b.s.rearmIdle(b.m) }
func (b pauseBox) Entered()                                 { b.m.Files.Settle(filesBox(b)) }
func (b pauseBox) Clock() admission.Clock                   { return b.s.execs.Clock }
func (b pauseBox) Cgroup() (string, bool)                   { return b.s.cgroup, b.s.grouped }
func (b pauseBox) Init() admission.Init                     { return b.s.guest }
func (b pauseBox) Moves() admission.Moves                   { return b.s.moves() }
func (b pauseBox) Workers() int                             { return b.s.files.Count() }
func (b pauseBox) EndWorkers()                              { b.m.Files.End(&b.s.files) }
func (b pauseBox) Descendants() ([]int, bool)               { return procs.Descendants(b.s.Record().PID) }
func (b pauseBox) IDs() []int                               { return procs.IDs(b.s.Record().PID) }

func (b pauseBox) SetPause(p *api.Pause) { b.s.note(func(r *api.Sandbox) { r.Paused = p }) }

func (b pauseBox) NoteReclaimed(bytes int64) bool {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	if b.s.record.State != api.Paused || b.s.record.Paused == nil {
		return false
	}
	p := *b.s.record.Paused // others have the one that was there
	p.ReclaimedBytes = &bytes
	b.s.record.Paused = &p
	return true
}
