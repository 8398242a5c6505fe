package sandbox

import (
	"context"
	"time"

	"github.com/hutch-sh/hutch/internal/diskuse"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/exec"
)

// The schedule of measurements. A look is two system calls; a measurement walks the tree, a
// microsecond or two a file.
const (
	minLook  = 100 * time.Millisecond
	maxLook  = 400 * time.Millisecond // while a command runs
	idleLook = 5 * time.Second        // else: something left behind may still write
	// minMeasure is the time between measurements that nothing asks for.
	minMeasure = 200 * time.Millisecond
)

// maxWalks bounds the measurements at the same time, each of which holds as many open files
// as a tree is deep.
const maxWalks = 2

// errDisk ends execs that have written too much.
var errDisk = &exec.Cause{Verdict: api.VerdictDisk, Text: "the sandbox has written more than its limit"}

// overSlack is what a sandbox that is over its limit may still need to remove files: an
// overlay notes the removal of a file of the image.
var overSlack = diskuse.Usage{Bytes: 1 << 20, Inodes: 4096}

// watchDisk ends what runs in a sandbox that exceeds its limit, until that has ended. The
// kernel tells nobody of that; see DESIGN.md for when it looks.
func (m *Manager) watchDisk(s *Sandbox) {
	if s.disk == nil {
		return
	}
	m.watchers.Go(func() {
		ctx, cancel := context.WithCancelCause(context.Background())
		defer cancel(nil)
		m.watchers.Go(func() {
			select {
			case <-s.exited:
				cancel(nil)
			case <-ctx.Done():
			}
		})
		if !s.disk.measured() { // else it was prepared, and nothing has run in it
			if _, err := m.measure(ctx, s); err != nil && ctx.Err() == nil {
				m.cfg.Logger.Error("measure what a sandbox has written", "sandbox", s.id, "err", err)
			}
		}
		pace, timer := minLook, time.NewTimer(minLook)
		defer timer.Stop()
		for {
			var begun int64
			select {
			case <-ctx.Done():
				return
			case <-s.disk.wake:
				begun = s.disk.begun.Load()
				pace = m.lookAtDisk(ctx, s, minLook)
			case <-timer.C:
				begun = s.disk.begun.Load()
				pace = m.lookAtDisk(ctx, s, pace)
			}
			select { // nothing writes while it is paused
			case <-s.execs.Clock.Runs():
			case <-ctx.Done():
				return
			}
			if s.disk.rest.Store(pace > minLook); s.disk.begun.Load() != begun {
				pace = minLook
			}
			timer.Reset(pace)
		}
	})
}

// lookAtDisk measures when that is due, and returns when to look again.
func (m *Manager) lookAtDisk(ctx context.Context, s *Sandbox, pace time.Duration) time.Duration {
	d := s.disk
	if !d.hard && d.use().Exceeds(d.mayUse()) { // whoever has measured it
		m.overDisk(ctx, s)
		return minLook
	}
	before := d.spentSoFar()
	if err := d.look(); err != nil {
		return maxLook // removed, most likely
	}
	cpu, known := m.cpuOf(s)
	if active := d.active(before, cpu, known); !active {
		s.mu.Lock()
		most := idleLook
		if !s.isIdle() {
			most = maxLook
		}
		s.mu.Unlock()
		return min(2*pace, most)
	}
	if !d.due(time.Now()) {
		return minLook
	}
	used, err := m.measure(ctx, s)
	switch {
	case err != nil:
		if ctx.Err() == nil {
			m.cfg.Logger.Warn("measure what a sandbox has written", "sandbox", s.id, "err", err)
		}
		return maxLook
	case !d.hard && used.Exceeds(d.mayUse()):
		m.overDisk(ctx, s)
	}
	s.execs.NotePeak(s.disk.use())
	return minLook
}

func (d *disk) spentSoFar() diskuse.Usage {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.spent
}

func (d *disk) mayUse() diskuse.Usage {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.allowed
}

