package run_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
	hutch "github.com/hutch-sh/hutch/runtime/client"
)

func runHost(command string, change ...func(*api.Spec)) api.RunParams {
	spec := &api.Spec{Image: "host"}
	for _, fn := range change {
		fn(spec)
	}
	return api.RunParams{Sandbox: spec, Exec: api.ExecParams{Command: command}}
}

// TestRunNew: one call makes a sandbox, runs a command and removes it, and whatever becomes of the command, nobody
// finds the sandbox when it is answered.
func TestRunNew(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	w := world.New(t)
	c := w.Connect(t)
	gone := func(t *testing.T, r *hutch.Run) {
		t.Helper()
		sb, err := r.Sandbox()
		if err != nil || !strings.HasPrefix(sb.ID, "sb_") || sb.State != api.Running {
			t.Fatalf("%+v, %v", sb, err)
		}
		if _, err := c.GetSandbox(t.Context(), sb.ID); api.ErrorCode(err) != api.NotFound {
			t.Errorf("the sandbox: %v", err)
		}
	}
	t.Run("result", func(t *testing.T) {
		r, err := c.RunNew(t.Context(), runHost("echo out; echo err >&2; exit 3"), nil, nil, nil)
		if err != nil || r.Exec.Stdout != "out\n" || r.Exec.Stderr != "err\n" || r.Exec.ExitCode != 3 ||
			r.Exec.Verdict != api.VerdictNonzero {
			t.Fatalf("%+v, %v", r.Exec, err)
		}
		gone(t, &r)
	})
	t.Run("name", func(t *testing.T) {
		for range world.Rounds(50) { // free at once
			r, err := c.RunNew(t.Context(), runHost("true", func(s *api.Spec) { s.Name = "box" }), nil, nil, nil)
			if err != nil || r.Exec.ExitCode != 0 {
				t.Fatalf("%+v, %v", r.Exec, err)
			}
			gone(t, &r)
		}
	})
	t.Run("volume", func(t *testing.T) { // and its folder is what it was when the call was answered
		for i := range world.Rounds(10) {
			p := runHost("echo x >>/v/f; (setsid sh -c 'while :; do echo y >>/v/f; done' >/dev/null 2>&1 &)",
				func(s *api.Spec) {
					s.Mounts = []api.Mount{{Volume: "v", Target: "/v", Mode: api.ModeRW}}
				})
			r, err := c.RunNew(t.Context(), p, nil, nil, nil)
			if err != nil || r.Exec.ExitCode != 0 {
				t.Fatalf("%+v, %v", r.Exec, err)
			}
			if err := c.RemoveVolume(t.Context(), "v"); err != nil {
				t.Errorf("round %d: %v", i, err)
			}
			w.OK(t, "run", "-v", "w:/w", "host", "--", "touch", "/w/f")
			w.OK(t, "volume", "rm", "w")
		}
	})
	t.Run("image", func(t *testing.T) {
		w.ImportTiny(t, "base:1")
		p := api.RunParams{Sandbox: &api.Spec{Image: "base:1", User: "0"},
			Exec: api.ExecParams{Command: "echo x >/dir/b"}}
		if r, err := c.RunNew(t.Context(), p, nil, nil, nil); err != nil || r.Exec.ExitCode != 0 {
			t.Fatalf("%+v, %v", r.Exec, err)
		}
		if err := c.RemoveImage(t.Context(), "base:1"); err != nil {
			t.Error(err)
		}
		w.AwaitNoSandbox(t)
		if left, _ := os.ReadDir(filepath.Join(w.Root(), "data/images/layers")); len(left) > 0 {
			t.Errorf("layers of an image that nothing has: %v", left)
		}
	})
	t.Run("quota", func(t *testing.T) {
		var wg sync.WaitGroup
		for range 60 {
			wg.Go(func() {
				if r, err := c.RunNew(t.Context(), runHost("echo $((6*7))"), nil, nil, nil); err != nil ||
					r.Exec.Stdout != "42\n" {
					t.Errorf("%+v, %v", r.Exec, err)
				}
			})
		}
		wg.Wait()
		w.AwaitNoSandbox(t)
	})
	// by the command: it has ended when the call is answered, and wrote nothing since
	t.Run("left behind", func(t *testing.T) {
		dir := w.Sub(t, "work")
		for i, way := range []string{"", "--workspace"} {
			args := []string{"run", "host", "--", "sh", "-c",
				"for i in 1 2 3; do (setsid sleep 31415926 >/dev/null 2>&1 </dev/null &); done"}
			if way != "" {
				args = append([]string{"run", way, dir + ":rw"}, args[1:]...)
				args[len(args)-1] = "(setsid sh -c 'trap \"\" TERM; while :; do echo x >>log; done' >/dev/null 2>&1 &); until [ -s log ]; do :; done"
			}
			w.OK(t, args...)
			size := func() int64 {
				st, err := os.Stat(filepath.Join(dir, "log"))
				if err != nil {
					return 0
				}
				return st.Size()
			}
			was := size()
			names, _ := filepath.Glob("/proc/[0-9]*/cmdline")
			for _, name := range names {
				if text, err := os.ReadFile(name); err == nil && string(text) == "sleep\x0031415926\x00" {
					t.Errorf("round %d: %s", i, name)
				}
			}
			if way != "" && (was == 0 || size() != was) {
				t.Errorf("the log has %d bytes, then %d", was, size())
			}
		}
	})
	t.Run("canceled", func(t *testing.T) {
		for i := range world.Rounds(20) {
			ctx, cancel := context.WithCancel(t.Context())
			p := runHost("echo here; sleep infinity")
			p.Exec.Exec = fmt.Sprintf("ex_canceled%d", i)
			_, err := c.RunNew(ctx, p, nil, nil, func(n api.Progress) {
				if n.Kind == "exec.started" {
					if n.Exec != p.Exec.Exec || !strings.HasPrefix(n.Sandbox, "sb_") || n.PID == 0 {
						t.Errorf("%+v", n)
					}
					cancel()
				}
			})
			if err == nil {
				t.Error("answered")
			}
		}
		w.AwaitNoSandbox(t)
	})
	t.Run("refused", func(t *testing.T) {
		for want, p := range map[api.Code]api.RunParams{
			api.InvalidArgument: {Exec: api.ExecParams{Command: "true"}},
			api.NotFound:        {Acquire: &api.AcquireParams{Pool: "none"}, Exec: api.ExecParams{Command: "true"}},
			api.FailedPrecondition: {Sandbox: &api.Spec{Image: "host"}, IfBuild: "another",
				Exec: api.ExecParams{Command: "true"}},
		} {
			if _, err := c.RunNew(t.Context(), p, nil, nil, nil); api.ErrorCode(err) != want {
				t.Errorf("%v, want %s", err, want)
			}
		}
		p := runHost("")
		p.Exec.Argv = []string{"/no/such/program"}
		if r, err := c.RunNew(t.Context(), p, nil, nil, nil); err != nil || r.Exec.ExitCode != 127 ||
			r.Exec.Verdict != api.VerdictNotRun {
			t.Errorf("%+v, %v", r.Exec, err)
		}
		w.AwaitNoSandbox(t)
	})
	t.Run("pool", func(t *testing.T) {
		w.OK(t, "pool", "create", "--size", "2", "p", "host")
		w.Filled(t, "p", 2)
		for range world.Rounds(10) {
			r, err := c.RunNew(t.Context(), api.RunParams{Acquire: &api.AcquireParams{Pool: "p", WaitMS: 20_000},
				Exec: api.ExecParams{Command: "echo hi"}}, nil, nil, nil)
			if err != nil || r.Exec.Stdout != "hi\n" {
				t.Fatalf("%+v, %v", r.Exec, err)
			}
			gone(t, &r)
		}
		w.OK(t, "pool", "rm", "p")
	})
}

