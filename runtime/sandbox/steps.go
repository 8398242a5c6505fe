package sandbox

import (
	"context"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
)

// step is one part of a creation; it pushes its own undo.
type step struct {
	name string
	run  func(*creation, context.Context) error
}

// steps of a sandbox that is launched, in order. Policy comes before any process exists: no policy, no start.
var steps = []step{
	{"image", (*creation).resolve},
	{"folders", (*creation).folders},
	{"mounts", (*creation).mounts},
	{"netns", (*creation).network},
	{"about", (*creation).about},
	{"spec", (*creation).build},
	{"launch", (*creation).launch},
	{"enforce", (*creation).enforce},
	{"limits", (*creation).limit},
	{"guest", (*creation).greet},
	{"isolation", (*creation).readBack},
	{"record", (*creation).save},
}

// claimSteps are those of one that claims a generic sandbox, which has its folder, its namespace, and a PID 1 that was
// greeted. They have the names of steps, which takeSteps have, too.
var claimSteps = []step{
	{"image", (*creation).resolve},
	{"folders", (*creation).claimFolders},
	{"mounts", (*creation).mounts},
	{"netns", (*creation).claimNetwork},
	{"about", (*creation).claimAbout},
	{"spec", (*creation).nothing},
	{"launch", (*creation).claim},
	{"enforce", (*creation).enforce},
	{"limits", (*creation).limit},
	{"guest", (*creation).rehearsePooled},
	{"isolation", (*creation).readBack},
	{"record", (*creation).save},
}

// takeSteps are those of one that takes a generic sandbox that was prepared for it.
var takeSteps = []step{
	{"image", (*creation).takeImage},
	{"folders", (*creation).takeFolders},
	{"mounts", (*creation).mounts},
	{"netns", (*creation).claimNetwork},
	{"about", (*creation).takeAbout},
	{"spec", (*creation).nothing},
	{"launch", (*creation).takePrepared},
	{"enforce", (*creation).enforce},
	{"limits", (*creation).watchLimits},
	{"guest", (*creation).nothing},
	{"isolation", (*creation).readPrepared},
	{"record", (*creation).save},
}

// planOf are the steps of a creation that claims g, or launches one where that is nil.
func planOf(g *generic) []step {
	switch {
	case g == nil:
		return steps
	case g.prepared == nil:
		return claimSteps
	}
	return takeSteps
}

func (f *creation) run(ctx context.Context) (err error) {
	defer f.undo.Run(&err)
	f.plan = planOf(f.claimed)
	if f.claimed != nil {
		f.undo.Add(f.claimed.net.Close)
		f.undo.Add(func() error { return f.m.removeFolder(f.s) })
		f.undo.Add(f.claimed.unmount)
		f.undo.Add(f.claimed.end)
	}
	defer func() {
		if f.filter != nil {
			_ = f.filter.Close()
		}
	}()
	for i := range steps {
		st := f.plan[i] // which a claim that fails makes another
		if err := fault(i); err != nil {
			return err
		}
		if err := context.Cause(ctx); err != nil {
			return err
		}
		start := time.Now()
		if err := st.run(f, ctx); err != nil {
			return err
		}
		f.phases[st.name] = ms(time.Since(start))
		if f.req.Debug {
			f.steps = append(f.steps, api.DebugStep{Name: st.name, MS: f.phases[st.name], Detail: f.detail(st.name)})
			if err := f.breakAt(ctx, st.name); err != nil {
				return err
			}
		}
	}
	if err := fault(len(steps)); err != nil {
		return err
	}
	f.s.destroy = f.undo.Release()
	return nil
}
