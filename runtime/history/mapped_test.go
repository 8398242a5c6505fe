package history

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/testenv/cost"
)

// TestMappedBy: files that a process has mapped, shared and writable, are told by name and inode, whatever they are
// called; others are not.
func TestMappedBy(t *testing.T) {
	for _, name := range []string{"plain", "a\nb", `lit\012eral`, "x (deleted)", " space "} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, make([]byte, 4096), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		var st unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &st); err != nil {
			t.Fatal(err)
		}
		pids := []int{os.Getpid()}
		if m := mappedBy(pids); m(name, 0) || m("", st.Ino) {
			t.Errorf("%q: is mapped before", name)
		}
		for prot, want := range map[int]bool{unix.PROT_READ: false, unix.PROT_READ | unix.PROT_WRITE: true} {
			data, err := unix.Mmap(int(f.Fd()), 0, 4096, prot, unix.MAP_SHARED)
			if err != nil {
				t.Fatal(err)
			}
			if m := mappedBy(pids); m("", st.Ino) != want || name != " space " && m(name, 0) != want {
				t.Errorf("%q: mapped with %d: want %t", name, prot, want)
			}
			if err := unix.Munmap(data); err != nil {
				t.Fatal(err)
			}
		}
		f.Close()
	}
}

func FuzzMappings(f *testing.F) {
	f.Add([]byte("7f00-7f01 rw-s 00000000 08:01 123                  /w/map (deleted)\n7f01-7f02 r--s 0 0:0 0 /x\n"))
	f.Add([]byte("a rw-s 0 0 99999999999999999999 \n b"))
	f.Fuzz(func(t *testing.T, list []byte) {
		var names map[string]bool
		var inodes map[uint64]bool
		cost.Input(t, list, func(list []byte) {
			names, inodes = map[string]bool{}, map[uint64]bool{}
			mappings(list, names, inodes)
		})
		if len(names) > 4*len(list) || len(inodes) > len(list) {
			t.Errorf("%d names, %d inodes", len(names), len(inodes))
		}
	})
}
