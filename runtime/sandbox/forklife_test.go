package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/keep"
)

// TestFork: forks have the files of their origin and their own id, name and record; all are made or none, and a quota
// counts them before the first.
func TestFork(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Settings.Quotas.Sandboxes = 4 })
	sb := r.create(named("origin"), func(req *CreateRequest) { req.Spec.Labels = map[string]string{"k": "v"} })
	r.write(sb.ID, "tmp/file", "origin's")
	fork := func(count int) (api.Forked, error) {
		return r.m.Keep.Fork(t.Context(), keep.Caller{User: 1000, Conn: 1}, api.ForkParams{Sandbox: sb.ID,
			Count: count})
	}
	_, err := fork(4)
	r.refused(api.ResourceExhausted, err)
	forks, err := fork(3)
	if err != nil || len(forks.Sandboxes) != 3 {
		t.Fatalf("%+v, %v", forks, err)
	}
	for _, f := range forks.Sandboxes {
		if f.ID == sb.ID || f.Name != "" || f.Labels["k"] != "v" || f.State != api.Running {
			t.Errorf("%+v", f)
		}
		layers := r.sandbox(f.ID).kept.Layers
		if len(layers) != 1 {
			t.Fatalf("%v", layers)
		}
		text, err := os.ReadFile(filepath.Join(r.cfg.Shelf.LayerDir(layers[0]), "root/tmp/file"))
		if err != nil || string(text) != "origin's" {
			t.Errorf("%q, %v", text, err)
		}
		r.remove(f.ID)
	}
	var made int
	r.points.mu.Lock()
	r.points.fail["Networks.Enforce"] = func() error {
		r.points.mu.Lock()
		defer r.points.mu.Unlock()
		if made++; made == 2 {
			return errInjected
		}
		return nil
	}
	r.points.mu.Unlock()
	if _, err = fork(3); !errors.Is(err, errInjected) {
		t.Errorf("%v", err)
	}
	r.points.failing("Networks.Enforce", nil)
	r.m.Settle(t.Context())
	if list := r.list(); len(list) != 1 {
		t.Errorf("%+v", list)
	}
	r.remove(sb.ID)
	if entries, err := os.ReadDir(filepath.Join(r.dir, "shelf/layers")); err != nil || len(entries) > 0 {
		t.Errorf("layers that nobody needs: %v, %v", entries, err)
	}
}

// sandbox is the Manager's own.
func (r *rig) sandbox(id string) *Sandbox {
	r.t.Helper()
	s, err := r.m.find(id)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// TestSnapshotRestore: a restored sandbox has the files of the snapshot, its id and name, and the policy that it has
// now.
func TestSnapshotRestore(t *testing.T) {
	r := newRig(t)
	sb := r.create(rich)
	r.write(sb.ID, "tmp/file", "before")
	sn, err := r.m.Keep.CreateSnapshot(t.Context(), keep.Caller{User: 1000},
		api.SnapshotCreateParams{Sandbox: sb.ID, Name: "snap"})
	if err != nil {
		t.Fatal(err)
	}
	r.write(sb.ID, "tmp/file", "after")
	narrow := api.NetPolicy{Mode: api.NetAllow}
	if err := r.m.Egress.Update(t.Context(), api.NetUpdateParams{Sandbox: sb.ID, Network: &narrow}); err != nil {
		t.Fatal(err)
	}
	got, err := r.m.Keep.RestoreSnapshot(t.Context(), keep.Caller{User: 1000, Conn: 1},
		api.SnapshotRestoreParams{Snapshot: sn.ID})
	if err != nil || got.ID != sb.ID || got.Name != "rich" || len(got.Network.Allow) > 0 {
		t.Errorf("%+v, %v", got, err)
	}
	if text := r.read(sb.ID, "tmp/file"); text != "before" {
		t.Errorf("%q", text)
	}
	// another user's
	_, err = r.m.Keep.Fork(t.Context(), keep.Caller{User: 2000, Conn: 1}, api.ForkParams{Snapshot: sn.ID})
	r.refused(api.NotFound, err)
	r.remove(sb.ID)
	forked, err := r.m.Keep.Fork(t.Context(), keep.Caller{User: 1000, Conn: 1}, api.ForkParams{Snapshot: sn.ID,
		Name: "again"})
	if err != nil || forked.Sandboxes[0].Name != "again" {
		t.Fatalf("%+v, %v", forked, err)
	}
	r.remove("again")
	if _, err := r.m.Keep.RemoveSnapshot(t.Context(), keep.Caller{User: 1000},
		api.SnapshotParams{Snapshot: "snap"}); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(filepath.Join(r.dir, "shelf/layers")); err != nil || len(entries) > 0 {
		t.Errorf("%v, %v", entries, err)
	}
	if pins, _ := r.images.Pins(); len(pins) > 0 {
		t.Errorf("%v", pins)
	}
}
