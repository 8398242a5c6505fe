package unpack

import (
	"errors"
	"os"
	"slices"
	"testing"
)

// TestLowerLinks: hard links to what the layer has not are reported, unless the layer has something else under their
// names in the end.
func TestLowerLinks(t *testing.T) {
	c := newCage(t)
	l := hardE("d/l", "/low/f")
	l.Mode, l.Uid, l.Gid, l.ModTime = 0o4640, 3, 4, stamp
	outside := hardE("outside", "/in/canary")
	stream := layer(t, l, hardE("again", "d/l"), outside, hardE("became", "f"), fileE("became", "file"),
		fileE("was", "file"), hardE("was", "f"),
		fileE(".wh.whited", ""), hardE("whited", "f"), hardE("whited2", "f"), fileE(".wh.whited2", ""),
		hardE("dir/x", "f"), fileE("dir", "file"),
		fileE("here", "h"), hardE("local", "f"), hardE("local", "here"))
	stats, err := c.unpack(t, stream, Options{SingleUID: os.Geteuid() != 0})
	must(t, err)
	var got []string
	for _, l := range stats.Links {
		got = append(got, l.Name+" "+l.Target)
	}
	if want := []string{"again low/f", "d/l low/f", "outside in/canary", "was f", "whited f",
		"whited2 f"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if d := stats.Links[1]; d.Mode != 0o4640 || d.UID != 3 || d.GID != 4 || !d.Time.Equal(stamp) {
		t.Errorf("%+v", d)
	}
	for p, s := range snapshot(t, c.root) {
		if slices.Contains([]string{"/d/l", "/again", "/outside", "/was", "/whited", "/whited2"}, p) {
			t.Errorf("%s was made: %s", p, s)
		}
	}
	// Packed it says the same.
	packed, _ := packDir(t, c.root, PackOptions{Implied: stats.Implied, Links: stats.Links,
		SingleUID: os.Geteuid() != 0})
	again, err := newCage(t).unpack(t, packed, Options{SingleUID: os.Geteuid() != 0})
	must(t, err)
	if !slices.EqualFunc(again.Links, stats.Links, func(a, b LowerLink) bool {
		return a.Name == b.Name && a.Target == b.Target && a.Mode == b.Mode && a.UID == b.UID && a.Time.Equal(b.Time)
	}) {
		t.Errorf("packed %+v, was %+v", again.Links, stats.Links)
	}
}

// TestLowerLinksMany: a link takes more than its names do, which may be short.
func TestLowerLinksMany(t *testing.T) {
	root, err := os.Open(newCage(t).root)
	must(t, err)
	defer root.Close()
	u := &unpacker{root: int(root.Fd()), implied: MaxImplied - LinkCost - 2}
	at := place{parent: u.root, base: "g", name: "g"}
	h := hardE("g", "f")
	must(t, u.linkBelow(at, "f", &h))
	if err := u.linkBelow(at, "f", &h); !errors.Is(err, ErrLimit) {
		t.Error(err)
	}
}
