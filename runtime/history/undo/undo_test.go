package undo

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/diskuse"
	"github.com/hutch-sh/hutch/internal/testenv"
)

func must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// describe lists what is below dir: names, types, modes, owners, times, links, content.
func describe(t testing.TB, dir string) string {
	t.Helper()
	var text strings.Builder
	inodes := map[uint64]int{}
	must(t, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		if inodes[st.Ino] == 0 {
			inodes[st.Ino] = len(inodes) + 1
		}
		what := ""
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFLNK:
			what, _ = os.Readlink(path)
		case unix.S_IFREG:
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			what = string(data[:min(len(data), 64)]) + fmt.Sprint(len(data))
		}
		value := make([]byte, 64)
		n, _ := unix.Lgetxattr(path, "user.x", value)
		rel, _ := filepath.Rel(dir, path)
		fmt.Fprintf(&text, "%s %o %d:%d #%d %d.%d %q %q\n", rel, st.Mode, st.Uid, st.Gid, inodes[st.Ino], st.Mtim.Sec,
			st.Mtim.Nsec, what, value[:max(0, n)])
		return nil
	}))
	return text.String()
}

// different says where two descriptions differ first.
func different(got, want string) string {
	a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("line %d: got %s, want %s", i, a[i], b[i])
		}
	}
	return fmt.Sprintf("%d lines, want %d", len(a), len(b))
}

func store(t testing.TB, dir string) *Store {
	t.Helper()
	s, err := Open(dir)
	must(t, err)
	return s
}

// settle waits until what was written is old enough for its time to tell of a later change, which treecopy says is so
// after 20 ms.
func settle(t testing.TB) {
	t.Helper()
	testenv.Aged(t, t.TempDir(), 20*time.Millisecond)
}

func save(t testing.TB, s *Store, tree string, call string) Checkpoint {
	t.Helper()
	must(t, s.Save(t.Context(), Checkpoint{ID: "cp_" + call, Call: call, Tool: "t", Time: time.Now()},
		Request{Trees: map[string]string{"upper": tree}}))
	list, _, _ := s.List()
	return list[len(list)-1]
}

func rebuilt(t testing.TB, s *Store, call string) string {
	t.Helper()
	c, ok := s.Find(call)
	if !ok {
		t.Fatalf("no %s", call)
	}
	to := t.TempDir()
	if _, err := s.Rebuild(t.Context(), c, to); err != nil {
		t.Fatal(err)
	}
	return describe(t, filepath.Join(to, "upper"))
}

// odd makes files of all kinds.
func odd(t testing.TB, dir string) {
	at := func(name string) string { return filepath.Join(dir, name) }
	must(t, os.MkdirAll(at("a/b"), 0o755), os.WriteFile(at("f"), []byte("text"), 0o600),
		os.Chmod(at("f"), 0o755|os.ModeSetuid), os.Link(at("f"), at("a/hard")),
		os.Symlink("/etc/shadow", at("link")), unix.Mkfifo(at("fifo"), 0o640),
		unix.Mknod(at("socket"), unix.S_IFSOCK|0o600, 0),
		os.WriteFile(at("sparse"), nil, 0o644), os.Truncate(at("sparse"), 1<<20), os.Chmod(at("a/b"), 0o711),
		os.WriteFile(at("a\nb"), []byte("x"), 0o644))
	for _, name := range []string{"f", "a"} {
		if err := unix.Setxattr(at(name), "user.x", []byte("y"), 0); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
			t.Fatal(err)
		}
	}
	long := time.Unix(1_000_000_000, 123)
	must(t, os.Chtimes(at("a"), long, long), os.Chtimes(at("f"), long, long))
}

