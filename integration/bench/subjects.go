package main

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// subjects lists everything that can be measured, in the order of the reports.
func subjects() []Subject {
	return append([]Subject{
		{Name: "true", About: "fork, exec and exit of true on the host: what any process costs", Setup: setupTrue},
		{Name: "floor", About: "all namespaces, overlay root, loopback, no walls (floor/floor.c)", Setup: setupFloor},
		{Name: "bwrap", About: "all namespaces, bind mounts; no overlay, seccomp, cgroup", Setup: setupBwrap},
		{Name: "bwrap-seccomp", About: "the same with hutch's own filter", Setup: setupBwrapSeccomp},
		{Name: "crun", About: "its default spec with a network namespace; no seccomp", Setup: setupCrun},
		{Name: "crun-seccomp", About: "the same with the names of hutch's filter", Setup: setupCrunSeccomp},
		{Name: "runc", About: "its default spec with a network namespace; no seccomp", Setup: setupRunc},
		{Name: "runc-seccomp", About: "the same with the names of hutch's filter", Setup: setupRuncSeccomp},
		{Name: "firejail", About: "namespaces, private /dev, no network, no profile", Setup: setupFirejail},
		{Name: "podman-run", About: "a container of a folder; no network, seccomp or cgroup", Setup: setupPodmanRun},
		{Name: "crun-exec", About: "crun exec of true in a live container", Setup: setupCrunExec},
		{Name: "runc-exec", About: "runc exec of true in a live container", Setup: setupRuncExec},
		{Name: "hutch-version", About: "start of the hutch command alone", Setup: setupHutchVersion},
		{Name: "hutch-exec", About: "a command in a live sandbox, shared daemon up", Setup: setupHutchExec},
		{Name: "hutch-call", About: "exec.run of true, captured output, over a warm connection", Setup: setupHutchCall},
		{Name: "hutch-call-passed", About: "the same with the caller's own files as stdio",
			Setup: setupHutchCallPassed},
		{Name: "hutch-call-spin", About: "such calls beside busy loops on all CPUs in another sandbox",
			Setup: setupHutchCallSpin},
		{Name: "hutch-call-bomb", About: "such calls beside a fork bomb in another sandbox", Setup: setupHutchCallBomb},
		{Name: "hutch-tail", About: "the p99 of such calls", Setup: setupHutchTail},
		{Name: "hutch-tail-flooded", About: "the same beside a client that keeps 256 calls under way",
			Setup: setupHutchTailFlooded},
		{Name: "pipe", About: "128 MiB through a pipe on the host", Setup: setupPipe},
		{Name: "hutch-pipe", About: "the same out of a sandbox, the pipe passed as stdout", Setup: setupHutchPipe},
		{Name: "hutch-attach", About: "128 MiB of stdout through the spool to a client that is attached",
			Setup: setupHutchAttach},
		{Name: "hutch-run", About: "a new sandbox with everything on, shared daemon up, no pool", Setup: setupHutchRun},
		{Name: "hutch-run-ready", About: "the same, of a sandbox that was launched ahead", Setup: setupHutchRunReady},
		{Name: "hutch-run-pool", About: "the same, out of a pool", Setup: setupHutchRunPool},
		{Name: "hutch-run-private", About: "the same, and the start and end of a daemon of its own",
			Setup: setupHutchPrivate},
	}, slices.Concat(agentSubjects(), mcpSubjects(), restSubjects(), guardSubjects(), undoSubjects(), branchSubjects(),
		lifeSubjects(), networkSubjects(), pullSubjects())...)
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
	if _, err := h.mkdir("bin", 0o755); err != nil {
		return nil, err
	}
	bin := h.path("bin", "floor")
	if err := h.compile(ctx, bin, filepath.Join(h.module, "integration", "bench", "floor", "floor.c")); err != nil {
		return nil, err
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
	if _, probe := h.output(ctx, nil, "unshare", "--user", "--map-root-user", "true"); probe != nil &&
		!errors.Is(probe, exec.ErrNotFound) {
		return nil, &Unavailable{HostKind, "no user namespaces: " + probe.Error(), "`hutch doctor` says what to change"}
	}
	return nil, err
}
