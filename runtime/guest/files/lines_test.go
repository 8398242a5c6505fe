package files

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/guest/guestapi/filesapi"
)

func TestLines(t *testing.T) {
	c, dir := newClient(t), t.TempDir()
	var ten, many strings.Builder
	for i := range 10 {
		fmt.Fprintf(&ten, "line %d\n", i+1)
	}
	for i := range 200_000 {
		fmt.Fprintf(&many, "line %d\r\n", i+1)
	}
	for name, content := range map[string]string{
		"ten": ten.String(), "open": "a\nb", "empty": "", "many": many.String(),
		"long": strings.Repeat("ä", 1_000_000) + "\nend\n",
		"nul":  "text\n\x00", "latin1": "caf\xe9 \n", "edge": strings.Repeat("x", sniff-1) + "é\n",
		"late": strings.Repeat("x\n", sniff) + "\xff\n",
	} {
		put(t, dir+"/"+name, content)
	}
	for _, test := range []struct {
		file         string
		start, lines int64
		from, to     int64
		next, total  int64
		binary       bool
		text         string
	}{
		{"ten", 1, 2, 1, 2, 3, 10, false, "line 1\nline 2\n"},
		{"ten", 9, 5, 9, 10, 0, 10, false, "line 9\nline 10\n"},
		{"ten", 9, 2, 9, 10, 0, 10, false, "line 9\nline 10\n"},
		{"ten", -2, 5, 9, 10, 0, 10, false, "line 9\nline 10\n"},
		{"ten", -100, 1, 1, 1, 2, 10, false, "line 1\n"},
		{"ten", 11, 5, 0, 0, 0, 10, false, ""},
		{"open", 2, 5, 2, 2, 0, 2, false, "b"},
		{"open", -1, 5, 2, 2, 0, 2, false, "b"},
		{"open", 1, 1, 1, 1, 2, 2, false, "a\n"},
		{"empty", 1, 5, 0, 0, 0, 0, false, ""},
		{"many", 150_000, 1, 150_000, 150_000, 150_001, 200_000, false, "line 150000\r\n"},
		{"many", -1, 9, 200_000, 200_000, 0, 200_000, false, "line 200000\r\n"},
		{"long", 2, 9, 2, 2, 0, 2, false, "end\n"},
		{"nul", 1, 9, 0, 0, 0, 0, true, ""},
		{"latin1", 1, 9, 0, 0, 0, 0, true, ""},
		{"edge", 2, 9, 0, 0, 0, 1, false, ""},
		{"late", sniff + 1, 1, sniff + 1, sniff + 1, 0, sniff + 1, false, "\xff\n"},
	} {
		args := &filesapi.LinesArgs{Start: test.start, Lines: int(test.lines), Bytes: 1 << 18, LineSize: 1 << 12}
		_, data, err := op(t, c, filesapi.OpLines, dir+"/"+test.file, args)
		if err != nil {
			t.Fatal(test.file, err)
		}
		l, err := filesapi.ParseLines(data, args)
		if err != nil {
			t.Fatal(test.file, err)
		}
		if string(l.Text) != test.text || l.Start != test.from || l.End != test.to || l.Next != test.next ||
			l.Total != test.total || l.Binary != test.binary {
			t.Errorf("%s %d+%d: %+.200v", test.file, test.start, test.lines, *l)
		}
	}
	// What is too large for a result goes on in the next.
	args := &filesapi.LinesArgs{Start: 1, Lines: 1 << 20, Bytes: 1 << 18, LineSize: 1 << 12}
	var all strings.Builder
	for args.Start > 0 {
		_, data, err := op(t, c, filesapi.OpLines, dir+"/many", args)
		if err != nil {
			t.Fatal(err)
		}
		l, err := filesapi.ParseLines(data, args)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(l.Text)
		args.Start = l.Next
	}
	if all.String() != many.String() {
		t.Error("the pieces are not the whole")
	}
	args.Start = 1
	_, data, err := op(t, c, filesapi.OpLines, dir+"/long", args)
	if err != nil {
		t.Fatal(err)
	}
	l, err := filesapi.ParseLines(data, args)
	if want := strings.Repeat("ä", 2048) + " [1995905 bytes more]\nend\n"; err != nil || l.Cut != 1 ||
		string(l.Text) != want {
		t.Errorf("%v, cut %d, %q", err, l.Cut, l.Text[4000:])
	}
}

func TestLinesOfNoFile(t *testing.T) {
	c, dir := newClient(t), t.TempDir()
	if err := unix.Mkfifo(dir+"/fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]unix.Errno{dir + "/fifo": unix.EOPNOTSUPP, "/dev/zero": unix.EOPNOTSUPP,
		dir: unix.EISDIR, dir + "/none": unix.ENOENT} {
		if _, _, err := op(t, c, filesapi.OpLines, path, &filesapi.LinesArgs{Start: 1, Lines: 1, Bytes: 1 << 14,
			LineSize: 100}); !errors.Is(err, want) {
			t.Errorf("%s: %v", path, err)
		}
	}
}
