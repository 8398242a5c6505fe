package files

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/guest/guestapi/filesapi"
)

func TestReplace(t *testing.T) {
	c, dir := newClient(t), t.TempDir()
	for _, test := range []struct {
		content string
		args    filesapi.ReplaceArgs
		want    string // the content after it, or a part of the error
		count   int64  // 0: an error
	}{
		{"a b c\n", filesapi.ReplaceArgs{Find: "b", Replace: "x"}, "a x c\n", 1},
		{"b b\n", filesapi.ReplaceArgs{Find: "b", Replace: "x", All: true}, "x x\n", 2},
		{"b b\n", filesapi.ReplaceArgs{Find: "b", Replace: "x", Expected: 2}, "x x\n", 2},
		{"b\nb\n", filesapi.ReplaceArgs{Find: "b", Replace: "x", Expected: 3},
			"occurs 2 times and not 3, in lines 1, 2", 0},
		{"b\n\nb b", filesapi.ReplaceArgs{Find: "b", Replace: "x"}, "occurs 3 times and not 1, in lines 1, 3, 3", 0},
		{"one\n\tfunc main() {\n", filesapi.ReplaceArgs{Find: "  func main() {", Replace: "x"},
			`first line is 2: "\tfunc main() {"`, 0},
		{"one\nfunc mian() {\n", filesapi.ReplaceArgs{Find: "func main() {", Replace: "x"},
			`similar line is 2: "func mian() {"`, 0},
		{"zzz\n", filesapi.ReplaceArgs{Find: "func main() {", Replace: "x"}, "does not occur in the file", 0},
		{"a\r\nb\r\nc\r\n", filesapi.ReplaceArgs{Find: "a\nb\n", Replace: "x\ny\n"}, "x\r\ny\r\nc\r\n", 1},
		{"k=1\nk=2\n", filesapi.ReplaceArgs{Find: `(?m)^k=(\d)$`, Replace: "v${1}v", Regex: true, All: true},
			"v1v\nv2v\n", 2},
		{"k=1\n", filesapi.ReplaceArgs{Find: `k=`, Replace: strings.Repeat("x", 2000), Regex: true},
			"more than 1000 bytes", 0},
		{"a\x00b\n", filesapi.ReplaceArgs{Find: "a", Replace: "x"}, "is binary", 0},
		{"caf\xe9 b\n", filesapi.ReplaceArgs{Find: "b", Replace: "x"}, "caf\xe9 x\n", 1},
		{"a b\n", filesapi.ReplaceArgs{Find: "b", Replace: "x", DryRun: true}, "a b\n", 1},
	} {
		put(t, dir+"/f", test.content)
		if err := os.Chmod(dir+"/f", 0o751); err != nil {
			t.Fatal(err)
		}
		test.args.MaxSize, test.args.MaxDiff = 1000, 1<<14
		_, data, err := op(t, c, filesapi.OpReplace, dir+"/f", &test.args)
		if test.count == 0 {
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%q: %v, want %q", test.content, err, test.want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", test.content, err)
			continue
		}
		r, err := filesapi.ParseReplaced(data, &test.args)
		got, rerr := os.ReadFile(dir + "/f")
		if err != nil || rerr != nil || string(got) != test.want || r.Count != test.count ||
			!strings.Contains(string(r.Diff), "@@") {
			t.Errorf("%q: %q, %+v, %v", test.content, got, r, err)
		}
		if st, err := os.Stat(dir + "/f"); err != nil || st.Mode() != 0o751 {
			t.Errorf("mode %v, %v", st.Mode(), err)
		}
	}
	// A link is followed and stays one.
	put(t, dir+"/f", "a")
	if err := os.Symlink("f", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	args := &filesapi.ReplaceArgs{Find: "a", Replace: "b", MaxSize: 10, MaxDiff: 100}
	if _, _, err := op(t, c, filesapi.OpReplace, dir+"/link", args); err != nil {
		t.Error(err)
	}
	if got, _ := os.ReadFile(dir + "/f"); string(got) != "b" {
		t.Errorf("%q", got)
	}
	if to, err := os.Readlink(dir + "/link"); to != "f" {
		t.Error(to, err)
	}
	if err := unix.Mkfifo(dir+"/fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]unix.Errno{dir + "/fifo": unix.EOPNOTSUPP, dir: unix.EISDIR, dir +
		"/none": unix.ENOENT} {
		if _, _, err := op(t, c, filesapi.OpReplace, path, args); !errors.Is(err, want) {
			t.Errorf("%s: %v", path, err)
		}
	}
}
