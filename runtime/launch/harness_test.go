package launch_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/internal/testenv/mustrun"
	"github.com/hutch-sh/hutch/internal/testenv/testuser"
	"github.com/hutch-sh/hutch/runtime/launch/bootstrap"
)

// Ids that no other test process uses at the same time, so that any process
// which has one is ours.
var (
	rootBase  = 0x60000000 + uint32(os.Getpid()%4096)*bootstrap.RootCount
	nobodyUID = 40000 + uint32(os.Getpid()%20000)
)

// kind is a user that boots hutch-launch.
type kind struct {
	name string
	user *testuser.User // nil: whoever runs the tests
}

// eachKind runs test for root, a user with subordinate ids and one without; for
// an ordinary user, for that user.
func eachKind(t *testing.T, test func(t *testing.T, k kind)) {
	own := kind{name: string(testenv.CurrentKind())}
	t.Run(own.name, func(t *testing.T) { test(t, own) })
	if os.Geteuid() != 0 {
		return
	}
	for _, mk := range []mustrun.Kind{mustrun.SubUID, mustrun.NoSubUID} {
		t.Run(string(mk), func(t *testing.T) {
			u, err := makeUser(mk)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := u.Close(); err != nil {
					t.Error(err)
				}
			})
			test(t, kind{name: string(mk), user: u})
		})
	}
}

// makeUser is testuser.New with a uid of our own.
func makeUser(k mustrun.Kind) (*testuser.User, error) {
	if k != mustrun.NoSubUID {
		return testuser.New(context.Background(), k)
	}
	home, err := os.MkdirTemp("", "hutch-test-home-")
	if err != nil {
		return nil, err
	}
	return &testuser.User{Kind: k, UID: nobodyUID, GID: nobodyUID, Home: home},
		os.Chown(home, int(nobodyUID), int(nobodyUID))
}

// ownKind is for what does not depend on the kind of user.
func ownKind() kind { return kind{name: string(testenv.CurrentKind())} }

// booted is a monitor process with what it started.
type booted struct {
	t      testing.TB
	k      kind
	cmd    *exec.Cmd
	stdin  io.Closer
	stdout *bufio.Reader
	stderr *output
	// launch and daemon are pids.
	launch, daemon int
}

// boot starts a monitor that boots hutch-launch with the named function of
// inside as hutchd.
func (k kind) boot(t testing.TB, test string, change ...func(*world)) *booted {
	t.Helper()
	busybox := testenv.StaticBusybox(t)
	dir, err := os.MkdirTemp(publicTemp(), "hutch-launch-world-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := removeAll(dir); err != nil {
			t.Errorf("state is not removable: %v", err)
		}
	})
	w := world{Bins: bins, State: filepath.Join(dir, "state"), Mount: filepath.Join(dir, "m"),
		Busybox: busybox, Base: rootBase, Launch: "hutch-launch", Init: "hutch-init", Hutchd: "launch.test", Test: test}
	for _, c := range change {
		c(&w)
	}
	owner := os.Geteuid()
	if k.user != nil {
		owner = int(k.user.UID)
	}
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chown(dir, owner, -1), os.Mkdir(w.State, 0o700)); err != nil {
		t.Fatal(err)
	}
	if owner == 0 {
		owner = int(rootBase)
	}
	if err := os.Chown(w.State, owner, -1); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	b := &booted{t: t, k: k, cmd: exec.Command(filepath.Join(bins, "launch.test")), stderr: newOutput()}
	b.cmd.Env = os.Environ()
	if k.user != nil {
		k.user.Run(b.cmd)
	}
	b.cmd.Env = append(b.cmd.Env, roleVar+"="+monitor, worldVar+"="+string(text))
	b.cmd.Stderr = b.stderr
	stdout, err := b.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if b.stdin, err = b.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := b.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	b.stdout = bufio.NewReader(stdout)
	return b
}

// removeAll removes the state folder of a hutchd that did not clean up. The
// kernel leaves overlay's work/work with mode 0, which hutchd can pass, being
// uid 0, and an ordinary user must change.
func removeAll(dir string) error {
	// overlayfs makes work/work, and what marks volatile mounts in it, with mode 0.
	for _, below := range []string{"work", "work/incompat", "work/incompat/volatile"} {
		closed, err := filepath.Glob(filepath.Join(dir, "state", "sandboxes", "*", "work", below))
		if err != nil {
			return err
		}
		ahead, err := filepath.Glob(filepath.Join(dir, "state", "sandboxes", "*", "base", "work", below))
		if err != nil {
			return err
		}
		closed = append(closed, ahead...)
		for _, folder := range closed {
			if err := os.Chmod(folder, 0o700); err != nil {
				return err
			}
		}
	}
	return os.RemoveAll(dir)
}

