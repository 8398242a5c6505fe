package jsonrpc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/internal/testenv/cost"
)

// piece is one sendmsg: bytes, and how many fds ride on them.
type piece struct {
	data string
	fds  int
}

// want is one answer of ReadLine; fds are numbers of files in the order sent.
type want struct {
	line string
	fds  []int
	err  error
}

func TestReader(t *testing.T) {
	const limit = 100 << 10
	long := strings.Repeat("x", limit)
	tests := []struct {
		name   string
		pieces []piece
		want   []want
	}{
		{"lines", []piece{{"a\nb\n", 0}, {"c\n", 0}}, []want{{line: "a"}, {line: "b"}, {line: "c"}}},
		{"a line in pieces", []piece{{"a", 0}, {"b", 0}, {"c\nd", 0}, {"\n", 0}}, []want{{line: "abc"}, {line: "d"}}},
		{"the last line unfinished", []piece{{"a\nb", 0}}, []want{{line: "a"}, {line: "b"}}},
		{"blank lines", []piece{{"\n \n\r\na\r\n\n", 0}}, []want{{line: "a\r"}}},
		{"nothing", nil, nil},

		{"fds", []piece{{"a\n", 2}, {"b\n", 1}}, []want{{line: "a", fds: []int{0, 1}}, {line: "b", fds: []int{2}}}},
		{"bytes before the fds do not get them", []piece{{"a\nb\nc", 0}, {"d\n", 2}},
			[]want{{line: "a"}, {line: "b"}, {line: "cd", fds: []int{0, 1}}}},
		{"bytes after the fds do not get them", []piece{{"a\n", 1}, {"b\n", 0}},
			[]want{{line: "a", fds: []int{0}}, {line: "b"}}},
		{"two lines in one sendmsg: the last has them", []piece{{"a\nb\n", 1}},
			[]want{{line: "a"}, {line: "b", fds: []int{0}}}},
		{"the end of a sendmsg is in the next line", []piece{{"a\nb", 1}, {"c\n", 1}},
			[]want{{line: "a"}, {line: "bc", fds: []int{0, 1}}}},
		{"fds on every piece of a line", []piece{{"a", 1}, {"b", 2}, {"\n", 1}, {"c\n", 1}},
			[]want{{line: "ab", fds: []int{0, 1, 2, 3}}, {line: "c", fds: []int{4}}}},
		{"fds on a blank line are closed", []piece{{"a\n\n", 1}, {"b\n", 1}},
			[]want{{line: "a"}, {line: "b", fds: []int{1}}}},
		{"as many as allowed on both ends of a read", []piece{{"a", 8}, {"a\nb", 8}, {"b\n", 0}},
			[]want{{line: "aa", fds: []int{0, 1, 2, 3, 4, 5, 6, 7}},
				{line: "bb", fds: []int{8, 9, 10, 11, 12, 13, 14, 15}}}},
		{"unfinished line with fds", []piece{{"a", 1}}, []want{{line: "a", fds: []int{0}}}},

		{"one fd too many", []piece{{"a\n", 9}, {"b\n", 1}},
			[]want{{line: "a", err: ErrTooManyFDs}, {line: "b", fds: []int{9}}}},
		{"far too many fds", []piece{{"a\n", 200}, {"b\n", 1}},
			[]want{{line: "a", err: ErrTooManyFDs}, {line: "b", fds: []int{200}}}},
		{"too many in pieces", slices.Concat(slices.Repeat([]piece{{"a", 3}}, 5), []piece{{"\n", 1}, {"b\n", 1}}),
			[]want{{line: "aaaaa", err: ErrTooManyFDs}, {line: "b", fds: []int{16}}}},

		{"a line of the limit", []piece{{long + "\nb\n", 0}}, []want{{line: long}, {line: "b"}}},
		{"a line over the limit", []piece{{long + "x\nb\n", 0}}, []want{{err: ErrLineTooLong}, {line: "b"}}},
		{"a line far over the limit", []piece{{strings.Repeat(long, 5), 1}, {"y\nb\n", 2}},
			[]want{{err: ErrLineTooLong}, {line: "b", fds: []int{1, 2}}}},
		{"over the limit and never finished", []piece{{long + long, 1}}, []want{{err: ErrLineTooLong}}},
		{"fds of a long line", []piece{{"a" + long[:limit-1], 2}, {"\n", 0}, {"b\n", 0}},
			[]want{{line: "a" + long[:limit-1], fds: []int{0, 1}}, {line: "b"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ours, theirs := pair(t)
			n := 0
			for _, p := range tt.pieces {
				n += p.fds
			}
			files := pipes(t, n)
			ids := inodes(t, files)
			go func() {
				defer theirs.Close()
				at := 0
				for _, p := range tt.pieces {
					sendPiece(theirs, p, files[at:at+p.fds])
					at += p.fds
				}
			}()
			r := NewReader(ours, limit, LongLines{})
			defer r.Close()
			for i, w := range tt.want {
				line, got, err := r.ReadLine()
				if errors.Is(err, ErrLineTooLong) {
					line = nil // its begin: TestLongLineID
				}
				if !errors.Is(err, w.err) || string(line) != w.line {
					t.Fatalf("line %d: %.40q, %v; want %.40q, %v", i, line, err, w.line, w.err)
				}
				wantIDs := []uint64{}
				for _, k := range w.fds {
					wantIDs = append(wantIDs, ids[k])
				}
				if gotIDs := inodes(t, got); !slices.Equal(gotIDs, wantIDs) {
					t.Errorf("line %d: fds %v, want %v", i, gotIDs, wantIDs)
				}
				closeFiles(got)
			}
			if _, _, err := r.ReadLine(); err != io.EOF {
				t.Errorf("after the last line: %v, want EOF", err)
			}
		})
	}
}

// sendPiece is one sendmsg, as long as it fits the socket's buffer, without
// Send's limit on fds.
func sendPiece(conn interface {
	WriteMsgUnix([]byte, []byte, *addr) (int, int, error)
	Write([]byte) (int, error)
}, p piece, files []*os.File) {
	n := 0
	if len(files) > 0 {
		_ = withFDs(files, nil, func(fds []int) error {
			n, _, _ = conn.WriteMsgUnix([]byte(p.data), unix.UnixRights(fds...), nil)
			return nil
		})
	}
	_, _ = conn.Write([]byte(p.data[n:]))
}

// TestReaderOutOfFDs: the kernel installs what it can and drops the rest; the
// answer must say so and keep nothing.
func TestReaderOutOfFDs(t *testing.T) {
	ours, theirs := pair(t)
	files := pipes(t, 3)
	sendPiece(theirs, piece{data: "a\n"}, files)
	sendPiece(theirs, piece{data: "b\n"}, files)
	r := NewReader(ours, 100, LongLines{})
	defer r.Close()

	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	lowest, err := duplicate(files[0]) // the next free fd
	if err != nil {
		t.Fatal(err)
	}
	next := uint64(lowest.Fd())
	_ = lowest.Close()
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: next + 1, Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	line, got, err := r.ReadLine()
	if rerr := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); rerr != nil {
		t.Fatal(rerr)
	}
	if string(line) != "a" || len(got) != 0 || !errors.Is(err, ErrLostFDs) {
		t.Errorf("%q, %d fds, %v", line, len(got), err)
	}
	line, got, err = r.ReadLine()
	if string(line) != "b" || len(got) != 3 || err != nil {
		t.Errorf("%q, %d fds, %v", line, len(got), err)
	}
	closeFiles(got)
}

