package main

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
)

const proposed = `{
	"ociVersion": "1.0.2-dev",
	"hostname": "kept",
	"process": {"terminal": true, "args": ["sh"], "cwd": "/", "user": {"uid": 0}},
	"root": {"path": "rootfs"},
	"mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}],
	"linux": {"namespaces": [{"type": "pid"}, {"type": "mount"}], "maskedPaths": ["/proc/kcore"]}
}`

func TestEditSpec(t *testing.T) {
	root := &skeleton{dir: "/some/root", folders: []string{"/lib"}}
	text, err := editSpec([]byte(proposed), root, []string{"true"}, json.RawMessage(`{"defaultAction":"X"}`))
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Hostname string
		Process  struct {
			Terminal bool
			Args     []string
			Cwd      string
			User     map[string]int
		}
		Root struct {
			Path     string
			Readonly bool
		}
		Mounts []ociMount
		Linux  struct {
			Namespaces  []map[string]string
			MaskedPaths []string
			Seccomp     map[string]string
		}
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if got.Process.Terminal || !slices.Equal(got.Process.Args, []string{"true"}) {
		t.Errorf("process %+v", got.Process)
	}
	if got.Hostname != "kept" || got.Process.Cwd != "/" || len(got.Process.User) != 1 ||
		len(got.Linux.MaskedPaths) != 1 {
		t.Errorf("what needed no change was lost: %s", text)
	}
	if got.Root.Path != root.dir || !got.Root.Readonly || got.Linux.Seccomp["defaultAction"] != "X" {
		t.Errorf("root %+v, seccomp %v", got.Root, got.Linux.Seccomp)
	}
	if len(got.Mounts) != 3 || got.Mounts[1].Destination != "/usr" || got.Mounts[2].Source != "/lib" {
		t.Errorf("mounts %+v, want /usr and /lib after the tool's own", got.Mounts)
	}
	if n := len(got.Linux.Namespaces); n != 3 || got.Linux.Namespaces[2]["type"] != "network" {
		t.Errorf("namespaces %v, want a network namespace added", got.Linux.Namespaces)
	}
	again, err := editSpec(text, root, []string{"true"}, nil)
	if err != nil || strings.Count(string(again), `"network"`) != 1 {
		t.Errorf("%v: want one network namespace, not two: %s", err, again)
	}
	for _, bad := range []string{"", "[]", `{"process": 1}`, `{"process": {}, "linux": {}, "mounts": {}}`} {
		if _, err := editSpec([]byte(bad), root, nil, nil); err == nil {
			t.Errorf("%q was taken for a configuration", bad)
		}
	}
}

func TestProfileFrom(t *testing.T) {
	p, err := profileFrom("# amd64\n0 read allow\n1 ioctl EPERM if int arg1=0x5412; allow\n2 mount EPERM\n3 clone3 ENOSYS | allow\n4 old ENOSYS\n")
	if err != nil {
		t.Fatal(err)
	}
	if got := p.Syscalls[0].Names; !slices.Equal(got, []string{"read", "ioctl"}) {
		t.Errorf("allowed %v", got)
	}
	if got := p.Syscalls[1]; !slices.Equal(got.Names, []string{"mount"}) || *got.ErrnoRet != 1 {
		t.Errorf("refused %+v", got)
	}
	for _, bad := range []string{"", "# nothing\n", "0 read\n", "0 read allow\n"} {
		if _, err := profileFrom(bad); err == nil {
			t.Errorf("%q was taken for decisions", bad)
		}
	}
}

// TestOCISeccomp reads the decisions that the seccomp folder has on record.
func TestOCISeccomp(t *testing.T) {
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	text, err := (&Host{module: root}).ociSeccomp()
	if err != nil {
		t.Fatal(err)
	}
	var p ociProfile
	if err := json.Unmarshal(text, &p); err != nil {
		t.Fatal(err)
	}
	if len(p.Architectures) != 1 || p.Architectures[0] != ociArch[runtime.GOARCH] {
		t.Errorf("architectures %v", p.Architectures)
	}
	if allowed := p.Syscalls[0].Names; !slices.Contains(allowed, "execve") || slices.Contains(allowed, "mount") {
		t.Errorf("execve must be allowed and mount not: %v", allowed)
	}
	var u *Unavailable
	if _, err := (&Host{module: t.TempDir()}).ociSeccomp(); !errors.As(err, &u) || u.Reason != NoProfile {
		t.Errorf("without the golden file: %v", err)
	}
}

func TestCachedProgram(t *testing.T) {
	program := strings.Repeat("12345678", 3)
	sum := sha256.Sum256([]byte(program))
	whole := "hutch-seccomp-v1\n" + string(sum[:]) + program
	if got, err := cachedProgram([]byte(whole)); err != nil || string(got) != program {
		t.Errorf("%q, %v", got, err)
	}
	for _, bad := range []string{"", whole[:40], whole[:len(whole)-1], whole + "x", "x" + whole[1:]} {
		if _, err := cachedProgram([]byte(bad)); err == nil {
			t.Errorf("%d bytes were taken for a program", len(bad))
		}
	}
}

func TestRemoveTree(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tree")
	if err := os.MkdirAll(filepath.Join(dir, "a", "b"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := removeTree("/proc"); err == nil || !strings.Contains(err.Error(), "still mounted") {
		t.Errorf("a mount point: %v", err)
	}
	if err := removeTree(dir); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the folder is still there")
	}
}

func compiler() probe.Check {
	c := probe.Check{Name: "compiler", Status: probe.Yes}
	if _, err := exec.LookPath("gcc"); err != nil && os.Getenv("CC") == "" {
		c.Status, c.Detail, c.Remedy = probe.No, err.Error(), "make deps"
	}
	return c
}

// TestFloor runs the floor as a subject and as a launcher, where user namespaces
// work: the command is alone and rooted where it should be.
func TestFloor(t *testing.T) {
	testenv.Require(t, probe.Overlay(t.Context()), probe.Proc(t.Context()), compiler())
	h := testHost(t)
	p, err := setupFloor(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Run(t.Context()); err != nil {
		t.Error(err)
	}
	floor := []string{h.path("bin", "floor"), h.skel.dir, h.path("scratch")}
	if _, err := h.output(t.Context(), nil, append(floor, "/bin/sh", "-c", "test -e "+h.dir)...); err == nil {
		t.Errorf("%s of the host is visible", h.dir)
	}
	out, err := h.output(t.Context(), nil, append(floor, "/bin/sh", "-c",
		"echo $$ $(id -u); : >/written; cut -d: -f1 /proc/net/dev | tail -n +3 | tr -d ' '; touch /usr/x 2>/dev/null || echo read-only")...)
	if err != nil || out != "1 0\nlo\nread-only" {
		t.Errorf("%q, %v: want pid 1, uid 0, only lo, a read-only /usr", out, err)
	}
	if _, err := os.Stat(filepath.Join(h.skel.dir, "written")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a write reached the lower folder of the overlay")
	}
}
