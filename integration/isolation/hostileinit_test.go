package isolation_test

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/integration/world"
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
	testenv.Suite(t, "slow")
	testenv.Root(t)
	w := world.New(t)
	w.LogOnFailure(t)
	c := w.Dial(t)
	bystander := c.SandboxOf(nil)
	waiting := c.Start("exec.run", world.Params{"sandbox": bystander, "command": "sleep infinity; echo",
		"progress": true})
	c.Note()
	hutchd := w.Daemon(t).Hutchd
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
			for !world.Ended(pid, 0) {
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
			c.Call(&sb, "sandbox.create", world.Params{"image": "host"})
			call := c.Start("exec.run", world.Params{"sandbox": sb.ID, "argv": []string{"sleep", "infinity"},
				"progress": true})
			c.Note()
			tt.attack(channelOf(t, sb.PID), sb.PID)
			m := call.Wait()
			if m.Error != nil {
				t.Fatalf("exec.run: %s", m.Error)
			}
			if res := world.Decode[world.ExecResult](t, string(m.Result)); res.Verdict != "sandbox" ||
				res.ExitCode != 137 {
				t.Errorf("exec.run: %+v", res)
			}
			if !world.Ended(sb.PID, world.Patience) {
				t.Fatal("PID 1 is alive")
			}
			if c.Call(&sb, "sandbox.get", world.Params{"sandbox": sb.ID}); sb.State != "failed" ||
				!strings.Contains(sb.Reason, tt.reason) {
				t.Errorf("%+v", sb)
			}
			c.Refused("failed_precondition", "exec.run", world.Params{"sandbox": sb.ID, "argv": []string{"true"}})
			c.Call(nil, "sandbox.remove", world.Params{"sandbox": sb.ID})
			if res := c.Exec(bystander, "echo fine"); res.Stdout != "fine\n" {
				t.Errorf("the bystander: %+v", res)
			}
		})
	}
	waiting.Cancel()
	if m := waiting.Wait(); m.Error == nil || m.Error.Data.Code != "canceled" {
		t.Errorf("the bystander's exec: %s", m.Result)
	}
	if now := w.Daemon(t).Hutchd; now != hutchd {
		t.Errorf("hutchd %d was replaced by %d", hutchd, now)
	}
}
