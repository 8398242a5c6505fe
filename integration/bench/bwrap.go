package main

import (
	"context"
	"maps"
	"os"
	"slices"
	"strings"
)

// bwrapCommand is bubblewrap with every namespace, and what a command needs at
// least: /usr, /proc, /dev and /tmp. more comes before the command.
func (h *Host) bwrapCommand(more ...string) ([]string, error) {
	path, err := needTool("bwrap", "bubblewrap")
	if err != nil {
		return nil, err
	}
	root, err := h.rootFS()
	if err != nil {
		return nil, err
	}
	argv := []string{path, "--unshare-all", "--ro-bind", "/usr", "/usr"}
	for _, link := range slices.Sorted(maps.Keys(root.links)) {
		argv = append(argv, "--symlink", root.links[link], link)
	}
	for _, dir := range root.folders {
		argv = append(argv, "--ro-bind", dir, dir)
	}
	argv = append(argv, "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp")
	return append(append(argv, more...), "true"), nil
}

func setupBwrap(ctx context.Context, h *Host) (*Prepared, error) {
	argv, err := h.bwrapCommand()
	if err != nil {
		return nil, err
	}
	p, err := h.newProcess(nil, argv...)
	if err != nil {
		return nil, err
	}
	ready := p.prepared()
	ready.Version = h.version(ctx, argv[0], "--version")
	return h.needUserNamespaces(ctx, ready)
}

// setupBwrapSeccomp hands bwrap the program that hutch has compiled for itself,
// through a descriptor that is rewound before each run.
func setupBwrapSeccomp(ctx context.Context, h *Host) (*Prepared, error) {
	// The first descriptor after stderr, by the order of os.ProcAttr.Files.
	argv, err := h.bwrapCommand("--seccomp", "3")
	if err != nil {
		return nil, err
	}
	program, err := h.compiledSeccomp(ctx)
	if err != nil {
		return nil, err
	}
	name, err := h.write("seccomp.bpf", program)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	h.undo.Add(f.Close)
	p, err := h.newProcess(nil, argv...)
	if err != nil {
		return nil, err
	}
	p.attr.Files = append(p.attr.Files, f)
	ready := p.prepared()
	ready.Command = strings.Join([]string{ready.Command, "3<", name}, " ")
	ready.Version = h.version(ctx, argv[0], "--version")
	ready.Run = func(ctx context.Context) (Sample, error) {
		if _, err := f.Seek(0, 0); err != nil {
			return Sample{}, err
		}
		return p.run(ctx)
	}
	return h.needUserNamespaces(ctx, ready)
}
