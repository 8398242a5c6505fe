package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/runtime/api"
)

// segmentsOf makes a log of several files and returns them.
func segmentsOf(t *testing.T, dir, sandbox string, closed bool) (files []string) {
	t.Helper()
	s := defaults()
	s.MaxBytes = 8 << 10
	l := open(t, dir, s)
	for i := range 8 {
		l.say(sandbox, fmt.Sprint("line ", i))
	}
	if closed {
		l.remove(sandbox)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, sandbox, "*.jsonl"))
	if err != nil || len(files) < 3 {
		t.Fatal(files, err)
	}
	return files
}

func edit(t *testing.T, file string, f func(lines [][]byte) [][]byte) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(data, []byte{'\n'})
	if err := os.WriteFile(file, bytes.Join(f(lines[:len(lines)-1]), nil), 0o600); err != nil {
		t.Fatal(err)
	}
}

// rehash makes a changed line one whose own hash is right.
func rehash(t *testing.T, line []byte) []byte {
	t.Helper()
	var r api.AuditRecord
	if err := json.Unmarshal(line, &r); err != nil {
		t.Fatal(err)
	}
	out, err := appendRecord(nil, &r)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func seqOfFile(t *testing.T, file string) (seq int64) {
	t.Helper()
	if _, err := fmt.Sscanf(filepath.Base(file), "%d.jsonl", &seq); err != nil {
		t.Fatal(err)
	}
	return seq
}

// TestTamper: whatever is done to the files, the record is named.
func TestTamper(t *testing.T) {
	for name, c := range map[string]struct {
		tamper func(t *testing.T, dir string, files []string) (seq int64) // of the record to be named
		detail string
	}{
		"byte": {func(t *testing.T, _ string, files []string) int64 {
			edit(t, files[1], func(l [][]byte) [][]byte {
				l[0] = bytes.Replace(l[0], []byte("line"), []byte("lime"),
					1)
				return l
			})
			return seqOfFile(t, files[1])
		}, "the record was changed"},
		"rehashed": {func(t *testing.T, _ string, files []string) int64 {
			edit(t, files[0], func(l [][]byte) [][]byte {
				l[1] = rehash(t, bytes.Replace(l[1], []byte("line"), []byte("lime"), 1))
				return l
			})
			return 3
		}, "does not follow the one before"},
		"newline": {func(t *testing.T, _ string, files []string) int64 {
			edit(t, files[0], func(l [][]byte) [][]byte {
				l[1] = append(l[1][:20:20],
					l[1][19:]...)
				l[1][20] = '\n'
				return l
			})
			return 2
		}, "no record"},
		"removed": {func(t *testing.T, _ string, files []string) int64 {
			edit(t, files[0], func(l [][]byte) [][]byte { return slices.Delete(l, 1, 2) })
			return 2
		}, "records 2 to 2 are missing"},
		"first": {func(t *testing.T, _ string, files []string) int64 {
			edit(t, files[0], func(l [][]byte) [][]byte { return l[1:] })
			return 1
		}, "records 1 to 1 are missing"},
		"reordered": {func(t *testing.T, _ string, files []string) int64 {
			edit(t, files[1], func(l [][]byte) [][]byte { l[0], l[1] = l[1], l[0]; return l })
			return seqOfFile(t, files[1])
		}, "is not where it belongs"},
		"doubled": {func(t *testing.T, _ string, files []string) int64 {
			edit(t, files[0], func(l [][]byte) [][]byte { return slices.Insert(l, 1, l[1]) })
			return 2
		}, "is not where it belongs"},
		"tail": {func(t *testing.T, _ string, files []string) int64 {
			var n int64
			edit(t, files[len(files)-1], func(l [][]byte) [][]byte { n = int64(len(l)); return l[:len(l)-1] })
			return seqOfFile(t, files[len(files)-1]) + n - 1
		}, ""},
		"torn": {func(t *testing.T, _ string, files []string) int64 {
			var n int64
			edit(t, files[len(files)-1], func(l [][]byte) [][]byte {
				n = int64(len(l))
				l[n-1] = l[n-1][:30]
				return l
			})
			return seqOfFile(t, files[len(files)-1]) + n - 1
		}, ""},
		"file": {func(t *testing.T, _ string, files []string) int64 {
			if err := os.Remove(files[1]); err != nil {
				t.Fatal(err)
			}
			return seqOfFile(t, files[1])
		}, "are missing"},
		"oldest file": {func(t *testing.T, _ string, files []string) int64 {
			if err := os.Remove(files[0]); err != nil {
				t.Fatal(err)
			}
			return 1
		}, "no record says that they were dropped"},
		"swapped file": {func(t *testing.T, dir string, files []string) int64 {
			other := segmentsOf(t, dir, "sb_six", true)
			data, err := os.ReadFile(other[1])
			if err == nil {
				err = os.WriteFile(files[1], data, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			return seqOfFile(t, files[1])
		}, "is of sandbox sb_six"},
		"renamed file": {func(t *testing.T, _ string, files []string) int64 {
			if err := os.Rename(files[1], files[1][:len(files[1])-len("x.jsonl")]+"9.jsonl"); err != nil {
				t.Fatal(err)
			}
			return seqOfFile(t, files[1])
		}, ""},
	} {
		for _, closed := range []bool{true, false} {
			t.Run(fmt.Sprint(name, " closed ", closed), func(t *testing.T) {
				dir := t.TempDir()
				files := segmentsOf(t, dir, box, closed)
				if v, err := verifyDir(filepath.Join(dir, box), box, nil, nil); err != nil || !v.OK {
					t.Fatal(v, err)
				}
				seq := c.tamper(t, dir, files)
				v, err := verifyDir(filepath.Join(dir, box), box, nil, nil)
				if err != nil || v.OK {
					t.Fatalf("not found: %+v, %v", v, err)
				}
				if !slices.ContainsFunc(v.Issues, func(b api.AuditBug) bool {
					return b.Seq == seq &&
						strings.Contains(b.Detail, c.detail)
				}) {
					t.Errorf("record %d, %q: not in %+v", seq, c.detail, v.Issues)
				}
			})
		}
	}
}

// TestRewritten: who hashes all of it anew deceives all but those who kept a head.
func TestRewritten(t *testing.T) {
	dir := t.TempDir()
	segmentsOf(t, dir, box, true)
	honest, err := verifyDir(filepath.Join(dir, box), box, nil, nil)
	if err != nil || !honest.OK {
		t.Fatal(honest, err)
	}
	early := honest.Head
	prev := zeros
	files, _ := filepath.Glob(filepath.Join(dir, box, "*.jsonl"))
	for _, f := range files {
		edit(t, f, func(lines [][]byte) [][]byte {
			for i := range lines {
				var r api.AuditRecord
				if err := json.Unmarshal(bytes.Replace(lines[i], []byte("line"), []byte("lime"), 1), &r); err != nil {
					t.Fatal(err)
				}
				r.Prev = prev
				lines[i], _ = appendRecord(nil, &r)
				prev = r.Hash
			}
			return lines
		})
	}
	if v, err := verifyDir(filepath.Join(dir, box), box, nil, nil); err != nil || !v.OK {
		t.Errorf("%+v %v", v, err) // as DESIGN.md says
	}
	v, err := verifyDir(filepath.Join(dir, box), box, nil, []api.AuditHead{early})
	if err != nil || v.OK || v.Issues[0].Seq != early.Seq {
		t.Errorf("%+v %v", v, err)
	}
}
