package repair

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hutch-sh/hutch/images/unpack"
	"github.com/hutch-sh/hutch/internal/testenv/cost"
)

// TestLowerLinksDeep: links far down cost by their lengths, wherever they lead, and end with the context.
func TestLowerLinksDeep(t *testing.T) {
	const depth, count = 300, 200
	deep := func(root, top string) string {
		p := top
		must(t, os.Mkdir(filepath.Join(root, p), 0o755))
		for range depth {
			p += "/a"
			must(t, os.Mkdir(filepath.Join(root, p), 0o755))
		}
		return p
	}
	lower, upper := t.TempDir(), t.TempDir()
	from, to := deep(lower, "from"), deep(upper, "to")
	k := stackOf(t, []string{lower, upper}, []map[string]bool{nil, nil}, nil)
	k.byName = make(map[linkName]*lowerLink)
	for i := range count {
		name := fmt.Sprint(i)
		must(t, os.WriteFile(filepath.Join(lower, from, name), bytes.Repeat([]byte("x"), i), 0o600))
		k.links = append(k.links, &lowerLink{layer: 1, name: to + "/" + name, target: from + "/" + name})
	}
	cost.Once(t, 60*2*(depth+count), func() {
		list, err := k.Fixes(t.Context())
		if err != nil || len(list) != count+depth+2 {
			t.Errorf("%d, %v", len(list), err)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := k.Fixes(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := k.Write(ctx, t.TempDir(),
		[]Folder{{path: "l", gone: true, from: 1, source: from + "/0"}}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestLowerLinksMany: links with short names are not without number.
func TestLowerLinksMany(t *testing.T) {
	k := &Stack{}
	links := slices.Repeat([]unpack.LowerLink{{Name: "g", Target: "f"}}, maxImplied/(unpack.LinkCost+2))
	if err := k.pushLinks(1, links); err != nil {
		t.Error(err)
	}
	if err := k.pushLinks(2, links[:1]); !errors.Is(err, unpack.ErrLimit) {
		t.Error(err)
	}
}
