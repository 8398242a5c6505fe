package supervisor

import (
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/testenv/cost"
)

func TestReadIDs(t *testing.T) {
	open := func(path string, flags int) (int, error) { return unix.Open(path, flags|unix.O_CLOEXEC, 0) }
	got, tgid, err := readIDs(open, "/proc/thread-self/status")
	groups, gerr := os.Getgroups()
	slices.Sort(groups)
	var have []int
	for _, g := range got.groups {
		have = append(have, int(g))
	}
	if err != nil || gerr != nil || tgid != os.Getpid() || int(got.uid) != os.Geteuid() ||
		int(got.gid) != os.Getegid() || !slices.Equal(have, slices.Compact(groups)) {
		t.Errorf("%+v of %d: %v %v", got, tgid, err, gerr)
	}
}

func FuzzParseIDs(f *testing.F) {
	f.Add([]byte("Tgid:\t7\nUid:\t1\t2\t3\t4\nGid:\t1\t2\t3\t5\nGroups:\t4 5 \nCapEff:\t00000000a80425fb\n"))
	f.Add([]byte("Tgid:\nUid:\nGid:\nGroups:\nCapEff:\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		cost.Input(t, text, func(text []byte) {
			if to, tgid, err := parseIDs(text); err == nil && (tgid < 0 || to.caps&^fileCaps != 0) {
				t.Errorf("%d %+v", tgid, to)
			}
		})
	})
}
