package integration_test

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// channelOf takes PID 1's own end of its channel to hutchd: only the host's root can,
// nothing inside the sandbox. Whoever holds it speaks for PID 1.
func channelOf(t *testing.T, pid int) int {
	t.Helper()
	const channelFD = 3 // runtime/guest/guestapi
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pidfd)
	fd, err := unix.PidfdGetfd(pidfd, channelFD, 0)
	if err != nil {
		testenv.Require(t, probe.Check{Name: "pidfd_getfd", Status: probe.No, Detail: err.Error()})
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// TestHostileInit: a PID 1 that says what hutch-init never says costs its own sandbox, and
// nobody else anything.
func TestHostileInit(t *testing.T) {
	testenv.Root(t)
	w := newWorld(t)
	w.logOnFailure(t)
	c := w.dial(t)
	bystander := c.sandboxOf(nil)
	waiting := c.start("exec.run", params{"sandbox": bystander, "command": "sleep infinity; echo", "progress": true})
	c.note()
	hutchd := w.daemon(t).hutchd
	send := func(fd int, packet string) error {
		return unix.Sendmsg(fd, []byte(packet), nil, nil, unix.MSG_NOSIGNAL)
	}
	flood := `{"ev":"failed","exec":5,"reason":"internal","message":"` + strings.Repeat("x", 3000) + `"}`
	for _, tt := range []struct {
		name   string
		attack func(fd, pid int)
		reason string
	}{
		{"garbage", func(fd, _ int) { _ = send(fd, "\x00\xff") }, "broke the protocol"},
		{"another's words", func(fd, _ int) { _ = send(fd, `{"op":"setup"}`) }, "broke the protocol"},
		{"oversize", func(fd, _ int) {
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 1<<20)
			_ = send(fd, `{"ev":"ready","message":"`+strings.Repeat("x", 300<<10)+`"}`)
		}, "broke the protocol"},
		{"flood", func(fd, pid int) {
			// hutch-launch's duplicate keeps the other end open when hutchd reads no more.
			for !ended(pid, 0) {
				if send(fd, flood) != nil {
					_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, 10)
				}
			}
		}, "broke the protocol"},
		{"silence", func(fd, _ int) { _ = unix.Shutdown(fd, unix.SHUT_RDWR) }, "PID 1 e"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var sb struct {
				ID, State, Reason string
				PID               int
			}
			c.call(&sb, "sandbox.create", params{"image": "host"})
			call := c.start("exec.run", params{"sandbox": sb.ID, "argv": []string{"sleep", "infinity"}, "progress": true})
			c.note()
			tt.attack(channelOf(t, sb.PID), sb.PID)
			m := call.wait()
			if m.Error != nil {
				t.Fatalf("exec.run: %s", m.Error)
			}
			if res := decode[execResult](t, string(m.Result)); res.Verdict != "sandbox" || res.ExitCode != 137 {
				t.Errorf("exec.run: %+v", res)
			}
			if !ended(sb.PID, patience) {
				t.Fatal("PID 1 is alive")
			}
			if c.call(&sb, "sandbox.get", params{"sandbox": sb.ID}); sb.State != "failed" || !strings.Contains(sb.Reason, tt.reason) {
				t.Errorf("%+v", sb)
			}
			c.refused("failed_precondition", "exec.run", params{"sandbox": sb.ID, "argv": []string{"true"}})
			c.call(nil, "sandbox.remove", params{"sandbox": sb.ID})
			if res := c.exec(bystander, "echo fine"); res.Stdout != "fine\n" {
				t.Errorf("the bystander: %+v", res)
			}
		})
	}
	waiting.cancel()
	if m := waiting.wait(); m.Error == nil || m.Error.Data.Code != "canceled" {
		t.Errorf("the bystander's exec: %s", m.Result)
	}
	if now := w.daemon(t).hutchd; now != hutchd {
		t.Errorf("hutchd %d was replaced by %d", hutchd, now)
	}
}