// TestReaderCloses sends fds with all that makes a reader drop them; the leak
// check of the package counts.
func TestReaderCloses(t *testing.T) {
	ours, theirs := pair(t)
	sendPiece(theirs, piece{data: "unfinished"}, pipes(t, 3))
	r := NewReader(ours, 100, LongLines{})
	_ = ours.SetReadDeadline(past)
	if _, _, err := r.ReadLine(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	r.Close()
}

// FuzzReader compares the reader with a model for any split of any bytes into
// sendmsgs with fds.
func FuzzReader(f *testing.F) {
	f.Add([]byte("a\nb\n"), []byte{2, 1})
	f.Add([]byte("abc\n\n\ndef"), []byte{1, 0, 1, 9, 3})
	f.Add(bytes.Repeat([]byte("x"), 300), []byte{0xff, 0x13})
	f.Fuzz(func(t *testing.T, data, cuts []byte) {
		const limit = 64
		if len(data) > 4<<10 || len(cuts) > 64 {
			return
		}
		ours, theirs := pair(t)
		file := pipes(t, 1)[0]
		counts := make(map[int]int) // fds by the index of their last byte
		rest, at := data, 0
		for _, c := range cuts {
			n := min(int(c&0x1f)+1, len(rest))
			if n == 0 {
				break
			}
			at += n
			k := int(c>>5) % 5
			sendPiece(theirs, piece{data: string(rest[:n])}, slices.Repeat([]*os.File{file}, k))
			counts[at-1] += k
			rest = rest[n:]
		}
		sendPiece(theirs, piece{data: string(rest)}, nil)
		_ = theirs.CloseWrite()

		r := NewReader(ours, limit, LongLines{})
		for i, w := range model(data, counts, limit) {
			var line []byte
			var files []*os.File
			var err error
			cost.Once(t, len(data), func() { line, files, err = r.ReadLine() })
			if errors.Is(err, ErrLineTooLong) {
				line = nil
			}
			got := fmt.Sprintf("%q %d %v", line, len(files), err)
			closeFiles(files)
			if got != w {
				t.Fatalf("line %d: %s, want %s", i, got, w)
			}
		}
		if _, _, err := r.ReadLine(); err != io.EOF {
			t.Fatalf("at the end: %v", err)
		}
		r.Close()
	})
}

// model is what the rules in the package comment say about data.
func model(data []byte, counts map[int]int, limit int) []string {
	var out []string
	start := 0
	for start < len(data) {
		end := bytes.IndexByte(data[start:], '\n')
		last := start + end
		if end < 0 {
			last = len(data) - 1
			end = len(data) - start
		}
		line, fds := data[start:start+end], 0
		for i := start; i <= last; i++ {
			fds += counts[i]
		}
		switch {
		case len(line) > limit:
			out = append(out, fmt.Sprintf("%q %d %v", "", 0, ErrLineTooLong))
		case fds > MaxFDs:
			out = append(out, fmt.Sprintf("%q %d %v", line, 0, ErrTooManyFDs))
		case len(bytes.TrimSpace(line)) > 0:
			out = append(out, fmt.Sprintf("%q %d %v", line, fds, error(nil)))
		}
		start = last + 1
	}
	return out
}

// TestLongLines: lines that do not fit into what each Reader has take turns; who does not end one makes room, with its
// connection.
func TestLongLines(t *testing.T) {
	const size = 4 * readChunk
	long := strings.Repeat("x", size)
	places := make(chan struct{}, 1)
	type read struct {
		n   int
		err error
	}
	start := func(wait, whole time.Duration) (theirs *net.UnixConn, got chan read) {
		ours, theirs := pair(t)
		r, got := NewReader(ours, 2*size, LongLines{places, wait, whole}), make(chan read, 10)
		go func() {
			defer close(got)
			defer r.Close()
			for {
				line, _, err := r.ReadLine()
				got <- read{len(line), err}
				if err != nil && !errors.Is(err, ErrBusy) {
					return
				}
			}
		}()
		return theirs, got
	}
	send := func(to *net.UnixConn, data string) {
		t.Helper()
		if _, err := to.Write([]byte(data)); err != nil {
			t.Error(err)
		}
	}
	taken := func() bool { return len(places) == 1 }

	first, firstGot := start(0, time.Hour)
	send(first, long) // without an end
	testenv.Poll(t, time.Minute, "the first has no turn", taken)
	second, secondGot := start(0, time.Hour)
	go send(second, long+"\nshort\n")
	if r := <-secondGot; !errors.Is(r.err, ErrBusy) {
		t.Errorf("%+v, want busy", r)
	}
	if r := <-secondGot; r.err != nil || r.n != 5 { // short ones need no turn
		t.Errorf("%+v, want the short line", r)
	}
	send(first, "\nx") // the begin of another one, which is short so far
	if r := <-firstGot; r.err != nil || r.n != size {
		t.Errorf("%+v, want the first line", r)
	}
	testenv.Poll(t, time.Minute, "the first keeps its turn", func() bool { return !taken() })

	// A line that does not end keeps its turn for a time, and then others have theirs.
	slow, slowGot := start(0, 10*time.Millisecond)
	go func() { _, _ = slow.Write([]byte(long)) }() // which nobody reads to the end
	testenv.Poll(t, time.Minute, "the slow one has no turn", func() bool { return taken() || len(slowGot) > 0 })
	patient, patientGot := start(time.Hour, time.Hour)
	go send(patient, long+"\n")
	if r := <-slowGot; !errors.Is(r.err, os.ErrDeadlineExceeded) {
		t.Errorf("%+v, want the end of the connection", r)
	}
	if r := <-patientGot; r.err != nil || r.n != size {
		t.Errorf("%+v, want the line that waited", r)
	}
	for _, c := range []*net.UnixConn{first, second, slow, patient} {
		_ = c.Close()
	}
	for _, got := range []chan read{firstGot, secondGot, slowGot, patientGot} {
		for range got { // until its Reader is closed
			continue
		}
	}
	if taken() {
		t.Error("a turn is left over")
	}
}
