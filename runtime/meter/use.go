package meter

import (
	"time"

	"github.com/hutch-sh/hutch/internal/diskuse"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/exec"
)

// What commands and file calls meet of a limit of disk space.

// FileSize is the size that no single file of a command may have, where there is one.
func (t *Meter) FileSize() (bytes uint64, bounded bool) {
	if t.disk == nil {
		return 0, false
	}
	return t.disk.fileSize()
}

// WorkerFileSize is the same for files workers, of which who writes is refused before when the sandbox is over its
// limit (Admit).
func (t *Meter) WorkerFileSize() (bytes uint64, bounded bool) {
	if t.disk == nil {
		return 0, false
	}
	most := t.disk.bound().Bytes
	return uint64(most), most > 0
}

// BeginUse notes how it is when an exec begins, and that there is one.
func (t *Meter) BeginUse() (u exec.Use) {
	d := t.disk
	if d == nil {
		return u
	}
	if d.isOver() { // something may have been removed
		t.gauge(0, diskuse.Usage{})
	} else if !d.hard {
		_ = d.look() // one that fails, fails at the end, too
	}
	u = exec.Use{Over: d.isOver(), Disk: d.use(), Gone: d.goneSoFar()}
	d.begin()
	return u
}

// EndUse measures, where that is worth it, how it is after an exec of so long; full says that it has met the limit.
func (t *Meter) EndUse(begun exec.Use, took time.Duration, failed bool) (used diskuse.Usage, full bool) {
	d := t.disk
	if d == nil {
		return used, false
	}
	t.gauge(took, begun.Gone)
	crossed := !begun.Over && d.isOver()
	if crossed {
		d.rest.Store(true)
		d.begin() // nobody has noticed: see to the rest
	}
	if d.hard {
		return d.use(), failed && d.full()
	}
	return d.use(), crossed
}

// DiskLimit explains an end by the limit; peak is the most that was used.
func (t *Meter) DiskLimit(peak diskuse.Usage) (n api.Denial, h *api.LimitHit) {
	d := t.disk
	if d == nil {
		return n, &api.LimitHit{Of: "sandbox", Peak: peak.Bytes}
	}
	n = d.denial()
	limit := d.bound()
	h = &api.LimitHit{Name: n.Target, Of: "sandbox", Limit: limit.Bytes, Peak: peak.Bytes, Hint: n.HowToAllow}
	if n.Target == "inodes" {
		h.Limit, h.Peak = limit.Inodes, peak.Inodes
	}
	return n, h
}

// Admit notes that a file call begins, and refuses one that writes to a sandbox that is over its limit.
func (t *Meter) Admit(writes bool) error {
	d := t.disk
	if d == nil {
		return nil
	}
	if d.isOver() { // something may have been removed
		t.gauge(0, diskuse.Usage{})
	}
	d.begin()
	if writes {
		return t.Full()
	}
	return nil
}

// Full refuses what would write more into a sandbox that is over its limit, as it was measured last.
func (t *Meter) Full() error {
	if t.disk == nil || !t.disk.isOver() {
		return nil
	}
	n := t.disk.denial()
	return api.Errorf(api.ResourceExhausted, "sandbox %s is over limits.%s: %s, %s", t.of.ID(), n.Target, n.Why,
		n.Rule).
		WithField("limits."+n.Target).WithHint("%s", n.HowToAllow)
}
