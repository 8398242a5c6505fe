package jsonrpc

import (
	"bufio"
	"bytes"
	"errors"
	"net"
	"os"
	"testing"
	"time"
)

type addr = net.UnixAddr

var past = time.Unix(1, 0)

func TestWriterFlushesOnClose(t *testing.T) {
	ours, theirs := pair(t)
	w := NewWriter(ours)
	const n = 2000
	line := bytes.Repeat([]byte("x"), 1000) // more than the socket holds
	for range n {
		if err := w.Write(line); err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	if err := w.Write(line); !errors.Is(err, ErrClosed) {
		t.Errorf("write after close: %v", err)
	}
	got, s := 0, bufio.NewScanner(theirs)
	for s.Scan() {
		if !bytes.Equal(s.Bytes(), line) {
			t.Fatalf("line %d is %d bytes", got, len(s.Bytes()))
		}
		got++
	}
	if got != n || s.Err() != nil {
		t.Errorf("%d lines of %d, %v", got, n, s.Err())
	}
	<-w.Done()
	if err := w.Err(); err != nil {
		t.Error(err)
	}
}

func TestWriterGivesUpOnSlowReader(t *testing.T) {
	tests := []struct {
		name    string
		timeout time.Duration
		fill    func(w *Writer)
	}{
		{"nothing read for the time-out", 20 * time.Millisecond, func(w *Writer) {
			_ = w.Write(make([]byte, 4<<20))
		}},
		{"too much queued", time.Hour, func(w *Writer) {
			for w.Write(make([]byte, 8<<20)) == nil {
			}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ours, _ := pair(t)
			w := newWriter(ours, tt.timeout)
			tt.fill(w)
			<-w.Done()
			if err := w.Err(); !errors.Is(err, ErrSlowReader) {
				t.Errorf("%v, want ErrSlowReader", err)
			}
			if err := w.Write([]byte("x")); !errors.Is(err, ErrSlowReader) {
				t.Errorf("write afterwards: %v", err)
			}
			if _, err := ours.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
				t.Errorf("the connection is still open: %v", err)
			}
		})
	}
}

// TestWriterPatience: a client that reads slowly, but reads, is not given up.
func TestWriterPatience(t *testing.T) {
	ours, theirs := pair(t)
	const timeout = time.Second
	w := newWriter(ours, timeout)
	const size = 3 << 20
	if err := w.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	w.Close()
	tick := time.NewTicker(timeout / 20)
	defer tick.Stop()
	start, got, buf := time.Now(), 0, make([]byte, 128<<10)
	for got < size+1 {
		<-tick.C
		n, err := theirs.Read(buf)
		got += n
		if err != nil {
			t.Fatalf("after %d bytes: %v (%v)", got, err, w.Err())
		}
	}
	if d := time.Since(start); d < timeout {
		t.Errorf("the test read too fast to prove anything: %v", d)
	}
	<-w.Done()
}

func TestTryWriteDropsNews(t *testing.T) {
	ours, _ := pair(t)
	w := NewWriter(ours)
	if !w.TryWrite([]byte("x")) {
		t.Error("an empty queue refused news")
	}
	if err := w.Write(make([]byte, 4<<20)); err != nil {
		t.Fatal(err)
	}
	if w.TryWrite([]byte("x")) {
		t.Error("news queued behind 4 MiB")
	}
	w.Abort(errors.New("enough"))
	<-w.Done()
}

func TestFDs(t *testing.T) {
	files := pipes(t, 3)
	ids := inodes(t, files)
	var mine []*os.File
	for _, f := range files {
		d, err := duplicate(f)
		if err != nil {
			t.Fatal(err)
		}
		mine = append(mine, d)
	}
	fds := NewFDs(mine)
	take := func(i int) *os.File {
		t.Helper()
		f, err := fds.Take(i)
		if err != nil {
			t.Fatal(err)
		}
		if inode(t, f) != ids[i] {
			t.Errorf("index %d is another file", i)
		}
		return f
	}
	a, b := take(1), take(1)
	if a.Fd() == b.Fd() {
		t.Error("taking an index twice gave the same fd twice")
	}
	for _, i := range []int{-1, 3, 1 << 40} {
		if f, err := fds.Take(i); err == nil {
			t.Errorf("index %d: %v", i, f)
		}
	}
	fds.Close()
	fds.Close()
	if _, err := a.Stat(); err != nil {
		t.Error("a taken fd was closed:", err)
	}
	if _, err := mine[0].Stat(); !errors.Is(err, os.ErrClosed) {
		t.Error("a left fd was not closed:", err)
	}
	if _, err := fds.Take(0); err == nil {
		t.Error("took from closed fds")
	}
	closeFiles([]*os.File{a, b})

	var none *FDs
	none.Close()
	if _, err := none.Take(0); err == nil || none.Len() != 0 {
		t.Error("a nil FDs has fds")
	}
}
