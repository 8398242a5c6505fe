package files_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// TestHoles: a file of a sandbox that is gigabytes of nothing and a few bytes takes no more of the host's disk than of
// the sandbox's when it is applied to the workspace or copied out.
func TestHoles(t *testing.T) {
	testenv.Axes(t, testenv.User)
	t.Parallel()
	w := world.New(t)
	dir := w.Sub(t, "ws")
	world.Write(t, filepath.Join(dir, "there"), "x")
	sb := w.Create(t, "--workspace", dir+":overlay", "host")
	w.OK(t, "exec", sb, "--", "sh", "-c",
		"cd /workspace && for f in new there; do echo begin >$f && truncate -s 8G $f && echo end >>$f; done; echo begin >/tmp/out && truncate -s 200M /tmp/out && echo end >>/tmp/out")
	w.OK(t, "workspace", "apply", "--folder", dir, sb)
	w.OK(t, "cp", sb+":/tmp/out", w.Path("out"))
	for name, size := range map[string]int64{filepath.Join(dir, "new"): 8 << 30, filepath.Join(dir, "there"): 8 << 30,
		w.Path("out"): 200 << 20} {
		var st unix.Stat_t
		if err := unix.Stat(name, &st); err != nil {
			t.Fatal(err)
		}
		if st.Size != size+4 || st.Blocks*512 > 1<<20 {
			t.Errorf("%s has %d bytes and takes %d, want %d and no more than 1 MiB", name, st.Size,
				st.Blocks*512, size+4)
		}
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		begin, end := [6]byte{}, [4]byte{}
		_, err = f.ReadAt(begin[:], 0)
		if _, err2 := f.ReadAt(end[:], size); err != nil || err2 != nil || string(begin[:]) != "begin\n" ||
			string(end[:]) != "end\n" {
			t.Errorf("%s holds %q and %q, %v, %v", name, begin, end, err, err2)
		}
		_ = f.Close()
	}
	w.OK(t, "rm", "-f", sb)
}
