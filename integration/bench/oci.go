package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// unified is where hybrid hosts mount the second cgroup hierarchy.
const unified = "/sys/fs/cgroup/unified"

func setupRunc(ctx context.Context, h *Host) (*Prepared, error) {
	return h.setupOCI(ctx, "runc", false)
}

func setupRuncSeccomp(ctx context.Context, h *Host) (*Prepared, error) {
	return h.setupOCI(ctx, "runc", true)
}

func setupCrun(ctx context.Context, h *Host) (*Prepared, error) {
	return h.setupOCI(ctx, "crun", false)
}

func setupCrunSeccomp(ctx context.Context, h *Host) (*Prepared, error) {
	return h.setupOCI(ctx, "crun", true)
}

// setupOCI makes a bundle and prepares `TOOL run` of it.
func (h *Host) setupOCI(ctx context.Context, tool string, filter bool) (*Prepared, error) {
	path, err := needTool(tool, tool)
	if err != nil {
		return nil, err
	}
	id := "hutch-bench-" + tool
	if filter {
		id += "-seccomp"
	}
	bundle, err := h.makeBundle(ctx, path, id, filter, "true")
	if err != nil {
		return nil, err
	}
	state, err := h.mkdir(id+".state", 0o700)
	if err != nil {
		return nil, err
	}
	var env []string
	if tool == "crun" && h.uid != 0 {
		// For a map of one id crun needs no newuidmap, but runs it when it finds
		// it: 5 ms that say nothing about crun.
		env = []string{"PATH=" + h.path("home")}
	}
	p, err := h.newProcess(env, path, "--root", state, "run", "--bundle", bundle, id)
	if err != nil {
		return nil, err
	}
	ready := p.prepared()
	ready.Command = strings.Join(append(env, ready.Command), " ")
	ready.Version = h.version(ctx, path, "--version")
	// Only a run that was killed leaves a container.
	h.undo.Add(func() error {
		left, err := os.ReadDir(state)
		if err == nil && len(left) > 0 {
			_, err = h.output(context.WithoutCancel(ctx), nil, path, "--root", state, "delete", "--force", id)
		}
		return err
	})
	if tool == "crun" {
		if err := h.hideUnified(ready); err != nil {
			return nil, err
		}
	}
	return ready, nil
}

func setupRuncExec(ctx context.Context, h *Host) (*Prepared, error) {
	return h.setupOCIExec(ctx, "runc")
}

func setupCrunExec(ctx context.Context, h *Host) (*Prepared, error) {
	return h.setupOCIExec(ctx, "crun")
}

// setupOCIExec starts a container that lives as long as the benchmark, and prepares
// `TOOL exec` in it.
func (h *Host) setupOCIExec(ctx context.Context, tool string) (*Prepared, error) {
	path, err := needTool(tool, tool)
	if err != nil {
		return nil, err
	}
	id := "hutch-bench-" + tool + "-exec"
	bundle, err := h.makeBundle(ctx, path, id, false, "sleep", "infinity")
	if err != nil {
		return nil, err
	}
	state, err := h.mkdir(id+".state", 0o700)
	if err != nil {
		return nil, err
	}
	start, err := h.newProcess(nil, path, "--root", state, "run", "--detach", "--bundle", bundle, id)
	if err != nil {
		return nil, err
	}
	p, err := h.newProcess(nil, path, "--root", state, "exec", id, "true")
	if err != nil {
		return nil, err
	}
	begin, ready := start.prepared(), p.prepared()
	ready.Version = h.version(ctx, path, "--version")
	if tool == "crun" {
		if err := errors.Join(h.hideUnified(begin), h.hideUnified(ready)); err != nil {
			return nil, err
		}
	}
	if _, err := begin.Run(ctx); err != nil {
		return nil, err
	}
	h.undo.Add(func() error {
		_, err := h.output(context.WithoutCancel(ctx), nil, path, "--root", state, "delete", "--force", id)
		return err
	})
	return ready, nil
}