// awaitBoot reads the pids. Without it the caller knows nothing but the end.
func (b *booted) awaitBoot() {
	b.t.Helper()
	line, err := b.stdout.ReadString('\n')
	if err == nil {
		_, err = fmt.Sscanf(line, "booted %d %d", &b.launch, &b.daemon)
	}
	if err != nil {
		b.t.Fatalf("boot: %q, %v, exit %d\n%s", line, err, b.end(), b.stderr)
	}
}

// end waits for the monitor and returns its exit code.
func (b *booted) end() int {
	b.t.Helper()
	// A hang is a failure with the daemon's goroutines in stderr; the monitor's
	// death ends everything below it.
	timer := time.AfterFunc(100*time.Second, func() { _ = b.cmd.Process.Kill() })
	defer timer.Stop()
	_, _ = io.Copy(io.Discard, b.stdout)
	err := b.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		b.t.Fatal(err)
	}
	_ = b.stdin.Close()
	return b.cmd.ProcessState.ExitCode()
}

// pass waits for the end and expects success and no processes.
func (b *booted) pass() {
	b.t.Helper()
	if code := b.end(); code != 0 {
		b.t.Errorf("exit code %d\n%s", code, b.stderr)
	}
	b.noneLeft()
	if testing.Verbose() {
		b.t.Logf("\n%s", b.stderr)
	}
}

// noneLeft checks that no process of this boot is left: those it reported, and
// for users that are only ours, any.
func (b *booted) noneLeft() {
	b.t.Helper()
	pids := []int{b.launch, b.daemon}
	for line := range strings.Lines(b.stderr.String()) {
		if text, ok := strings.CutPrefix(line, reportPID); ok {
			pid, err := strconv.Atoi(strings.TrimSpace(text))
			if err != nil {
				b.t.Fatal(err)
			}
			pids = append(pids, pid)
		}
	}
	for _, pid := range pids {
		if pid == 0 {
			continue
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err == nil && !bytes.Contains(stat, []byte(") Z 1 ")) { // the host's init is to reap it
			b.t.Errorf("process %d is left: %s", pid, stat)
		}
	}
	if os.Geteuid() != 0 {
		return
	}
	first, count := uint64(rootBase), uint64(bootstrap.RootCount)
	if b.k.user != nil {
		first, count = uint64(b.k.user.UID), 1
	}
	statuses, err := filepath.Glob("/proc/[0-9]*/status")
	if err != nil {
		b.t.Fatal(err)
	}
	for _, path := range statuses {
		status, err := os.ReadFile(path)
		if err != nil || bytes.Contains(status, []byte("\nState:\tZ ")) &&
			bytes.Contains(status, []byte("\nPPid:\t1\n")) {
			continue
		}
		for line := range strings.Lines(string(status)) {
			text, ok := strings.CutPrefix(line, "Uid:\t")
			if !ok {
				continue
			}
			uid, err := strconv.ParseUint(strings.Fields(text)[0], 10, 32)
			if err == nil && uid >= first && uid-first < count {
				head, _, _ := bytes.Cut(status, []byte("\nTracerPid"))
				b.t.Errorf("a process of uid %d is left:\n%s", uid, head)
			}
		}
	}
}

// reportPID begins the line by which hutchd tells the test of a process that
// must not survive.
const reportPID = "must-end "

// output collects what a process prints and lets a test wait for a part of it.
type output struct {
	mu    sync.Mutex
	buf   bytes.Buffer
	grown *sync.Cond
}

func newOutput() *output {
	o := &output{}
	o.grown = sync.NewCond(&o.mu)
	return o
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.grown.Broadcast()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// await blocks until text was printed, or for a minute.
func (o *output) await(t testing.TB, text string) {
	t.Helper()
	late := false
	timer := time.AfterFunc(time.Minute, func() {
		o.mu.Lock()
		late = true
		o.grown.Broadcast()
		o.mu.Unlock()
	})
	defer timer.Stop()
	o.mu.Lock()
	defer o.mu.Unlock()
	for !strings.Contains(o.buf.String(), text) {
		if late {
			t.Fatalf("no %q in\n%s", text, o.buf.String())
		}
		o.grown.Wait()
	}
}
