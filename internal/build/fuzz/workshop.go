package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// grace is how long a target may take beyond its time: to start, to run its seeds, to write what it found.
const grace = time.Minute

// workshop is where targets are built and run.
type workshop struct {
	root     string // of the module
	dir      string // what is kept: corpora, binaries, where the last run stopped
	tmp      string // the temporary folder of the targets
	parallel int
	built    string // the folder whose targets were built last
}

func (w *workshop) open() error {
	if err := os.MkdirAll(filepath.Join(w.dir, "bin"), 0o755); err != nil {
		return err
	}
	// Memory, where there is some: a target that unpacks archives makes and removes thousands of folders a second.
	where := "/dev/shm"
	if _, err := os.Stat(where); err != nil {
		where = ""
	}
	tmp, err := os.MkdirTemp(where, "hutch-fuzz-")
	w.tmp = tmp
	return err
}

// close leaves nothing of what targets left.
func (w *workshop) close() {
	if err := os.RemoveAll(w.tmp); err != nil {
		fmt.Fprintln(os.Stderr, "fuzz: remove what the targets left:", err)
	}
}

// turn returns the targets that are next, and how long each may take.
func (w *workshop) turn(targets []target, all time.Duration) ([]target, time.Duration) {
	if each := all / time.Duration(len(targets)); each >= slice {
		return targets, each.Round(time.Second)
	}
	last, _ := os.ReadFile(w.last()) // no run yet: from the first
	i := slices.IndexFunc(targets, func(t target) bool { return t.String() > string(last) })
	if i < 0 {
		i = 0
	}
	n := max(1, min(len(targets), int(all/slice)))
	return slices.Concat(targets[i:], targets[:i])[:n], min(all, slice)
}

func (w *workshop) last() string { return filepath.Join(w.dir, "last") }

// done remembers t for the next turn.
func (w *workshop) done(t target) {
	if err := os.WriteFile(w.last(), []byte(t.String()), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, "fuzz: the next run begins from the start:", err)
	}
}

// binary is the compiled test of t's package.
func (w *workshop) binary(t target) string {
	return filepath.Join(w.dir, "bin", strings.ReplaceAll(t.pkg, "/", "_")+".test")
}

// counted is what gets code that counts what is covered: the module, and what parses for it. `go test -fuzz` has all
// code counted, net/http and the drivers of registries too. The engine reads all counters after each input
// and sends them from process to process, which took nearly all the time, and building took minutes.
var counted = []string{
	"github.com/hutch-sh/hutch/...", "archive/tar", "encoding/json", "github.com/distribution/reference",
	"github.com/miekg/dns",
	"go.podman.io/image/v5/docker/reference", "go.yaml.in/yaml/v3", "mvdan.cc/sh/v3/syntax",
}

// build compiles the tests of t's package for fuzzing.
func (w *workshop) build(ctx context.Context, t target) error {
	if w.built == t.pkg {
		return nil
	}
	args := []string{"test", "-c", "-tags", tags, "-o", w.binary(t)}
	for _, pattern := range counted {
		args = append(args, "-gcflags="+pattern+"=-d=libfuzzer") // as cmd/go's fuzzInstrumentFlags has it
	}
	cmd := command(ctx, w.root, "go", append(args, "./"+t.pkg)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	w.built = t.pkg
	return nil
}

// fuzz runs t for a time.
func (w *workshop) fuzz(ctx context.Context, t target, d time.Duration) (result, error) {
	if err := w.build(ctx, t); err != nil {
		return result{}, err
	}
	// A target that hangs would hang the whole run.
	ctx, cancel := context.WithTimeoutCause(ctx, d+grace, fmt.Errorf("it was still running %v after its %v", grace, d))
	defer cancel()
	cmd := command(ctx, filepath.Join(w.root, filepath.FromSlash(t.pkg)), w.binary(t), "-test.run=^$", "-test.fuzz=^"+
		t.name+"$",
		"-test.fuzztime="+d.String(), "-test.parallel="+strconv.Itoa(w.parallel), "-test.paniconexit0",
		// By default the engine spends up to a minute on making one input shorter, which is all of a short run.
		"-test.fuzzminimizetime=20x",
		"-test.fuzzcachedir="+filepath.Join(w.dir, "corpus", filepath.FromSlash(t.pkg)))
	cmd.Env = append(os.Environ(), "TMPDIR="+w.tmp)
	begin := time.Now()
	out, err := cmd.CombinedOutput()
	r := read(string(out))
	r.target, r.took = t, time.Since(begin)
	if p := cmd.ProcessState; p != nil {
		r.cpu = p.UserTime() + p.SystemTime() // also of its children
	}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && context.Cause(ctx) == nil && timeUp.MatchString(r.said):
	case errors.As(err, &exit):
		r.failed = true
		if cause := context.Cause(ctx); cause != nil {
			r.said += "\n" + cause.Error()
		}
	case err != nil:
		return r, fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
	case r.execs == 0:
		r.failed = true
		r.said += "\nno input was tried: in its time it did not get through those that are kept"
	case r.stuck:
		r.failed = true
		r.said += "\nit hangs: no input was done in its last seconds, and the engine does not tell which one it is"
	}
	return r, nil
}

