package meter

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
func (t *Meter) watchDisk() {
	d := t.disk
	if d == nil {
		return
	}
	t.all.cfg.Background.Go(func() {
		ctx, cancel := t.living()
		defer cancel(nil)
		if !d.measured() { // else it was prepared, and nothing has run in it
			if _, err := t.measure(ctx); err != nil && ctx.Err() == nil {
				t.all.cfg.Log.Error("measure what a sandbox has written", "sandbox", t.of.ID(), "err", err)
			}
		}
		pace, timer := minLook, time.NewTimer(minLook)
		defer timer.Stop()
		for {
			var begun int64
			select {
			case <-ctx.Done():
				return
			case <-d.wake:
				begun = d.begun.Load()
				pace = t.lookAtDisk(ctx, minLook)
			case <-timer.C:
				begun = d.begun.Load()
				pace = t.lookAtDisk(ctx, pace)
			}
			select { // nothing writes while it is paused
			case <-t.of.Commands().Clock.Runs():
			case <-ctx.Done():
				return
			}
			if d.rest.Store(pace > minLook); d.begun.Load() != begun {
				pace = minLook
			}
			timer.Reset(pace)
		}
	})
}

// living is a context that ends with PID 1.
func (t *Meter) living() (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(context.Background())
	t.all.cfg.Background.Go(func() {
		select {
		case <-t.of.Exited():
			cancel(nil)
		case <-ctx.Done():
		}
	})
	return ctx, cancel
}

// lookAtDisk measures when that is due, and returns when to look again.
func (t *Meter) lookAtDisk(ctx context.Context, pace time.Duration) time.Duration {
	d := t.disk
	if !d.hard && d.use().Exceeds(d.mayUse()) { // whoever has measured it
		t.overDisk(ctx)
		return minLook
	}
	before := d.spentSoFar()
	if err := d.look(); err != nil {
		return maxLook // removed, most likely
	}
	cpu, known := t.cpuTime()
	if active := d.active(before, cpu, known); !active {
		most := idleLook
		if !t.of.Idle() {
			most = maxLook
		}
		return min(2*pace, most)
	}
	if !d.due(time.Now()) {
		return minLook
	}
	used, err := t.measure(ctx)
	switch {
	case err != nil:
		if ctx.Err() == nil {
			t.all.cfg.Log.Warn("measure what a sandbox has written", "sandbox", t.of.ID(), "err", err)
		}
		return maxLook
	case !d.hard && used.Exceeds(d.mayUse()):
		t.overDisk(ctx)
	}
	t.of.Commands().NotePeak(d.use())
	return minLook
}

func (d *Disk) spentSoFar() diskuse.Usage {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.spent
}

func (d *Disk) mayUse() diskuse.Usage {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.allowed
}

// active says that something may have been written since the last measurement: the
// sandbox has used CPU time, without which nothing is. Where nobody counts that, the file
// system must have got fuller since the last look.
func (d *Disk) active(before diskuse.Usage, cpu time.Duration, known bool) bool {
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
func (d *Disk) due(now time.Time) bool {
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
func (d *Disk) begin() {
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
func (t *Meter) overDisk(ctx context.Context) {
	again := ""
	if t.disk.mayUse() != t.disk.bound() {
		again = "what its commands have left behind writes more than limits.disk_bytes"
	}
	t.of.Commands().NotePeak(t.disk.use())
	hit := api.LimitEvent{Limit: api.VerdictDisk, Detail: t.disk.denial().Why}
	if err := t.of.EndAll(ctx, errDisk, hit, again); err != nil && ctx.Err() == nil {
		t.all.cfg.Log.Warn("end what writes in a sandbox that is over its limit", "sandbox", t.of.ID(), "err", err)
	}
	_ = t.allowWhatThereIs(ctx)
}

// allowWhatThereIs measures. What is above the limit, the sandbox may have until it has got rid of enough.
func (t *Meter) allowWhatThereIs(ctx context.Context) error {
	d := t.disk
	d.mu.Lock()
	d.allowed = diskuse.Usage{}
	d.mu.Unlock()
	used, err := t.measure(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.allowed = d.limit; err == nil && d.over {
		d.allowed = used.Add(overSlack)
	}
	return err
}
