package sandbox

import (
	"context"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/keep"
)

// TestPausedMoving: a sandbox does not count as paused, and nobody looks at its files, while a folder is half moved in
// it: the error names the folder, and the sandbox goes on. Afterwards none is moved until it goes on.
func TestPausedMoving(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		sb := r.create()
		s := r.sandbox(sb.ID)
		s.spec.Mounts = []api.Mount{{Source: "/w", Target: "/w", Mode: api.ModeOverlay}} // as far as moves go
		defer func() { s.spec.Mounts = nil }()
		pid1 := r.launcher.initOf(sb.ID)
		moves := func(folder string) {
			pid1.mu.Lock()
			defer pid1.mu.Unlock()
			pid1.moving = folder
		}
		held := func() bool {
			pid1.mu.Lock()
			defer pid1.mu.Unlock()
			return pid1.held
		}
		look := func([]int) error {
			if !held() {
				t.Error("files are looked at while folders can be moved")
			}
			return nil
		}
		quiesce := func() error { return historyBox{keepBox{r.m, s}}.Quiesce(t.Context(), look) }
		exec := r.start(params(sb.ID, "hang"))
		refused := func(what string, err error) {
			t.Helper()
			r.refused(api.Unavailable, err)
			if !strings.Contains(err.Error(), "/w/big") || r.state(sb.ID) != api.Running || held() {
				t.Errorf("%s: %v; %s, held: %v", what, err, r.state(sb.ID), held())
			}
		}
		moves("/w/big")
		_, err := r.m.Pauses.Pause(t.Context(), sb.ID)
		refused("pause", err)
		refused("look", quiesce())
		r.points.failing("Cgroups.Freeze", context.DeadlineExceeded) // who waits for PID 1 cannot be frozen
		_, err = r.m.Pauses.Pause(t.Context(), sb.ID)
		refused("pause of who waits", err)
		r.points.failing("Cgroups.Freeze", nil)

		moves("")
		if err := quiesce(); err != nil || held() {
			t.Errorf("%v, held: %v", err, held())
		}
		if _, err := r.m.Pauses.Pause(t.Context(), sb.ID); err != nil || !held() {
			t.Errorf("%v, held: %v", err, held())
		}
		if _, err := r.m.Pauses.Resume(t.Context(), sb.ID); err != nil || held() {
			t.Errorf("%v, held: %v", err, held())
		}
		stand := func(keep.Written) error { return look(nil) }
		if err := r.m.Keep.StandStill(t.Context(), sb.ID, stand); err != nil || held() {
			t.Errorf("%v, held: %v", err, held())
		}
		if _, err := r.m.Execs.Kill(t.Context(), api.ExecRef{Exec: exec}); err != nil {
			t.Error(err)
		}
		// Nothing is left that could be stopped; what PID 1 moves for one that is gone it finishes.
		if err := quiesce(); err != nil || held() {
			t.Errorf("%v, held: %v", err, held())
		}
		moves("/w/big")
		refused("look at an idle one", quiesce())
		moves("")
	})
}