// command is exec.CommandContext with an end in which a target writes what it found: an interrupt,
// to a process group of its own, because the engine's workers are processes too.
func command(ctx context.Context, dir, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// result is what a target did in its time.
type result struct {
	target  target
	execs   int
	found   int // inputs that reached code which none before did
	corpus  int // of those, all that are kept
	took    time.Duration
	cpu     time.Duration
	stuck   bool // nothing was executed in the end
	failed  bool
	said    string
	crasher string // the file of the input that fails, below the target's folder
}

// Lines of the engine.
var (
	progress = regexp.MustCompile(`(?m)^fuzz: elapsed: \S+, execs: ([0-9]+) \([^)]*\)(?:, new interesting: ([0-9]+) \(total: ([0-9]+)\))?$`)
	written  = regexp.MustCompile(`(?m)^\s*Failing input written to (\S+)$`)
	// An input that is kept and fails is named instead.
	kept    = regexp.MustCompile(`(?m)failure while testing seed corpus entry: (\S+)$`)
	chatter = regexp.MustCompile(`(?m)^fuzz: elapsed: .*\n`)
	// All that is said when the time ends in the middle of a message to a worker: the engine takes its own
	// end for an error then, without an input that fails.
	timeUp = regexp.MustCompile(`^--- FAIL: \S+ \(\S+\)\n\s+context deadline exceeded\nFAIL$`)
)

// stuckLines is how many lines without progress, which come every 3 seconds, are a hang.
const stuckLines = 4

// read takes what a target said.
func read(said string) (r result) {
	if all := progress.FindAllStringSubmatch(said, -1); all != nil {
		last := all[len(all)-1]
		r.execs, _ = strconv.Atoi(last[1]) // digits, or "" where the engine does not know
		r.found, _ = strconv.Atoi(last[2])
		r.corpus, _ = strconv.Atoi(last[3])
		// The very last line is of the end, whenever that is.
		if lines := all[:len(all)-1]; len(lines) >= stuckLines {
			r.stuck = !slices.ContainsFunc(lines[len(lines)-stuckLines:],
				func(m []string) bool { return m[1] != last[1] })
		}
	}
	for _, line := range []*regexp.Regexp{written, kept} {
		if m := line.FindStringSubmatch(said); m != nil && r.crasher == "" {
			r.crasher = m[1]
		}
	}
	r.said = string(bytes.TrimSpace(chatter.ReplaceAll([]byte(said), nil)))
	return r
}

func (r *result) perSecond() float64 { return float64(r.execs) / r.took.Seconds() }

// perCPUSecond tells a slow target from a busy machine.
func (r *result) perCPUSecond() float64 { return float64(r.execs) / max(r.cpu.Seconds(), 0.001) }

// why says in a line how r failed.
func (r *result) why() string {
	if r.crasher == "" {
		first, _, _ := strings.Cut(r.said, "\n")
		return cmp.Or(first, "it said nothing")
	}
	// What a target finds lies in its folder; what an earlier run has kept, in the corpus, has a name only.
	return filepath.Join(r.target.pkg, r.crasher)
}
