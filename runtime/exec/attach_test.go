package exec

import (
	"bytes"
	"context"
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/exec/stdio"
	"github.com/hutch-sh/hutch/runtime/exec/stdio/stdiotest"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// newSource is the far end of a stream, which is closed in the end.
func newSource(t testing.TB) (*stdiotest.Source, *stdio.Stream) {
	t.Helper()
	src, files := stdiotest.New(t)
	st := stdio.Open(files, stdiotest.Size, func(int64) {})
	t.Cleanup(st.Close)
	return src, st
}

// spooledExec is an exec with two streams of the test's.
func spooledExec(t testing.TB) (m *Table, r *Exec, out, errs *stdiotest.Source) {
	t.Helper()
	out, st0 := newSource(t)
	errs, st1 := newSource(t)
	r = bareExec("ex_1")
	r.io = &stdio.IO{Streams: []*stdio.Stream{st0, st1}}
	m = New(Config{})
	m.execs[r.id] = r
	return m, r, out, errs
}

func (r *Exec) exit(status int) {
	r.end = guestapi.Event{Status: status << 8}
	close(r.done)
}

// all reads an attachment to its end, and checks the order of what comes.
func all(t *testing.T, a *Attachment, size int) (text [2]string, dropped [2]int64, res *api.ExecResult) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	next := [2]int64{a.From().Stdout, a.From().Stderr}
	buf := make([]byte, size)
	for {
		if err := a.Await(ctx, true, nil); err != nil {
			t.Fatal(err)
		}
		p, ok := a.Next(buf)
		if !ok {
			continue
		}
		if p.Exited != nil {
			if p.Ends != (api.Offsets{Stdout: next[0], Stderr: next[1]}) {
				t.Errorf("ends at %+v, read to %v", p.Ends, next)
			}
			return text, dropped, p.Exited
		}
		i := 0
		if p.Stream == api.Stderr {
			i = 1
		}
		if p.Offset != next[i]+p.Dropped {
			t.Fatalf("%s at %d after %d with %d dropped", p.Stream, p.Offset, next[i], p.Dropped)
		}
		if p.Text && !utf8.Valid(p.Data) {
			t.Errorf("%q is no text", p.Data)
		}
		next[i] = p.Offset + int64(len(p.Data))
		text[i] += string(p.Data)
		dropped[i] += p.Dropped
	}
}