// makeBundle writes the OCI bundle: what `TOOL spec` proposes, with our command,
// the host's /usr for a root file system and, as every sandbox of ours has one, a
// network namespace.
func (h *Host) makeBundle(ctx context.Context, tool, name string, filter bool, argv ...string) (string, error) {
	root, err := h.rootFS()
	if err != nil {
		return "", err
	}
	dir, err := h.mkdir(name, 0o755)
	if err != nil {
		return "", err
	}
	propose := []string{tool, "spec", "--bundle", dir}
	if h.uid != 0 {
		propose = append(propose, "--rootless")
	}
	if _, err := h.output(ctx, nil, propose...); err != nil {
		return "", err
	}
	file := filepath.Join(dir, "config.json")
	proposed, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	var profile json.RawMessage
	if filter {
		if profile, err = h.ociSeccomp(); err != nil {
			return "", err
		}
	}
	spec, err := editSpec(proposed, root, argv, profile)
	if err != nil {
		return "", fmt.Errorf("edit what %s prints: %w", shellLine(propose), err)
	}
	_, err = h.write(filepath.Join(name, "config.json"), spec)
	return dir, err
}

// ociMount is a mount of an OCI configuration (runtime-spec, config.md#mounts).
type ociMount struct {
	Destination string   `json:"destination"`
	Type        string   `json:"type"`
	Source      string   `json:"source"`
	Options     []string `json:"options,omitempty"`
}

// editSpec changes a configuration and keeps what it does not know as it is.
func editSpec(proposed []byte, root *skeleton, argv []string, seccomp json.RawMessage) ([]byte, error) {
	var spec, process, linux map[string]json.RawMessage
	var mounts []json.RawMessage
	var namespaces []map[string]string
	err := errors.Join(
		json.Unmarshal(proposed, &spec), json.Unmarshal(spec["process"], &process),
		json.Unmarshal(spec["linux"], &linux),
		json.Unmarshal(spec["mounts"], &mounts), json.Unmarshal(linux["namespaces"], &namespaces))
	if err != nil {
		return nil, err
	}
	set := func(object map[string]json.RawMessage, key string, value any) {
		text, e := json.Marshal(value)
		err = errors.Join(err, e)
		object[key] = text
	}
	set(process, "terminal", false)
	set(process, "args", argv)
	for _, host := range append([]string{"/usr"}, root.folders...) {
		m, e := json.Marshal(ociMount{host, "none", host, []string{"rbind", "ro"}})
		err = errors.Join(err, e)
		mounts = append(mounts, m)
	}
	if !slices.ContainsFunc(namespaces, func(ns map[string]string) bool { return ns["type"] == "network" }) {
		namespaces = append(namespaces, map[string]string{"type": "network"})
	}
	set(linux, "namespaces", namespaces)
	if seccomp != nil {
		linux["seccomp"] = seccomp
	}
	set(spec, "process", process)
	set(spec, "linux", linux)
	set(spec, "mounts", mounts)
	set(spec, "root", struct {
		Path     string `json:"path"`
		Readonly bool   `json:"readonly"`
	}{root.dir, true})
	if err != nil {
		return nil, err
	}
	return json.MarshalIndent(spec, "", "\t")
}

// hideUnified lets crun run on hybrid hosts whose second hierarchy has a
// controller: it refuses to, even with --cgroup-manager=disabled, unless it sees
// no cgroup2 there.
func (h *Host) hideUnified(p *Prepared) error {
	controllers, err := os.ReadFile(filepath.Join(unified, "cgroup.controllers"))
	if err != nil || len(strings.TrimSpace(string(controllers))) == 0 {
		return nil
	}
	if os.Geteuid() != 0 {
		return &Unavailable{HostKind, "crun refuses hybrid cgroups whose v2 hierarchy has controllers",
			"run the benchmark as root with -user UID, which hides that hierarchy from crun"}
	}
	// A tmpfs on top, and no umount, because crun then makes its folder there: it
	// goes away with the mount namespace.
	t, err := startMountThread(func() error {
		return unix.Mount("tmpfs", unified, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0755")
	})
	if err != nil {
		return err
	}
	h.undo.Add(t.stop)
	run := p.Run
	p.Run = func(ctx context.Context) (s Sample, err error) {
		t.do(func() { s, err = run(ctx) })
		return s, err
	}
	p.Note = "started in a mount namespace with a tmpfs on " + unified
	return nil
}
