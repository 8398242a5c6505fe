package launch_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/launch/bootstrap"
	"github.com/hutch-sh/hutch/runtime/launch/launchapi"
)

// The test binary plays three parts: the tests; a monitor, run as the user in
// question, which boots hutch-launch; and hutchd, started by hutch-launch, which
// runs one function of inside.
const (
	roleVar    = "HUTCH_LAUNCH_TEST_ROLE"
	worldVar   = "HUTCH_LAUNCH_TEST_WORLD" // JSON of world
	monitor    = "monitor"
	fakeHutchd = "hutchd"
	hang       = "hang" // does nothing, in hutch-launch's place
)

// bins is a world-readable folder with hutch-launch, hutch-init and this test
// binary as launch.test.
var bins string

func TestMain(m *testing.M) {
	switch os.Getenv(roleVar) {
	case monitor:
		os.Exit(monitorMain())
	case fakeHutchd:
		os.Exit(hutchdMain())
	case hang:
		select {}
	}
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	flag.Parse()
	var err error
	// Not in a folder of this user's own: other users must reach it.
	if bins, err = os.MkdirTemp(publicTemp(), "hutch-launch-test-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(bins)
	if err := prepareBins(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// publicTemp is where every user may look; an ordinary user's own will do for
// itself.
func publicTemp() string {
	if os.Geteuid() == 0 {
		return "/tmp"
	}
	return ""
}

// prepareBins takes built binaries where the test runner names them, and builds
// them otherwise.
func prepareBins() error {
	if err := os.Chmod(bins, 0o755); err != nil {
		return err
	}
	if err := copyFile("/proc/self/exe", filepath.Join(bins, "launch.test")); err != nil {
		return err
	}
	if built := os.Getenv(testenv.BinVar); built != "" {
		for _, name := range []string{"hutch-launch", "hutch-init"} {
			if err := copyFile(filepath.Join(built, name), filepath.Join(bins, name)); err != nil {
				return err
			}
		}
		return nil
	}
	if err := goBuild("hutch-init", filepath.Join(bins, "hutch-init"), "CGO_ENABLED=0"); err != nil {
		return err
	}
	return goBuild("hutch-launch", filepath.Join(bins, "hutch-launch"), "CGO_ENABLED=1", launchFlags("")...)
}

// launchFlags are those of the Makefile, with one more tag.
func launchFlags(tag string) []string {
	return []string{"-tags", strings.TrimSpace("seccomp netgo osusergo " + tag),
		"-ldflags", `-s -w -linkmode external -extldflags "-static"`}
}

func goBuild(name, out, env string, flags ...string) error {
	args := append([]string{"build", "-buildvcs=false", "-o", out}, flags...)
	cmd := exec.Command("go", append(args, "github.com/hutch-sh/hutch/cmd/"+name)...)
	cmd.Env = append(os.Environ(), env)
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s (or run `make build` and set %s): %w\n%s", name, testenv.BinVar, err, text)
	}
	return nil
}

func copyFile(from, to string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(dst, src); err != nil {
		_ = dst.Close()
		return err
	}
	if err := dst.Close(); err != nil {
		return err
	}
	return os.Chmod(to, 0o755)
}

// world is what the parts know about one boot.
type world struct {
	Bins  string
	State string // the state folder as the monitor sees it
	Mount string // as hutchd sees it
	Base  uint32 // of root's id range
	// Busybox is a static one.
	Busybox string
	// Launch, Init and Hutchd are names in Bins.
	Launch, Init, Hutchd string
	Env                  []string // of hutch-launch
	TimeoutMS            int      // of the boot; 0: none
	NoState              bool     // the state folder is missing
	Test                 string   // key of inside
}

func readWorld() (w world, err error) {
	err = json.Unmarshal([]byte(os.Getenv(worldVar)), &w)
	return w, err
}

// monitorMain boots hutch-launch and exits as it does. The end of its standard
// input makes it close the launcher.
func monitorMain() int {
	w, err := readWorld()
	if err == nil {
		err = os.MkdirAll(w.Mount, 0o755)
	}
	if err == nil && w.NoState {
		err = os.Remove(w.State)
	}
	if err != nil {
		return say("monitor: %v", err)
	}
	start := time.Now()
	l, daemon, err := bootFrom(w)
	if err != nil {
		return say("boot: %v", err)
	}
	fmt.Fprintf(os.Stderr, "%sboot %.3f\n", benchLine, ms(time.Since(start)))
	fmt.Printf("booted %d %d\n", l.PID, daemon)
	closed := make(chan error, 1)
	go func() {
		if _, err := io.Copy(io.Discard, os.Stdin); err == nil {
			closed <- l.Close()
		}
	}()
	code, err := l.Wait()
	if err != nil {
		return say("wait: %v", err)
	}
	select {
	case err := <-closed:
		if err != nil {
			return say("close: %v", err)
		}
	default:
	}
	return code
}

func bootFrom(w world) (_ *bootstrap.Launcher, daemon int, err error) {
	ids, err := bootstrap.PlanIDMap(w.Base)
	if err != nil {
		return nil, 0, err
	}
	files := map[string]*os.File{}
	for _, name := range []string{w.Launch, w.Init, w.Hutchd} {
		f, err := os.Open(filepath.Join(w.Bins, name))
		if err != nil {
			return nil, 0, err
		}
		defer f.Close()
		files[name] = f
	}
	ours, theirs, err := packet.Pair()
	if err != nil {
		return nil, 0, err
	}
	defer ours.Close()
	defer theirs.Close()
	ctx := context.Background()
	if w.TimeoutMS > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(w.TimeoutMS)*time.Millisecond)
		defer cancel()
	}
	l, err := bootstrap.Start(ctx, bootstrap.Options{
		Binary: files[w.Launch], IDMap: ids, Init: files[w.Init], Stderr: os.Stderr, Env: w.Env,
		Boot: launchapi.Boot{StateDir: w.State, Mount: w.Mount},
	})
	if err != nil {
		return nil, 0, err
	}
	daemon, err = l.StartDaemon(ctx, bootstrap.Daemon{
		Start: launchapi.Start{
			Args: []string{"hutchd", "-test.v", "-test.timeout=120s"},
			Env:  []string{roleVar + "=" + fakeHutchd, worldVar + "=" + os.Getenv(worldVar)},
		},
		Binary: files[w.Hutchd], Channel: theirs,
	})
	if err != nil {
		return nil, 0, errors.Join(err, l.Close())
	}
	return l, daemon, nil
}

// exitSaid is the exit code of a part that has said what is wrong.
const exitSaid = 99

func say(format string, args ...any) int {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	return exitSaid
}

// hutchdMain runs the function of inside that the world names, in the daemon's
// place.
func hutchdMain() int {
	os.Stdout = os.Stderr // /dev/null otherwise
	testing.Init()
	flag.Parse()
	w, err := readWorld()
	if err != nil {
		return say("hutchd: %v", err)
	}
	test, ok := inside[w.Test]
	if !ok {
		return say("hutchd: no inside test %q", w.Test)
	}
	d, err := newHutchd(w)
	if err != nil {
		return say("hutchd: %v", err)
	}
	testing.Main(func(string, string) (bool, error) { return true, nil },
		[]testing.InternalTest{{Name: w.Test, F: func(t *testing.T) {
			t.Cleanup(func() {
				if err := d.client.Close(); err != nil {
					t.Error(err)
				}
			})
			test(t, d)
		}}}, nil, nil)
	return 0 // not reached: testing.Main exits
}
