package client

import (
	"bufio"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
)

// TestNotRun: a call that the daemon has not even read can be made again, one that it has read cannot.
func TestNotRun(t *testing.T) {
	for name, tt := range map[string]struct {
		peer func(t *testing.T, conn *net.UnixConn)
		late bool // the call is made when the other end is closed
		want bool
	}{
		"closed before": {func(*testing.T, *net.UnixConn) {}, true, true},
		"unread": {func(t *testing.T, conn *net.UnixConn) {
			rc, err := conn.SyscallConn()
			if err != nil {
				t.Error(err)
				return
			}
			if err := rc.Read(func(fd uintptr) bool { return readable(int(fd)) }); err != nil {
				t.Error(err)
			}
		}, false, true},
		"read": {func(t *testing.T, conn *net.UnixConn) {
			if _, err := bufio.NewReader(conn).ReadString('\n'); err != nil {
				t.Error(err)
			}
		}, false, false},
		"refused": {func(t *testing.T, conn *net.UnixConn) {
			if _, err := bufio.NewReader(conn).ReadString('\n'); err != nil {
				t.Error(err)
			}
			const refusal = `{"jsonrpc":"2.0","id":1,"error":{"code":-32004,"message":"another build","data":{"code":"failed_precondition","field":"if_build"}}}` + "\n"
			if _, err := conn.Write([]byte(refusal)); err != nil {
				t.Error(err)
			}
		}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs, err := connectedPair()
			if err != nil {
				t.Fatal(err)
			}
			peer, err := net.FileConn(theirs)
			if err != nil {
				t.Fatal(err)
			}
			_ = theirs.Close()
			done := make(chan struct{})
			go func() {
				defer close(done)
				tt.peer(t, peer.(*net.UnixConn))
				_ = peer.Close()
			}()
			if tt.late {
				<-done
			}
			c := New(ours)
			defer c.Close()
			if tt.late {
				<-c.Done()
			}
			_, err = c.RunNew(t.Context(), api.RunParams{Sandbox: &api.Spec{Image: "host"}, IfBuild: IfBuild()}, nil,
				nil, nil)
			if err == nil || NotRun(err) != tt.want {
				t.Errorf("%v: not run: %v, want %v", err, NotRun(err), tt.want)
			}
			<-done
		})
	}
}

// readable waits until there is something to read, and leaves it there.
func readable(fd int) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return n > 0 || err != nil
}
