package keep

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/spec"
)

// TestCatalogue: what was read before is not read again, with the shelf locked and everybody waiting; what is new is
// read, and what is gone is forgotten. A record that cannot be read hides no other, and keeps all layers.
func TestCatalogue(t *testing.T) {
	k := newRig(t).Keep
	put := func(id string, user uint32) {
		t.Helper()
		data, err := json.Marshal(snapshot{Snapshot: api.Snapshot{ID: id, Name: id}, User: user, Root: &spec.Root{},
			Layers: []string{"ly_" + id}})
		if err == nil {
			err = k.shelf.WriteSnapshot(id, data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range 4 {
		put(fmt.Sprintf("sn_%d", i), uint32(i%2))
	}
	known, broken, err := k.catalogue(nil)
	if err != nil || broken != nil || len(known) != 4 || len(known.of(1)) != 2 {
		t.Fatalf("%v, %v, %v", known, broken, err)
	}
	for _, id := range []string{"sn_0", "sn_1"} { // whoever reads them again fails
		if err := os.WriteFile(k.shelf.Snapshot(id), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.shelf.RemoveSnapshot("sn_2"); err != nil {
		t.Fatal(err)
	}
	put("sn_4", 1)
	now, broken, err := k.catalogue(known)
	if got := slices.Sorted(maps.Keys(now)); err != nil || broken != nil ||
		!slices.Equal(got, []string{"sn_0", "sn_1", "sn_3", "sn_4"}) {
		t.Errorf("%v, %v, %v", got, broken, err)
	}
	if _, err := k.roomForSnapshot(1, "sn_4", known); api.ErrorCode(err) != api.AlreadyExists {
		t.Errorf("a name that somebody has taken meanwhile: %v", err)
	}
	if _, err := k.roomForSnapshot(1, "sn_5", known); err != nil {
		t.Error(err)
	}
	if wanted, err := k.wantedLayers(known); err != nil || len(wanted) != 4 || wanted["ly_sn_2"] {
		t.Errorf("wanted: %v, %v", wanted, err)
	}
	now, broken, err = k.catalogue(nil)
	if err != nil || broken == nil || len(now) != 2 {
		t.Errorf("%v, %v, %v", now, broken, err)
	}
	if _, err := k.wantedLayers(nil); err == nil {
		t.Error("layers are collected although a record cannot be read")
	}
}

// TestGolden: a record that the build of 3f74611 has written of a snapshot is read whole. A build that changes it reads
// both.
func TestGolden(t *testing.T) {
	if s := testenv.Golden[snapshot](t, "testdata/golden/snapshot.json"); s.Name != "snap" {
		t.Errorf("%+v", s)
	}
}
