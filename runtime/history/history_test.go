package history

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/treecopy"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/history/undo"
)

// TestUndo: a call is taken back, and the taking back, too; the owner stays, and the list says what was undone.
func TestUndo(t *testing.T) {
	r := newRig(t)
	r.call("tc_1", "one")
	r.standing = []int{os.Getpid()}
	r.call("tc_2", "two")
	r.call("tc_3", "three")
	restore := func(to, want string, undone ...string) api.CheckpointRestored {
		t.Helper()
		got, err := r.Restore(t.Context(), api.CheckpointRestoreParams{Sandbox: "box", ToCall: to}, nil)
		if err != nil || r.read() != want || !slices.Equal(got.Undone, undone) || r.held != 0 ||
			got.Ended.Note != undoneNote || len(got.Ended.Execs) != 1 {
			t.Fatalf("%q, %+v, %v; %d owners are held", r.read(), got, err, r.held)
		}
		return got
	}
	got := restore("tc_2", "one", "tc_3", "tc_2")
	list, err := r.Checkpoints(t.Context(), "box")
	if err != nil || len(list.Checkpoints) != 4 || !list.Checkpoints[2].Undone || list.Checkpoints[0].Undone ||
		list.Checkpoints[0].Paths[0] != "/file" {
		t.Errorf("%+v, %v", list, err)
	}
	restore(got.Call, "three")
	restore("", "two", "tc_3")
	if len(r.started) != 3 || r.started[0].Owner != api.OwnerConnection || r.inside != 0 || len(r.notes) != 3 ||
		r.notes[0].ToCall != "tc_2" {
		t.Errorf("started by %+v, noted %+v", r.started, r.notes)
	}
}

// TestRefused: what needs no checkpoint has none, and what cannot have one is refused.
func TestRefused(t *testing.T) {
	r := newRig(t)
	params := api.CheckpointRestoreParams{Sandbox: "box"}
	_, err := r.Restore(t.Context(), params, nil)
	r.refused("nothing to undo", api.NotFound, err)
	params.ToCall = "tc_9"
	_, err = r.Restore(t.Context(), params, nil)
	r.refused("no such call", api.NotFound, err)
	_, err = r.Checkpoints(t.Context(), "other")
	r.refused("no sandbox", api.NotFound, err)
	_, err = r.Checkpoint(t.Context(), "other", Call{ID: "tc_1"})
	r.refused("no sandbox", api.NotFound, err)
	_, err = r.Restore(t.Context(), api.CheckpointRestoreParams{Sandbox: "other"}, nil)
	r.refused("no sandbox", api.NotFound, err)
	for _, st := range []api.State{api.Creating, api.Waiting, api.Stopped} {
		r.record.State = st
		_, err = r.Checkpoint(t.Context(), "box", Call{ID: "tc_1"})
		r.refused("a checkpoint of one that is "+string(st), api.FailedPrecondition, err)
	}
	r.record.State = api.Waiting
	_, err = r.Restore(t.Context(), params, nil)
	r.refused("restore one that waits", api.FailedPrecondition, err)
	r.record.State, r.spec.Undo = api.Running, false
	if made, err := r.Checkpoint(t.Context(), "box", Call{ID: "tc_1"}); made || err != nil {
		t.Errorf("%v, %v", made, err)
	}
	_, err = r.Checkpoints(t.Context(), "box")
	r.refused("a list of none", api.FailedPrecondition, err)
	_, err = r.Restore(t.Context(), params, nil)
	r.refused("without undo", api.FailedPrecondition, err)
}

// TestRestoreFails: the files are those of before, or those of the call and the sandbox is stopped.
func TestRestoreFails(t *testing.T) {
	for _, tt := range []struct{ fails, file, says string }{
		{"Quiesce", "two", "could not be kept"},
		{"Stop", "two", "injected"},
		{"Save", "two", "injected"},
		{"Start", "one", "has the files of before tc_2"},
		{"back", "one", "injected"},
	} {
		r := newRig(t)
		r.call("tc_1", "one")
		r.call("tc_2", "two")
		r.fail[tt.fails] = errInjected
		_, err := r.Restore(t.Context(), api.CheckpointRestoreParams{Sandbox: "box", ToCall: "tc_2"}, nil)
		if !errors.Is(err, errInjected) || !strings.Contains(err.Error(), tt.says) || r.read() != tt.file ||
			r.held != 0 {
			t.Errorf("%s: %v, %q; %d owners are held", tt.fails, err, r.read(), r.held)
		}
	}
}

// TestGivenUp: checkpoints that cannot be read are given up, and new ones are made.
func TestGivenUp(t *testing.T) {
	r := newRig(t)
	r.call("tc_1", "one")
	if err := os.WriteFile(filepath.Join(r.dir, Dir, "state.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.set = &Set{}
	r.call("tc_2", "two")
	if list, err := r.Checkpoints(t.Context(), "box"); err != nil || len(list.Checkpoints) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
}

// TestTaking: so many checkpoints are made at a time; who gives up waiting has none.
func TestTaking(t *testing.T) {
	r := newRig(t)
	for range maxTaking {
		r.taking <- struct{}{}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errInjected)
	if _, err := r.Checkpoint(ctx, "box", Call{ID: "tc_1"}); !errors.Is(err, errInjected) {
		t.Errorf("%v", err)
	}
	<-r.taking
	r.call("tc_1", "one")
}

// TestUndoError: every reason why a checkpoint cannot be made says what to do.
func TestUndoError(t *testing.T) {
	for err, want := range map[error]api.Code{
		undo.ErrNoRoom: api.ResourceExhausted, unix.ENOSPC: api.ResourceExhausted, unix.EDQUOT: api.ResourceExhausted,
		treecopy.ErrTooMany: api.ResourceExhausted, treecopy.ErrTooDeep: api.ResourceExhausted,
		treecopy.ErrChanged: api.Unavailable, unix.ENOENT: api.Unavailable, unix.EIO: api.Internal,
		api.Errorf(api.NotFound, "it is known"): api.NotFound,
	} {
		got := undoError("sb_a", fmt.Errorf("keep: %w", err))
		var e *api.Error
		if api.ErrorCode(got) != want || !errors.As(got, &e) || want != api.NotFound && e.Hint == "" {
			t.Errorf("%v: %v, want %s and a hint", err, got, want)
		}
	}
	if err := undoError("sb_a", nil); err != nil {
		t.Error(err)
	}
}

// TestVolumes: what checkpoints do not cover is told.
func TestVolumes(t *testing.T) {
	sp := api.Spec{Mounts: []api.Mount{{Target: "/a", Volume: "v", Mode: api.ModeRW}, {Target: "/b", Mode: api.ModeRW},
		{Target: "/c", Volume: "v", Mode: api.ModeOverlay}}}
	if got := volumeTargets(&sp); !slices.Equal(got, []string{"/a"}) {
		t.Errorf("%v", got)
	}
}