func attach(t testing.TB, m *Table, p api.AttachParams) *Attachment {
	t.Helper()
	p.Exec = "ex_1"
	a, err := m.Attach(p)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestAttachFrom: from any offset, while the exec runs and after its end.
func TestAttachFrom(t *testing.T) {
	m, r, out, errs := spooledExec(t)
	out.Write("0123456789")
	errs.Write("abcdef")
	live := attach(t, m, api.AttachParams{})
	r.exit(3)
	for _, tt := range []struct {
		a         *Attachment
		out, errs string
	}{
		{live, "0123456789", "abcdef"},
		{attach(t, m, api.AttachParams{From: api.Offsets{Stdout: 4, Stderr: 6}}), "456789", ""},
		{attach(t, m, api.AttachParams{From: api.Offsets{Stdout: -3, Stderr: -100}}), "789", "abcdef"},
		{attach(t, m, api.AttachParams{Streams: []api.Stream{api.Stderr}}), "", "abcdef"},
	} {
		text, dropped, res := all(t, tt.a, 4)
		if text != [2]string{tt.out, tt.errs} || dropped != [2]int64{} || res.ExitCode != 3 {
			t.Errorf("from %+v: %q, dropped %v, %+v", tt.a.From(), text, dropped, res)
		}
	}
	if _, err := m.Attach(api.AttachParams{Exec: "ex_2"}); api.ErrorCode(err) != api.NotFound {
		t.Error(err)
	}
}

// TestAttachLive: bytes are pushed as they come, and the end after the last one.
func TestAttachLive(t *testing.T) {
	m, r, out, errs := spooledExec(t)
	a := attach(t, m, api.AttachParams{})
	var want [2]strings.Builder
	go func() {
		for i := range 500 {
			line := strings.Repeat("x", i%97) + "é\n"
			out.Write(line)
			errs.Write(line)
			want[0].WriteString(line)
			want[1].WriteString(line)
		}
		r.exit(0)
	}()
	text, _, _ := all(t, a, 64)
	if text != [2]string{want[0].String(), want[1].String()} {
		t.Errorf("%d and %d bytes, want %d each", len(text[0]), len(text[1]), want[0].Len())
	}
}

// TestAttachGap: a reader that fell behind learns how much it has missed, and sees
// the right bytes behind the gap.
func TestAttachGap(t *testing.T) {
	m, r, out, _ := spooledExec(t)
	a := attach(t, m, api.AttachParams{})
	line := func(i int) string { return string(binary.BigEndian.AppendUint64(nil, uint64(i))) }
	const lines = 1 << 20 // of 8 bytes
	var chunk bytes.Buffer
	for i := range lines {
		chunk.WriteString(line(i))
		if chunk.Len() == 1<<19 {
			out.Write(chunk.String())
			chunk.Reset()
		}
	}
	r.exit(0)
	text, dropped, _ := all(t, a, 1<<18)
	if got := int64(len(text[0])) + dropped[0]; got != lines*8 || dropped[0] == 0 {
		t.Fatalf("%d bytes and %d dropped", len(text[0]), dropped[0])
	}
	head := stdiotest.Size / 4
	for i := 0; i < head/8; i += 1000 {
		if text[0][i*8:i*8+8] != line(i) {
			t.Fatalf("line %d is %q", i, text[0][i*8:i*8+8])
		}
	}
	for i := lines - 1; i > lines-1e5; i -= 1000 {
		if at := i*8 - int(dropped[0]); text[0][at:at+8] != line(i) {
			t.Fatalf("line %d is %q", i, text[0][at:at+8])
		}
	}
}

// TestAttachCredit: without credit no byte is read; the end needs none.
func TestAttachCredit(t *testing.T) {
	m, r, out, _ := spooledExec(t)
	a := attach(t, m, api.AttachParams{})
	out.Write("data")
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := a.Await(short, false, nil); err == nil {
		t.Error("data without credit")
	}
	if p, ok := a.Next(nil); ok {
		t.Errorf("read %+v into nothing", p)
	}
	more := make(chan struct{}, 1)
	more <- struct{}{}
	if err := a.Await(t.Context(), false, more); err != nil {
		t.Fatal(err)
	}
	if p, ok := a.Next(make([]byte, 3)); !ok || string(p.Data) != "dat" {
		t.Errorf("%+v", p)
	}
	// What cannot be read any more does not wait for credit.
	r.exit(0)
	r.io.Forget()
	if err := a.Await(t.Context(), false, nil); err != nil {
		t.Fatal(err)
	}
	if p, ok := a.Next(nil); !ok || p.Dropped != 1 || p.Offset != 4 {
		t.Errorf("%+v", p)
	}
	if p, ok := a.Next(nil); !ok || p.Exited == nil {
		t.Errorf("%+v", p)
	}
}

// TestAttachRunes: text is whole runes whatever comes when and fits where, and no
// byte waits for ever.
func TestAttachRunes(t *testing.T) {
	whole := "aé€😀\n\xff\xfe é"
	for seed := range uint64(60) {
		t.Run("", func(t *testing.T) { // whose pipes are closed: an ordinary user may not have many as large
			runes(t, whole, seed)
		})
	}
}

// runes writes a part of a text in small pieces, and reads it in others.
func runes(t *testing.T, whole string, seed uint64) {
	m, r, out, _ := spooledExec(t)
	a := attach(t, m, api.AttachParams{})
	rnd := rand.New(rand.NewPCG(seed, 1))
	text := whole[:rnd.IntN(len(whole)+1)]
	go func() {
		for rest := text; rest != ""; {
			n := 1 + rnd.IntN(min(3, len(rest)))
			out.Write(rest[:n])
			rest = rest[n:]
		}
		r.exit(0)
	}()
	if got, _, _ := all(t, a, 1+int(seed%5)); got[0] != text {
		t.Fatalf("seed %d: %q, want %q", seed, got[0], text)
	}
	r.io.Forget()
}

// TestAttachMany: thousands of places in one stream, some of which nobody reads.
func TestAttachMany(t *testing.T) {
	m, r, out, _ := spooledExec(t)
	const n = 900
	got := make(chan string, n)
	for i := range n {
		a := attach(t, m, api.AttachParams{})
		if i%3 == 0 {
			continue // never reads
		}
		go func() {
			text, _, _ := all(t, a, 16)
			got <- text[0]
		}()
	}
	for range 5 {
		out.Write("some output\n")
	}
	r.exit(0)
	for range n - n/3 {
		if text := <-got; text != strings.Repeat("some output\n", 5) {
			t.Fatalf("%q", text)
		}
	}
}