// active says that something may have been written since the last measurement: the
// sandbox has used CPU time, without which nothing is. Where nobody counts that, the file
// system must have got fuller since the last look.
func (d *disk) active(before diskuse.Usage, cpu time.Duration, known bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if known {
		return cpu != d.cpu
	}
	return d.spent != before || d.free.Inodes == 0
}

// due says that it is time to measure. The more has been written by whomever, the larger
// the part of a CPU that may be spent on it: half of one when the limit may have been
// crossed, a tenth when half of what is left may have been used, else a hundredth.
func (d *disk) due(now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	twice := diskuse.Usage{Bytes: 2 * d.spent.Bytes, Inodes: 2 * d.spent.Inodes}
	wait := max(minMeasure, 99*d.cost)
	switch {
	case d.used.Add(d.spent).Exceeds(d.allowed):
		wait = d.cost
	case d.used.Add(twice).Exceeds(d.allowed):
		wait = 9 * d.cost
	}
	return now.Sub(d.at) >= wait
}

// begin says that somebody begins to use the sandbox.
func (d *disk) begin() {
	d.begun.Add(1)
	if !d.rest.Swap(false) {
		return
	}
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// overDisk ends everything that runs in a sandbox that is over its limit. What comes later may
// remove files, but finds that it cannot write any (RLIMIT_FSIZE 0).
func (m *Manager) overDisk(ctx context.Context, s *Sandbox) {
	first := s.disk.mayUse() == s.disk.bound()
	s.execs.NotePeak(s.disk.use())
	// Before anybody hears of an end: who then starts another command waits at the admission
	// until all is over, and does not meet what is to end.
	done := s.admission.tryTake()
	if s.grouped && done != nil {
		s.shutAdmission()
	}
	ends := s.execs.StopAll(errDisk)
	if len(ends) == 0 { // a file worker, or what an exec has left behind
		m.emit(api.EventLimitHit, s, "", api.LimitEvent{Limit: api.VerdictDisk, Detail: s.disk.denial().Why})
	}
	err := exec.AwaitAll(ctx, ends)
	if err == nil {
		err = m.endLeftovers(ctx, s, first, done)
	} else if done != nil {
		s.openAdmission()
		done()
	}
	if err != nil && ctx.Err() == nil {
		m.cfg.Logger.Warn("end what writes in a sandbox that is over its limit", "sandbox", s.id, "err", err)
	}
	_ = m.allowWhatThereIs(ctx, s)
}

// allowWhatThereIs measures. What is above the limit, the sandbox may have until it has got rid of enough.
func (m *Manager) allowWhatThereIs(ctx context.Context, s *Sandbox) error {
	d := s.disk
	d.mu.Lock()
	d.allowed = diskuse.Usage{}
	d.mu.Unlock()
	used, err := m.measure(ctx, s)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.allowed = d.limit; err == nil && d.over {
		d.allowed = used.Add(overSlack)
	}
	return err
}

// endLeftovers ends what is not an exec's any more: files workers, and what execs have left
// behind. Without cgroups only the second time round, when that goes on writing, and then
// with all of the sandbox. done gives back the turn at the admission, where the caller has it.
func (m *Manager) endLeftovers(ctx context.Context, s *Sandbox, first bool, done func()) (err error) {
	if !s.grouped {
		if done != nil {
			done()
		}
		m.Files.End(&s.files)
		if first {
			return nil
		}
		_, err = m.kill(ctx, s, "what its commands have left behind writes more than limits.disk_bytes")
		m.saveEnd(s)
		return err
	}
	if done == nil {
		if done, err = s.admission.take(ctx); err != nil {
			return err
		}
	}
	defer done()
	defer s.openAdmission()
	patient, cancel := context.WithTimeout(ctx, pausePatience)
	defer cancel()
	if err := s.closeAdmission(patient); err != nil {
		return err
	}
	if err := exec.AwaitAll(ctx, s.execs.StopAll(errDisk)); err != nil { // those that were being started
		return err
	}
	m.Files.End(&s.files)
	// Never used again after cgroup.kill.
	s.execs.SetSpare(nil)
	s.mu.Lock()
	s.workersGroup = ""
	s.mu.Unlock()
	return m.cfg.Cgroups.KillAll(patient, s.cgroup)
}