// TestRunNewGate: a command that is to wait for its caller waits, in a sandbox that is there, and for nothing else.
func TestRunNewGate(t *testing.T) {
	w := world.New(t)
	gated := func(command string, index int) api.RunParams {
		p := runHost(command)
		p.Gate = &index
		return p
	}
	t.Run("opened", func(t *testing.T) {
		c, other := w.Connect(t), w.Connect(t)
		for range world.Rounds(20) {
			fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
			if err != nil {
				t.Fatal(err)
			}
			gate := os.NewFile(uintptr(fd), "gate")
			made, err := other.Subscribe(t.Context(),
				api.SubscribeParams{Kinds: []api.EventKind{api.EventSandboxState}})
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() {
				r, err := c.RunNew(t.Context(), gated("echo hi", 0), []*os.File{gate}, nil, nil)
				if err == nil && r.Exec.Stdout != "hi\n" {
					err = fmt.Errorf("%+v", r.Exec)
				}
				ended <- err
			}()
			id := awaitRunning(t, made)
			execs, err := other.ListExecs(t.Context(), id)
			if err != nil || len(execs) > 0 {
				t.Fatalf("%+v, %v", execs, err)
			}
			if _, err := gate.Write([]byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			_ = gate.Close()
			_ = made.Close()
		}
	})
	t.Run("refused", func(t *testing.T) {
		c := w.Connect(t)
		null, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer null.Close()
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer read.Close()
		_ = write.Close()
		for _, f := range []*os.File{null, read} { // one that is not waited for, one that never opens
			if _, err := c.RunNew(t.Context(), gated("true", 0), []*os.File{f}, nil,
				nil); api.ErrorCode(err) != api.InvalidArgument {
				t.Errorf("%s: %v", f.Name(), err)
			}
		}
		if _, err := c.RunNew(t.Context(), gated("true", 1), []*os.File{null}, nil,
			nil); api.ErrorCode(err) != api.InvalidArgument {
			t.Error(err)
		}
		w.AwaitNoSandbox(t)
	})
	t.Run("gone", func(t *testing.T) { // with who was to open it
		for i := range world.Rounds(20) {
			c := w.Connect(t)
			fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
			if err != nil {
				t.Fatal(err)
			}
			gate := os.NewFile(uintptr(fd), "gate")
			ctx, cancel := context.WithCancel(t.Context())
			_, err = c.RunNew(ctx, gated("true", 0), []*os.File{gate}, nil, nil, hutch.WithSent(func() {
				if i%2 == 0 {
					cancel()
				} else {
					_ = c.Close()
				}
			}))
			if err == nil {
				t.Error("answered")
			}
			cancel()
			_ = gate.Close()
		}
		w.AwaitNoSandbox(t)
	})
}

// TestRunNewUnread: a client that does not read its answers holds up no removal, of its own or of others, and no end of
// the daemon.
func TestRunNewUnread(t *testing.T) {
	w := world.New(t)
	w.Inside(t, "true")
	conn, err := net.Dial("unix", w.Socket())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	params, _ := json.Marshal(runHost("head -c 200000 /dev/zero | tr '\\0' x"))
	for i := range max(world.Rounds(64), 24) { // more than may be removed behind their replies
		if _, err := fmt.Fprintf(conn, `{"jsonrpc":"2.0","id":%d,"method":"sandbox.run","params":%s}`+"\n", i,
			params); err != nil {
			t.Fatal(err)
		}
	}
	for range world.Rounds(20) {
		w.Inside(t, "true")
	}
	w.AwaitNoSandbox(t)
	w.OK(t, "rpc", "system.shutdown", `{"mode":"kill"}`)
}

// TestRunNewDeath kills parts of the daemon at random moments of `hutch run`: the command's end is told as it was,
// once; a command that never ran is run by the next daemon, and nothing is left.
func TestRunNewDeath(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	w := world.New(t)
	w.LogOnFailure(t)
	w.Tolerated = append(w.Tolerated, "take over a sandbox; it is removed")
	dir := w.Sub(t, "work")
	w.Inside(t, "true")
	start := time.Now()
	w.Inside(t, "true")
	took := time.Since(start)
	lost := 0
	for i := range world.Rounds(50) {
		log := filepath.Join(dir, fmt.Sprint(i))
		world.Write(t, log, "")
		d, victim := w.OneDaemon(t), world.Victims[i%len(world.Victims)]
		args := []string{"run", "host", "--", "sh", "-c", "exit 7"}
		if i%2 == 1 {
			args = []string{"run", "--workspace", dir + ":rw", "host", "--", "sh", "-c",
				fmt.Sprintf("echo ran >>%d; exit 7", i)}
		}
		c := w.Launch(t, args...)
		testenv.Moment(time.Duration(i%25) * took / 20)
		world.KillNow(t, victim.PIDs(d))
		for _, pid := range victim.PIDs(d) {
			world.Kill(t, pid)
		}
		code := c.End(t)
		text, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case code == 7 && (i%2 == 0 || string(text) == "ran\n"):
		case code == 125 && strings.Contains(c.Errs.String(), "what became of the command is not known"):
			lost++ // hutch-launch went with the monitor, whose daemon was not ready
		default:
			t.Fatalf("round %d, %s: exit code %d, ran %q: %s", i, victim.Name, code, text, &c.Errs)
		}
		w.OK(t, "ps") // there is a daemon again
		w.AwaitNoSandbox(t)
	}
	t.Logf("%d of %d were lost; one takes %s", lost, world.Rounds(50), took)
}

