package main

import (
	"context"
	"crypto/rand"
	_ "embed" // the programs that look around in the sandbox
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/internal/config"
	"github.com/hutch-sh/hutch/runtime/api"
)

// The same look around in two languages: python3 where the host has it.
//
//go:embed tour/probe.py
var probePython string

//go:embed tour/probe.sh
var probeShell string

// The limits of the sandbox shown, where the host can enforce limits: any
// numbers do, as long as they can be recognized when the kernel says them.
const (
	tourMemory = 256 << 20
	tourPIDs   = 64
)

// maxHomeNames bounds how many of the home folder's names the sandbox looks for.
const maxHomeNames = 50

// newTour is what `make run` shows. It claims nothing that it did not read from
// the sandbox, or from the kernel about the sandbox.
func newTour() *cobra.Command {
	private := false
	cmd := &cobra.Command{
		Use:    "tour",
		Hidden: true,
		Args:   wantArgs(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, signals := cli.CatchSignals(cmd.Context())
			defer signals.Stop()
			r := &runner{flags: &runFlags{private: private}, signals: signals, out: cmd.OutOrStdout(),
				times: map[string]float64{}}
			return interrupted(ctx, r.tour(ctx, cli.StyleFor(os.Stdout)))
		},
	}
	cmd.Flags().BoolVar(&private, "private", false, "use a daemon that lives and dies with this command")
	return cmd
}

func (r *runner) tour(ctx context.Context, style cli.Style) error {
	if err := r.connect(ctx); err != nil {
		return err
	}
	defer func() { tell(r.client.Close()) }()
	// whatever is configured
	spec := api.Spec{Image: config.HostImage, Owner: api.OwnerConnection, Network: api.NetPolicy{Mode: api.NetNone}}
	info, err := r.client.Info(ctx)
	if err != nil {
		return err
	}
	if info.Isolation.Cgroups != "none" {
		spec.Limits.MemoryBytes, spec.Limits.PIDs = tourMemory, tourPIDs
	}
	sb, err := r.create(ctx, spec)
	if err != nil {
		return err
	}
	claims, err := r.lookAround(ctx, sb)
	tell(r.finish(ctx, sb))
	if err != nil {
		return err
	}
	claims.print(r.out, style)
	printPhases(r.out, style, r.times, sb.PhasesMS)
	if !claims.hold() {
		return &cli.Exit{Code: 1, Err: api.Errorf(api.Internal, "a sandbox is not what it should be").
			WithOp("tour").WithHint("hutch doctor")}
	}
	return nil
}

// lookAround runs the program and compares what it says with the host.
func (r *runner) lookAround(ctx context.Context, sb *api.Sandbox) (*tourClaims, error) {
	host, err := readHost(sb.PID)
	if err != nil {
		return nil, err
	}
	inside, err := r.probe(ctx, sb, host)
	if err != nil {
		return nil, err
	}
	// A second command reads what the first one wrote: it was a file, not a wish.
	again, err := r.client.ExecRun(ctx, api.ExecParams{Sandbox: sb.ID, Argv: []string{"cat", host.canary}}, nil, nil)
	if err != nil {
		return nil, err
	}
	inside["read_back"] = strings.TrimSpace(again.Stdout)
	return newClaims(sb, host, inside), nil
}

// probe runs the program in python3 or, where there is none, in sh.
func (r *runner) probe(ctx context.Context, sb *api.Sandbox, host *hostFacts) (facts, error) {
	defer r.phase("program")()
	args := append([]string{host.home, host.canary}, host.homeNames...)
	// -I: nothing of the caller's environment or folders plays a part.
	argv := append([]string{"python3", "-I", "-c", probePython}, args...)
	res, err := r.client.ExecRun(ctx, api.ExecParams{Sandbox: sb.ID, Argv: argv}, nil, nil)
	if err == nil && res.Verdict == api.VerdictNotRun {
		argv = append([]string{"sh", "-c", probeShell, "sh"}, args...)
		res, err = r.client.ExecRun(ctx, api.ExecParams{Sandbox: sb.ID, Argv: argv}, nil, nil)
	}
	if err != nil {
		return nil, err
	}
	if res.Verdict != api.VerdictOK {
		return nil, api.Errorf(api.Internal, "the program in the sandbox ended with %s, exit code %d: %s%s",
			res.Verdict, res.ExitCode, res.Error, cli.Line(res.Stderr)).WithOp("tour")
	}
	return parseFacts(res.Stdout), nil
}

// facts are what the program in the sandbox said.
type facts map[string]string

// parseFacts reads one "key<TAB>value" a line.
func parseFacts(text string) facts {
	f := facts{}
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimRight(line, "\n"), "\t"); ok {
			f[key] = value
		}
	}
	return f
}

// hostFacts are what the program's answers are compared with.
type hostFacts struct {
	hostname   string
	home       string
	homeNames  []string
	canary     string            // a path that exists nowhere yet
	namespaces map[string]string // of this process
	uidMap     []idRange         // of the sandbox's PID 1, as this process sees it
	cgroups    string            // /proc/PID/cgroup of it
}

func readHost(pid int) (*hostFacts, error) {
	h := &hostFacts{canary: "/hutch-tour-" + rand.Text(), namespaces: map[string]string{}}
	var err error
	if h.hostname, err = os.Hostname(); err != nil {
		return nil, err
	}
	for _, ns := range []string{"user", "pid", "net", "mnt", "ipc", "uts", "cgroup"} {
		if h.namespaces[ns], err = os.Readlink("/proc/self/ns/" + ns); err != nil {
			return nil, err
		}
	}
	if h.uidMap, err = readIDMap(fmt.Sprintf("/proc/%d/uid_map", pid)); err != nil {
		return nil, err
	}
	cgroups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return nil, err
	}
	h.cgroups = string(cgroups)
	if h.home = os.Getenv("HOME"); h.home != "" {
		h.homeNames = namesIn(h.home)
	}
	return h, nil
}

// namesIn lists some names of a folder; none where it cannot be read.
func namesIn(dir string) []string {
	f, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer f.Close()
	names, err := f.Readdirnames(maxHomeNames)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil
	}
	return names
}

// idRange is a line of a uid_map (user_namespaces(7)).
type idRange struct{ inside, outside, count uint32 }

func readIDMap(path string) ([]idRange, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var ranges []idRange
	for line := range strings.Lines(string(text)) {
		var r idRange
		if _, err := fmt.Sscan(line, &r.inside, &r.outside, &r.count); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", path, line, err)
		}
		ranges = append(ranges, r)
	}
	return ranges, nil
}
