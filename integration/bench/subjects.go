package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// subjects lists everything that can be measured, in the order of the reports.
func subjects() []Subject {
	return []Subject{
		{"true", "fork, exec and exit of true on the host: what any process costs", setupTrue},
		{"floor", "all namespaces, overlay root, loopback, no walls (floor/floor.c)", setupFloor},
		{"bwrap", "all namespaces, bind mounts; no overlay, seccomp, cgroup", setupBwrap},
		{"bwrap-seccomp", "the same with hutch's own filter", setupBwrapSeccomp},
		{"crun", "its default spec with a network namespace; no seccomp", setupCrun},
		{"crun-seccomp", "the same with the names of hutch's filter", setupCrunSeccomp},
		{"runc", "its default spec with a network namespace; no seccomp", setupRunc},
		{"runc-seccomp", "the same with the names of hutch's filter", setupRuncSeccomp},
		{"crun-exec", "crun exec of true in a live container", setupCrunExec},
		{"runc-exec", "runc exec of true in a live container", setupRuncExec},
		{"hutch-version", "start of the hutch command alone", setupHutchVersion},
		{"hutch-exec", "a command in a live sandbox, shared daemon up", setupHutchExec},
		{"hutch-call", "exec.run of true, captured output, over a warm connection", setupHutchCall},
		{"hutch-call-passed", "the same with the caller's own files as stdio", setupHutchCallPassed},
		{"hutch-call-spin", "such calls beside busy loops on all CPUs in another sandbox", setupHutchCallSpin},
		{"hutch-call-bomb", "such calls beside a fork bomb in another sandbox", setupHutchCallBomb},
		{"hutch-tail", "the p99 of such calls", setupHutchTail},
		{"hutch-tail-flooded", "the same beside a client that keeps 256 calls under way", setupHutchTailFlooded},
		{"pipe", "128 MiB through a pipe on the host", setupPipe},
		{"hutch-pipe", "the same out of a sandbox, the pipe passed as stdout", setupHutchPipe},
		{"hutch-attach", "128 MiB of stdout through the spool to a client that is attached", setupHutchAttach},
		{"hutch-run", "a new sandbox with everything on, shared daemon up, no pool", setupHutchRun},
		{"hutch-run-private", "the same, and the start and end of a daemon of its own", setupHutchPrivate},
	}
}

func setupTrue(_ context.Context, h *Host) (*Prepared, error) {
	p, err := h.newProcess(nil, "true")
	if err != nil {
		return nil, err
	}
	return p.prepared(), nil
}

// setupFloor compiles the launcher of floor/floor.c. C, because a floor that pays
// for the start of a runtime, twice, is none.
func setupFloor(ctx context.Context, h *Host) (*Prepared, error) {
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "gcc"
	}
	if _, err := exec.LookPath(cc); err != nil {
		return nil, &Unavailable{MissingTool, "no C compiler " + cc, "install gcc, or set CC"}
	}
	if _, err := h.mkdir("bin", 0o755); err != nil {
		return nil, err
	}
	bin := h.path("bin", "floor")
	source := filepath.Join(h.module, "integration", "bench", "floor", "floor.c")
	build := exec.CommandContext(ctx, cc, "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-static", "-s", "-o", bin, source)
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", shellLine(build.Args), err, out)
	}
	root, err := h.rootFS()
	if err != nil {
		return nil, err
	}
	scratch, err := h.mkdir("scratch", 0o755)
	if err != nil {
		return nil, err
	}
	if len(root.folders) > 0 {
		return nil, &Unavailable{HostKind, strings.Join(root.folders, ", ") + " are not links into /usr", ""}
	}
	p, err := h.newProcess(nil, bin, root.dir, scratch, "/bin/true")
	if err != nil {
		return nil, err
	}
	return h.needUserNamespaces(ctx, p.prepared())
}

// needUserNamespaces runs p once. Its failure is the host's doing where not even
// unshare(1) gets a user namespace.
func (h *Host) needUserNamespaces(ctx context.Context, p *Prepared) (*Prepared, error) {
	_, err := p.Run(ctx)
	if err == nil {
		return p, nil
	}
	if _, probe := h.output(ctx, nil, "unshare", "--user", "--map-root-user", "true"); probe != nil && !errors.Is(probe, exec.ErrNotFound) {
		return nil, &Unavailable{HostKind, "no user namespaces: " + probe.Error(), "`hutch doctor` says what to change"}
	}
	return nil, err
}
