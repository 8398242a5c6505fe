package probe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
)

// childName is the argv[0] under which this binary makes attempts instead of what
// it is for.
const childName = "hutch-probe-child"

// init runs the child's side. A setns or unshare of user namespaces needs a
// process with one thread, which a Go program never is, so attempts happen in a
// re-executed copy; and it must be every binary's own init, for tests have no
// main of ours. It costs others one comparison of strings.
func init() {
	if len(os.Args) > 0 && os.Args[0] == childName {
		os.Exit(childMain(os.Args[1:]))
	}
}

// request is what a child is asked to try.
type request struct {
	Attempts []string // names in the table of attempts
	Scratch  string   // an empty folder of the caller's
	State    string   // a folder on the state folder's file system, or empty
}

// attempt is the outcome of one try in the child.
type attempt struct {
	Errno syscall.Errno // 0: it worked
	Step  string        // what failed, with values
}

// OK reports whether the attempt worked.
func (a attempt) OK() bool { return a.Errno == 0 && a.Step == "" }

func (a attempt) String() string {
	if a.Errno == 0 {
		return a.Step
	}
	return fmt.Sprintf("%s: %s (%v)", a.Step, unix.ErrnoName(a.Errno), a.Errno)
}

// childMain makes the attempts named in its one argument and prints their
// outcomes as JSON.
func childMain(args []string) int {
	var r request
	if len(args) != 1 || json.Unmarshal([]byte(args[0]), &r) != nil {
		fmt.Fprintf(os.Stderr, "%s: bad request %q\n", childName, args)
		return 2
	}
	outcomes := map[string]attempt{}
	for _, name := range r.Attempts {
		try, ok := attempts[name]
		if !ok {
			fmt.Fprintf(os.Stderr, "%s: unknown attempt %q\n", childName, name)
			return 2
		}
		outcomes[name] = toAttempt(try(r))
	}
	if err := json.NewEncoder(os.Stdout).Encode(outcomes); err != nil {
		return 1
	}
	return 0
}

// toAttempt keeps the errno of err, which would not survive as text.
func toAttempt(err error) attempt {
	if err == nil {
		return attempt{}
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return attempt{Errno: errno, Step: strings.TrimSuffix(err.Error(), ": "+errno.Error())}
	}
	return attempt{Step: err.Error()}
}

// Namespaces of the children.
const (
	justUser = syscall.CLONE_NEWUSER
	// sandboxLike are those that a sandbox has.
	sandboxLike = justUser | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET |
		syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS | unix.CLONE_NEWCGROUP
)

// runChild makes r's attempts in new namespaces, as uid 0 of a user namespace
// that maps only the caller. startErr is set when the namespaces could not be
// made; err when the child did not answer.
func runChild(ctx context.Context, flags uintptr, r request) (outcomes map[string]attempt, startErr, err error) {
	data, err := json.Marshal(r)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, childTimeout, fmt.Errorf("no answer within %v", childTimeout))
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Args = []string{childName, string(data)}
	cmd.Env = []string{}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  flags,
		Pdeathsig:   syscall.SIGKILL,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}},
	}
	release, err := sys.StartHeld(cmd.Start)
	if err != nil {
		return nil, err, nil
	}
	defer release()
	if err := cmd.Wait(); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, nil, fmt.Errorf("probe child: %w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	if err := json.Unmarshal(stdout.Bytes(), &outcomes); err != nil {
		return nil, nil, fmt.Errorf("probe child answered %q: %w", stdout.Bytes(), err)
	}
	return outcomes, nil, nil
}
