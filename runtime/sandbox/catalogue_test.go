package sandbox

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/hutch-sh/hutch/internal/shelf"
	"github.com/hutch-sh/hutch/runtime/api"
)

// TestCatalogue: what was read before is not read again, with the shelf locked and everybody waiting; what is new is
// read, and what is gone is forgotten. A record that cannot be read hides no other, and keeps all layers.
func TestCatalogue(t *testing.T) {
	m, _ := bare(t, api.Sandbox{}, api.Spec{})
	var err error
	if m.cfg.Shelf, err = shelf.Open(t.TempDir(), slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	put := func(id string, user uint32) {
		t.Helper()
		data, err := json.Marshal(snapshot{Snapshot: api.Snapshot{ID: id, Name: id}, User: user, Root: &Root{},
			Layers: []string{"ly_" + id}})
		if err == nil {
			err = m.cfg.Shelf.WriteSnapshot(id, data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range 4 {
		put(fmt.Sprintf("sn_%d", i), uint32(i%2))
	}
	known, broken, err := m.catalogue(nil)
	if err != nil || broken != nil || len(known) != 4 || len(known.of(1)) != 2 {
		t.Fatalf("%v, %v, %v", known, broken, err)
	}
	for _, id := range []string{"sn_0", "sn_1"} { // whoever reads them again fails
		if err := os.WriteFile(m.cfg.Shelf.Snapshot(id), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.cfg.Shelf.RemoveSnapshot("sn_2"); err != nil {
		t.Fatal(err)
	}
	put("sn_4", 1)
	now, broken, err := m.catalogue(known)
	if got := slices.Sorted(maps.Keys(now)); err != nil || broken != nil ||
		!slices.Equal(got, []string{"sn_0", "sn_1", "sn_3", "sn_4"}) {
		t.Errorf("%v, %v, %v", got, broken, err)
	}
	if _, err := m.roomForSnapshot(1, "sn_4", known); api.ErrorCode(err) != api.AlreadyExists {
		t.Errorf("a name that somebody has taken meanwhile: %v", err)
	}
	if _, err := m.roomForSnapshot(1, "sn_5", known); err != nil {
		t.Error(err)
	}
	if wanted, err := m.wantedLayers(known); err != nil || len(wanted) != 4 || wanted["ly_sn_2"] {
		t.Errorf("wanted: %v, %v", wanted, err)
	}
	now, broken, err = m.catalogue(nil)
	if err != nil || broken == nil || len(now) != 2 {
		t.Errorf("%v, %v, %v", now, broken, err)
	}
	if _, err := m.wantedLayers(nil); err == nil {
		t.Error("layers are collected although a record cannot be read")
	}
}
