package guestapi

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// resumed plays PID 1 to a hutchd that takes over execs: it sends what the one before
// has not read, then answers the list.
func resumed(t *testing.T, ids []uint64, unread, list []string) (*Client, map[uint64]*Exec, *guest) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	g := &guest{t: t, fd: fds[1]}
	for _, ev := range unread {
		if err := g.send(ev); err != nil {
			t.Fatal(err)
		}
	}
	g.wg.Go(func() {
		req := g.request()
		if req.Op != OpList || req.Exec == 0 {
			t.Errorf("request %q %d, want %q with an id", req.Op, req.Exec, OpList)
		}
		for _, ev := range append(list, fmt.Sprintf(`{"ev":"listed","exec":%d}`, req.Exec)) {
			if err := g.send(ev); err != nil {
				t.Error(err)
			}
		}
	})
	conn, err := NewSocket(os.NewFile(uintptr(fds[0]), "hutchd"))
	if err != nil {
		t.Fatal(err)
	}
	c, execs, err := Resume(t.Context(), conn, ids)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Close()
		g.wg.Wait()
		_ = unix.Close(g.fd)
	})
	return c, execs, g
}

func TestResume(t *testing.T) {
	c, execs, g := resumed(t, []uint64{1, 2, 3, 4, 5, 6, 7},
		[]string{
			`{"ev":"exited","exec":2,"pid":9,"status":1792}`, // and again below
			`{"ev":"exited","exec":77,"pid":9,"status":0}`,   // on record already
			// The end of the list of a hutchd that was killed while it took over.
			`{"ev":"started","exec":5,"pid":11}`, `{"ev":"listed","exec":12}`,
		},
		[]string{
			`{"ev":"started","exec":1,"pid":8}`,
			`{"ev":"exited","exec":2,"pid":9,"status":1792}`,
			`{"ev":"exited","exec":3,"pid":10,"status":9}`,
			`{"ev":"failed","exec":4,"reason":"not_found","errno":2,"message":"no such"}`,
			`{"ev":"started","exec":5,"pid":11}`,
			`{"ev":"pending","exec":7}`,
			`{"ev":"exited","exec":77,"pid":9,"status":0}`,
		})
	if err := execs[1].Resume(t.Context()); err != nil || execs[1].PID != 8 {
		t.Errorf("one that runs: pid %d, %v", execs[1].PID, err)
	}
	for id, want := range map[uint64]int{2: 7 << 8, 3: 9} {
		if err := execs[id].Resume(t.Context()); err != nil {
			t.Errorf("exec %d, which has ended: %v", id, err)
		}
		if end, err := execs[id].Wait(t.Context()); err != nil || end.Status != want {
			t.Errorf("exec %d: %+v, %v; want status %d", id, end, err, want)
		}
	}
	var se *StartError
	if err := execs[4].Resume(t.Context()); !errors.As(err, &se) || se.Reason != ReasonNotFound {
		t.Errorf("one that failed: %v", err)
	}
	if err := execs[6].Resume(t.Context()); !errors.Is(err, ErrNoExec) {
		t.Errorf("one that was never asked for: %v", err)
	}
	if err := execs[5].Resume(t.Context()); err != nil || execs[5].PID != 11 {
		t.Errorf("one that was told twice: pid %d, %v", execs[5].PID, err)
	}
	if err := g.send(`{"ev":"started","exec":7,"pid":12}`); err != nil {
		t.Fatal(err)
	}
	if err := execs[7].Resume(t.Context()); err != nil || execs[7].PID != 12 {
		t.Errorf("one that was pending: pid %d, %v", execs[7].PID, err)
	}
	// Only what was on record before may be forgotten: the rest when it is.
	execs[3].Ack()
	for _, id := range c.takeAcks() {
		if id != 77 && id != 3 {
			t.Errorf("exec %d is acknowledged, and nobody has put its end on record", id)
		}
	}
}

// TestResumeHostile: a PID 1 that was taken over can only harm its own sandbox.
func TestResumeHostile(t *testing.T) {
	c, execs, _ := resumed(t, []uint64{1}, nil, []string{
		`{"ev":"listed"}`, `{"ev":"exited","exec":2,"status":0}`, `{"ev":"started","exec":9,"pid":2}`,
		`{"ev":"listed","exec":1}`,
	})
	if err := execs[1].Resume(t.Context()); !errors.Is(err, ErrNoExec) {
		t.Errorf("got %v", err)
	}
	if c.Err() != nil {
		t.Errorf("the channel is closed: %v", c.Err())
	}
}