// TestRunNewEnding: a daemon without sandboxes ends when it is told to keep them, and a call that comes at that moment
// is the next daemon's: it is not refused for good, nor ended with a daemon that had begun to end.
func TestRunNewEnding(t *testing.T) {
	w := world.New(t)
	w.LogOnFailure(t)
	w.Inside(t, "true")
	start := time.Now()
	w.Inside(t, "true")
	took := time.Since(start)
	dir := w.Sub(t, "work")
	for i := range world.Rounds(60) {
		w.OK(t, "ps") // there is a daemon, and it does not end
		c := w.Connect(t)
		args := []string{"run"}
		if i%2 == 1 {
			args = append(args, "--workspace", dir+":rw") // for which root asks the daemon first
		}
		r := w.Launch(t, append(args, "host", "--", "sh", "-c", "exit 7")...)
		testenv.Moment(time.Duration(i%20) * took / 20)
		if err := c.Shutdown(t.Context(), api.ShutdownParams{Mode: "keep"}); err != nil {
			t.Fatal(err)
		}
		if code := r.End(t); code != 7 {
			t.Fatalf("round %d: exit code %d: %s", i, code, &r.Errs)
		}
	}
	told := 0
	for i := range world.Rounds(60) { // and of who does not ask another one, what became of the call is known
		w.OK(t, "ps")
		c, caller := w.Connect(t), w.Connect(t)
		p := runHost("exit 7")
		who, err := c.Peer(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		p.IfBuild = who.BuildID
		var res hutch.Run
		var wg sync.WaitGroup
		wg.Go(func() { res, err = caller.RunNew(t.Context(), p, nil, nil, nil) })
		if i%2 == 0 {
			testenv.Moment(time.Duration(i) * took / 500)
		}
		if err := c.Shutdown(t.Context(), api.ShutdownParams{Mode: "keep"}); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		switch {
		case err == nil && res.Exec.ExitCode == 7: // it was first
		case hutch.NotRun(err):
			told++
		case errors.Is(err, hutch.ErrLost): // the daemon has left it to the next one
		default:
			t.Fatalf("round %d: exit code %d, %v", i, res.Exec.ExitCode, err)
		}
	}
	t.Logf("%d of %d calls were not looked at", told, world.Rounds(60))
	w.AwaitNoSandbox(t)
}

// awaitRunning returns the next sandbox that runs. The one before it may still be going.
func awaitRunning(t *testing.T, events *hutch.Events) string {
	t.Helper()
	for {
		ev, err := events.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var to api.StateEvent
		if err := json.Unmarshal(ev.Data, &to); err != nil {
			t.Fatal(err)
		}
		if to.State == api.Running {
			return ev.Sandbox
		}
	}
}

// TestRunNewSlowStart: a daemon that ends and leaves its sandboxes waits for a run that takes longer to start than
// connections may go on: its command runs, and the client knows how it ended. What takes long here is the gate, which
// the test opens.
func TestRunNewSlowStart(t *testing.T) {
	w := world.New(t)
	w.LogOnFailure(t)
	w.Inside(t, "true")
	c, caller := w.Connect(t), w.Connect(t)
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	gate := os.NewFile(uintptr(fd), "gate")
	defer gate.Close()
	made, err := w.Connect(t).Subscribe(t.Context(), api.SubscribeParams{Kinds: []api.EventKind{api.EventSandboxState}})
	if err != nil {
		t.Fatal(err)
	}
	p, index := runHost("exit 7"), 0
	p.Gate = &index
	ended := make(chan error, 1)
	go func() {
		r, err := caller.RunNew(t.Context(), p, []*os.File{gate}, nil, nil)
		if err == nil && r.Exec.ExitCode != 7 {
			err = fmt.Errorf("%+v", r.Exec)
		}
		ended <- err
	}()
	awaitRunning(t, made) // the call is there
	if err := c.Shutdown(t.Context(), api.ShutdownParams{Mode: "keep"}); err != nil {
		t.Fatal(err)
	}
	testenv.Moment(1500 * time.Millisecond) // the second that connections have is over
	if _, err := gate.Write([]byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
		t.Fatal(err)
	}
	if err := testenv.Within(t, ended, world.Patience, "the run has not ended"); err != nil {
		t.Fatal(err)
	}
	w.AwaitNoSandbox(t)
}