// TestSave: each checkpoint is what the tree was, byte for byte, also in the next process, and shares what has not
// changed.
func TestSave(t *testing.T) {
	tree, dir := t.TempDir(), filepath.Join(t.TempDir(), "undo")
	at := func(name string) string { return filepath.Join(tree, name) }
	odd(t, tree)
	for i := range 200 {
		must(t, os.WriteFile(at(fmt.Sprintf("a/%d", i)), []byte(strings.Repeat("x", 8000)), 0o644))
	}
	s := store(t, dir)
	settle(t)
	want := map[string]string{"c0": describe(t, tree)}
	first := save(t, s, tree, "c0")
	if first.Added.Inodes < 200 {
		t.Errorf("%+v", first)
	}
	want["same"] = want["c0"]
	if c := save(t, s, tree, "same"); c.Tree != first.Tree || c.Added != (diskuse.Usage{}) {
		t.Errorf("nothing has changed: %+v", c)
	}
	for i, change := range []func() error{
		func() error { return os.WriteFile(at("a/7"), []byte("changed"), 0o644) },
		func() error { return os.RemoveAll(at("a/b")) },
		func() error { return os.Rename(at("a"), at("moved")) },
		func() error { return os.Chmod(at("moved/8"), 0) },
		func() error { return errors.Join(os.Remove(at("link")), os.Mkdir(at("link"), 0o700)) },
		// as long as before
		func() error { return os.WriteFile(at("moved/9"), []byte(strings.Repeat("y", 8000)), 0o644) },
	} {
		settle(t)
		must(t, change())
		call := fmt.Sprintf("c%d", i+1)
		want[call] = describe(t, tree)
		if c := save(t, s, tree, call); i == 0 && c.Added.Inodes > 2 || c.Added.Inodes == 0 {
			t.Errorf("%s: %+v", call, c)
		}
	}
	must(t, os.WriteFile(filepath.Join(dir, "objects", "ffff"), []byte("left"), 0o600),
		os.WriteFile(filepath.Join(dir, "trees", "99.tmp"), nil, 0o600))
	for range 2 {
		for call, text := range want {
			if os.Getuid() != 0 && call > "c3" && call != "same" {
				continue // moved/8 cannot be read
			}
			if got := rebuilt(t, s, call); got != text {
				t.Errorf("%s: %s", call, different(got, text))
			}
		}
		_, _, before := s.List()
		s = store(t, dir)
		if _, _, after := s.List(); after != before {
			t.Errorf("%+v, before %+v", after, before)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*", "*[f.][ft][fm]*")); len(left) > 0 {
		t.Errorf("%v", left)
	}
	if c := save(t, s, tree, "again"); c.Added.Inodes > 2 { // the last change was young
		t.Errorf("%+v", c)
	}
}

// TestHistory: which call is the last that was not undone, through restores and what comes after them.
func TestHistory(t *testing.T) {
	tree, dir := t.TempDir(), filepath.Join(t.TempDir(), "undo")
	s := store(t, dir)
	file := filepath.Join(tree, "f")
	undo := func(call, name string) {
		t.Helper()
		c, ok := s.Find(call)
		if !ok {
			t.Fatalf("no %q", call)
		}
		must(t, s.Save(t.Context(), Checkpoint{ID: "cp_" + name, Call: name, Restore: true},
			Request{Trees: map[string]string{"upper": tree}, Pinned: c.ID}))
		to := t.TempDir()
		restored, err := s.Rebuild(t.Context(), c, to)
		must(t, err, os.RemoveAll(tree), os.Rename(filepath.Join(to, "upper"), tree))
		must(t, restored())
	}
	check := func(content, last string, undone ...string) {
		t.Helper()
		data, _ := os.ReadFile(file)
		c, _ := s.Find("")
		_, all, _ := s.List()
		n := 0
		for _, is := range all {
			if is {
				n++
			}
		}
		if string(data) != content || c.Call != last || n != len(undone) {
			t.Errorf("%q, last %q, undone %v; want %q %q %v", data, c.Call, all, content, last, undone)
		}
		for _, call := range undone {
			if !all[call] {
				t.Errorf("%s was not undone", call)
			}
		}
	}
	for i := range 4 {
		save(t, s, tree, fmt.Sprintf("c%d", i))
		must(t, os.WriteFile(file, []byte{byte('0' + i)}, 0o644))
	}
	check("3", "c3")
	undo("", "u0")
	check("2", "c2", "c3")
	undo("", "u1")
	check("1", "c1", "c2", "c3")
	save(t, s, tree, "c4")
	must(t, os.WriteFile(file, []byte("new"), 0o644))
	check("new", "c4", "c2", "c3")
	undo("c1", "u2")
	check("0", "c0", "c1", "c2", "c3", "c4")
	undo("u2", "u3") // takes the last undo back
	check("new", "c4", "c2", "c3")
	s = store(t, dir)
	undo("u0", "u4")
	check("3", "c3", "c4")
	if _, ok := s.Find("none"); ok {
		t.Error("found")
	}
}

// TestBounds: the oldest go, with what only they had, and what does not fit leaves nothing.
func TestBounds(t *testing.T) {
	tree, dir := t.TempDir(), filepath.Join(t.TempDir(), "undo")
	s := store(t, dir)
	for i := range MaxCheckpoints + 5 {
		must(t, os.WriteFile(filepath.Join(tree, "f"), fmt.Appendf(nil, "%d", i), 0o644))
		save(t, s, tree, fmt.Sprintf("c%d", i))
	}
	list, _, total := s.List()
	if len(list) != MaxCheckpoints || list[0].Call != "c5" {
		t.Errorf("%d from %s", len(list), list[0].Call)
	}
	count := func() int {
		files, _ := filepath.Glob(filepath.Join(dir, "*", "*"))
		return len(files)
	}
	if n := count(); n > 2*MaxCheckpoints || total.Inodes != int64(n) {
		t.Errorf("%d files, %+v", n, total)
	}
	must(t, os.WriteFile(filepath.Join(tree, "big"), make([]byte, 1<<20), 0o644))
	request := Request{Trees: map[string]string{"upper": tree}, Limit: diskuse.Usage{Bytes: 1<<20 + 64<<10}}
	must(t, s.Save(t.Context(), Checkpoint{ID: "cp_b", Call: "b"}, request))
	if list, _, total := s.List(); len(list) > 20 || len(list) == 0 || total.Exceeds(request.Limit) {
		t.Errorf("%d, %+v", len(list), total)
	}
	must(t, os.WriteFile(filepath.Join(tree, "bigger"), make([]byte, 2<<20), 0o644))
	if err := s.Save(t.Context(), Checkpoint{ID: "cp_c", Call: "c"}, request); !errors.Is(err, ErrNoRoom) {
		t.Error(err)
	}
	if list, _, total := s.List(); len(list) != 0 || count() != 0 || total != (diskuse.Usage{}) {
		t.Errorf("%v, %d files, %+v", list, count(), total)
	}
	must(t, os.Remove(filepath.Join(tree, "bigger")))
	must(t, s.Save(t.Context(), Checkpoint{ID: "cp_d", Call: "d"}, request))
	rebuilt(t, s, "d")
}

func BenchmarkSave(b *testing.B) {
	tree := b.TempDir()
	for i := range 1000 {
		must(b, os.MkdirAll(filepath.Join(tree, fmt.Sprint(i%50)), 0o755),
			os.WriteFile(filepath.Join(tree, fmt.Sprint(i%50), fmt.Sprint(i)), make([]byte, 10<<10), 0o644))
	}
	settle(b)
	for _, changed := range []int{0, 1, 1000} {
		b.Run(fmt.Sprint(changed), func(b *testing.B) {
			s := store(b, filepath.Join(b.TempDir(), "undo"))
			save(b, s, tree, "c")
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				for k := range changed {
					must(b, os.WriteFile(filepath.Join(tree, fmt.Sprint(k%50), fmt.Sprint(k)),
						fmt.Appendf(make([]byte, 10<<10), "%d", i), 0o644))
				}
				b.StartTimer()
				save(b, s, tree, fmt.Sprint(i))
			}
		})
	}
}

// TestGolden: what the build of 3f74611 has noted of checkpoints is read whole.
func TestGolden(t *testing.T) {
	if s := testenv.Golden[state](t, "testdata/golden/state.json"); len(s.Checkpoints) != 1 {
		t.Errorf("%+v", s)
	}
}
