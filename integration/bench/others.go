package main

import (
	"context"
	"path/filepath"
)

// setupFirejail measures firejail with the namespaces that it can be asked for, and no profile.
func setupFirejail(ctx context.Context, h *Host) (*Prepared, error) {
	path, err := needTool("firejail", "firejail")
	if err != nil {
		return nil, err
	}
	p, err := h.newProcess(nil, path, "--quiet", "--noprofile", "--net=none", "--private-dev", "true")
	if err != nil {
		return nil, err
	}
	ready := p.prepared()
	ready.Version = h.version(ctx, path, "--version")
	return h.needUserNamespaces(ctx, ready)
}

// setupPodmanRun measures a container of a folder: no image, no overlay, no network.
func setupPodmanRun(ctx context.Context, h *Host) (*Prepared, error) {
	podman, err := h.rootTool("podman", "podman")
	if err != nil {
		return nil, err
	}
	root, err := h.rootFS()
	if err != nil {
		return nil, err
	}
	dir, err := h.mkdir("podman-run", 0o700)
	if err != nil {
		return nil, err
	}
	argv := []string{
		podman, "--root", filepath.Join(dir, "root"), "--runroot", filepath.Join(dir, "run"), "--storage-driver", "vfs",
		"--cgroup-manager", "cgroupfs",
		"--events-backend", "none", "run", "--rm", "--network", "none", "--read-only", "--security-opt",
		"seccomp=unconfined",
		"--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024", "--cgroups", "disabled",
	}
	for _, host := range append([]string{"/usr"}, root.folders...) {
		argv = append(argv, "--volume", host+":"+host+":ro")
	}
	p, err := h.newProcess(nil, append(argv, "--rootfs", root.dir, "/usr/bin/true")...)
	if err != nil {
		return nil, err
	}
	ready := p.prepared()
	ready.Version = h.version(ctx, podman, "--version")
	return ready, h.hideUnified(ready)
}
