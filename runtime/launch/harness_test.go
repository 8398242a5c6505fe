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
	"testing"
	"time"

	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/internal/testenv/mustrun"
	"github.com/hutch-sh/hutch/internal/testenv/testuser"
)

// rootBase is the id range for tests of root, away from the product's own.
const rootBase = 1879048192 + 3*65536

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
			u, err := testuser.New(context.Background(), mk)
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

// ownKind is for what does not depend on the kind of user.
func ownKind() kind { return kind{name: string(testenv.CurrentKind())} }

// booted is a monitor process with what it started.
type booted struct {
	t      *testing.T
	k      kind
	cmd    *exec.Cmd
	stdin  io.Closer
	stdout *bufio.Reader
	stderr *bytes.Buffer
	// launch and daemon are pids.
	launch, daemon int
}

// boot starts a monitor that boots hutch-launch with the named function of
// inside as hutchd.
func (k kind) boot(t *testing.T, test string, change ...func(*world)) *booted {
	t.Helper()
	dir, err := os.MkdirTemp(publicTemp(), "hutch-launch-world-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("state is not removable: %v", err)
		}
	})
	w := world{Bins: bins, State: filepath.Join(dir, "state"), Mount: filepath.Join(dir, "m"),
		Base: rootBase, Launch: "hutch-launch", Test: test}
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
		owner = rootBase
	}
	if err := os.Chown(w.State, owner, -1); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	b := &booted{t: t, k: k, cmd: exec.Command(filepath.Join(bins, "launch.test")), stderr: &bytes.Buffer{}}
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
		if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil {
			b.t.Errorf("process %d is left: %s", pid, stat)
		}
	}
	if os.Geteuid() != 0 {
		return
	}
	first, count := uint64(rootBase), uint64(65536)
	if b.k.user != nil {
		first, count = uint64(b.k.user.UID), 1
	}
	statuses, err := filepath.Glob("/proc/[0-9]*/status")
	if err != nil {
		b.t.Fatal(err)
	}
	for _, path := range statuses {
		status, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(status)) {
			text, ok := strings.CutPrefix(line, "Uid:\t")
			if !ok {
				continue
			}
			uid, err := strconv.ParseUint(strings.Fields(text)[0], 10, 32)
			if err == nil && uid >= first && uid-first < count {
				b.t.Errorf("a process of uid %d is left:\n%s", uid, status)
			}
		}
	}
}

// reportPID begins the line by which hutchd tells the test of a process that
// must not survive.
const reportPID = "must-end "
