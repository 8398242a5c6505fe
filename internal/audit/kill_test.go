package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/internal/testenv/cost"
	"github.com/hutch-sh/hutch/runtime/api"
)

func writeForEver(dir string) error {
	s := defaults()
	s.MaxBytes = 64 << 10
	l, err := Open(dir, s, nil)
	if err != nil {
		return err
	}
	for i := 0; ; i++ {
		l.say(box, strings.Repeat("x", rand.IntN(2000)))
		if i%3 == 0 {
			if err := l.Sync(context.Background()); err != nil {
				return err
			}
		}
		if i == 20 {
			fmt.Println("writing")
		}
	}
}

// TestKill: after kill -9 at any moment the next one goes on, the log says so, and it
// verifies, before and after.
func TestKill(t *testing.T) {
	dir := t.TempDir()
	for round := range 50 {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), "AUDIT_WRITER="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 8)); err != nil {
			t.Fatal(err)
		}
		testenv.RandomMoment(10 * time.Millisecond)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		v, err := verifyDir(filepath.Join(dir, box), box, nil, nil)
		if err != nil || !v.OK {
			t.Fatalf("round %d: %+v, %v", round, v, err)
		}
		if round%10 == 3 { // what a kill cannot do but a machine that stops can
			tear(t, filepath.Join(dir, box))
		}
	}
	l := open(t, dir, defaults())
	l.remove(box)
	if v := verify(t, l, box, nil); !v.OK || v.Resumed == 0 {
		t.Errorf("%+v", v)
	}
}

// tear puts half a record behind the last.
func tear(t *testing.T, dir string) {
	t.Helper()
	firsts, err := listSegments(dir)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(dir, segmentName(firsts[len(firsts)-1])), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(`{"seq":12345,"time":"20`); err != nil {
		t.Fatal(err)
	}
}

// TestTorn: half a record is cut off, and the log says what it was.
func TestTorn(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, defaults())
	l.say(box, "a")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	tear(t, filepath.Join(dir, box))
	l = open(t, dir, defaults())
	l.say(box, "b")
	r := all(t, l, box)[3]
	var res api.AuditResumption
	if err := json.Unmarshal(r.Data, &res); err != nil || res.Torn == nil || res.Torn.Bytes != 23 ||
		res.MissingFrom != 0 {
		t.Errorf("%s %v", r.Data, err)
	}
	if v := verify(t, l, box, nil); !v.OK {
		t.Errorf("%+v", v)
	}
	// Records that were there and are not, are missed.
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	edit(t, filepath.Join(dir, box, segmentName(1)), func(lines [][]byte) [][]byte { return lines[:len(lines)-2] })
	l = open(t, dir, defaults())
	l.say(box, "c")
	v := verify(t, l, box, nil)
	if v.OK || v.Issues[0].Seq != 5 || !strings.Contains(v.Issues[0].Detail, "records 5 to 6 are missing") {
		t.Errorf("%+v", v)
	}
}

func FuzzRead(f *testing.F) {
	line, err := appendRecord(nil, &api.AuditRecord{Seq: 1, Kind: api.AuditOpened, Sandbox: box, Prev: zeros})
	if err != nil {
		f.Fatal(err)
	}
	second, _ := appendRecord(nil, &api.AuditRecord{Seq: 2, Kind: api.AuditClosed, Sandbox: box,
		Prev: digest([]byte("x"))})
	f.Add(line, []byte{})
	f.Add(append(slices.Clone(line), second...), headLine(api.AuditHead{Seq: 2, Hash: zeros}))
	f.Add([]byte("{\"seq\":1,\n\n\n"), []byte("00000000000000000009 x\n"))
	path := filepath.Join(f.TempDir(), "f")
	f.Fuzz(func(t *testing.T, data, head []byte) {
		if h, ok := parseHead(head); ok && !bytes.Equal(headLine(h), head) {
			t.Errorf("%q", head)
		}
		var v api.AuditVerified
		var err error
		cost.Input(t, data, func(data []byte) { v, err = VerifyStream(bytes.NewReader(data), "f") })
		if err != nil {
			t.Fatal(err)
		}
		// What verifies is a chain from its beginning, byte for byte.
		if v.OK {
			prev := zeros
			for l := range bytes.Lines(data) {
				r, sum, err := parseRecord(bytes.TrimSuffix(l, []byte{'\n'}))
				if err != nil || sum != r.Hash || v.First == 1 && r.Prev != prev {
					t.Fatalf("%q %v", l, err)
				}
				prev = r.Hash
			}
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		var r api.AuditRecord
		var size int64
		var torn []byte
		cost.Of(t, len(data), func() { r, size, torn, err = lastRecord(path) })
		if err != nil || r.Seq > 0 && int(size)+len(torn) != len(data) {
			t.Fatal(r, size, len(torn), err)
		}
	})
}

// BenchmarkNote is what a caller pays, BenchmarkWrite all of it.
func BenchmarkNote(b *testing.B) { benchmark(b, 0) }

func BenchmarkWrite(b *testing.B) { benchmark(b, 100) }

func benchmark(b *testing.B, batch int) {
	l := open(b, b.TempDir(), defaults())
	i := 0
	for b.Loop() {
		l.say(box, "a command line of some length, as they are")
		if i++; batch > 0 && i%batch == 0 {
			_ = l.Sync(b.Context())
		}
	}
	_ = l.Sync(b.Context())
}
