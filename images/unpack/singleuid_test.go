package unpack

import (
	"fmt"
	"os"
	"testing"
)

func TestUnpackSingleUID(t *testing.T) {
	c := newCage(t)
	f := fileE("f", "x")
	f.Uid, f.Gid = 33, 44
	d := dirE("d/")
	d.Uid = 1 << 30
	l := linkE("l", "f")
	l.Uid = 33
	_, err := c.unpack(t, layer(t, f, d, l, fileE("root", "")), Options{SingleUID: true})
	must(t, err)
	me := fmt.Sprintf("%d:%d", os.Getuid(), os.Getgid())
	got := snapshot(t, c.root)
	for p, want := range map[string]string{
		"/f": "100644 " + me + ` "x" user.hutch.owner="33:44"`, "/d": "40755 " + me +
			` user.hutch.owner="1073741824:0"`,
		"/l": "120777 " + me + " -> f", "/root": "100644 " + me + ` ""`,
	} {
		if got[p] != want {
			t.Errorf("%s is %s, want %s", p, got[p], want)
		}
	}
}
