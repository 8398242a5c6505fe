package launch

import (
	"bytes"
	"io"
	"os"
	"testing"
)

// mirrorTo returns a mirror that runs, the caller's end, and what is closed when the
// mirror has ended.
func mirrorTo(t *testing.T) (m *mirror, caller *os.File, ended chan struct{}) {
	t.Helper()
	caller, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = caller.Close() })
	if m, err = newMirror(w); err != nil {
		t.Fatal(err)
	}
	ended = make(chan struct{})
	go func() {
		defer close(ended)
		m.run()
	}()
	return m, caller, ended
}

// TestMirror: the caller gets every byte in order, and then the end.
func TestMirror(t *testing.T) {
	m, caller, ended := mirrorTo(t)
	read := make(chan []byte)
	go func() {
		data, _ := io.ReadAll(caller)
		read <- data
	}()
	var want []byte
	for i := range 1000 {
		piece := bytes.Repeat([]byte{byte(i)}, 1000)
		m.await(maxMirrored)
		m.add(piece)
		want = append(want, piece...)
	}
	m.finish()
	<-ended // and with it the caller's file is closed
	if got := <-read; !bytes.Equal(got, want) {
		t.Errorf("%d bytes arrived, want %d that are the same", len(got), len(want))
	}
	m.add([]byte("late")) // is for nobody
	m.await(0)
}

// TestMirrorAhead: the terminal waits for a caller that is there.
func TestMirrorAhead(t *testing.T) {
	m, caller, ended := mirrorTo(t)
	m.add(make([]byte, 1<<20)) // more than the pipe takes
	m.await(1)                 // it is being written
	m.add(make([]byte, maxMirrored))
	waited := make(chan struct{})
	go func() {
		m.await(maxMirrored)
		close(waited)
	}()
	// As long as the write is under way what was added second waits.
	if _, err := io.ReadFull(caller, make([]byte, 1<<19)); err != nil {
		t.Fatal(err)
	}
	select {
	case <-waited:
		t.Fatal("the terminal goes on although its caller is 64 KiB behind")
	default:
	}
	go func() { _, _ = io.Copy(io.Discard, caller) }()
	<-waited
	m.finish()
	<-ended
}

// TestMirrorLeave: a caller who leaves holds up nobody.
func TestMirrorLeave(t *testing.T) {
	m, caller, ended := mirrorTo(t)
	m.add(make([]byte, 1<<20))
	_ = caller.Close() // in the middle of a write, or before it
	<-ended
	m.await(0)
	m.add([]byte("for nobody"))
	if len(m.ahead) > 0 {
		t.Errorf("%d bytes are kept for a caller who has left", len(m.ahead))
	}
	m.finish()
}

// TestMirrorClose: the end of everything does not wait for a caller who does not read.
func TestMirrorClose(t *testing.T) {
	m, _, ended := mirrorTo(t)
	m.add(make([]byte, 1<<20))
	finished := make(chan struct{})
	go func() {
		m.finish()
		close(finished)
	}()
	m.close()
	<-finished
	<-ended
}
