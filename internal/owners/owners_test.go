package owners

import (
	"bytes"
	"testing"

	"github.com/hutch-sh/hutch/internal/testenv/cost"
)

func TestParse(t *testing.T) {
	for value, want := range map[string][2]uint32{"0:0": {}, "33:44": {33, 44}, "4294967294:1": {1<<32 - 2, 1}} {
		uid, gid, ok := Parse([]byte(value))
		if !ok || [2]uint32{uid, gid} != want || !bytes.Equal(Format(uid, gid), []byte(value)) {
			t.Errorf("%q: %d %d %v", value, uid, gid, ok)
		}
	}
	for _, value := range []string{"", "1", ":", "1:", ":1", "-1:0", "4294967295:0", "0:4294967296", "1:2:3", "1:2 ",
		"a:b", "0x1:0", "1_0:0"} {
		if uid, gid, ok := Parse([]byte(value)); ok {
			t.Errorf("%q is %d:%d", value, uid, gid)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("33:44"))
	f.Fuzz(func(t *testing.T, value []byte) {
		var uid, gid uint32
		var ok bool
		cost.Input(t, value, func(value []byte) { uid, gid, ok = Parse(value) })
		if !ok && (uid != 0 || gid != 0) {
			t.Errorf("%q: %d %d", value, uid, gid)
		}
		if u, g, again := Parse(Format(uid, gid)); ok &&
			(!again || u != uid || g != gid || len(Format(uid, gid)) > MaxLen) {
			t.Errorf("%q: %d %d, then %d %d", value, uid, gid, u, g)
		}
	})
}
