package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// ociArch names this architecture as an OCI configuration does.
var ociArch = map[string]string{"amd64": "SCMP_ARCH_X86_64", "arm64": "SCMP_ARCH_AARCH64"}

// ociSyscalls is a rule of an OCI seccomp profile.
type ociSyscalls struct {
	Names    []string `json:"names"`
	Action   string   `json:"action"`
	ErrnoRet *uint    `json:"errnoRet,omitempty"`
}

// ociProfile is an OCI seccomp profile (runtime-spec, config-linux.md#seccomp).
type ociProfile struct {
	DefaultAction   string        `json:"defaultAction"`
	DefaultErrnoRet uint          `json:"defaultErrnoRet"`
	Architectures   []string      `json:"architectures"`
	Syscalls        []ociSyscalls `json:"syscalls"`
}

// ociSeccomp is hutch's default policy for other runtimes: the same names, native
// architecture only, without conditions on arguments. That is a little less work
// for them than the original. It comes from the golden file of the seccomp folder,
// so that it cannot fall behind.
func (h *Host) ociSeccomp() (json.RawMessage, error) {
	arch, known := ociArch[runtime.GOARCH]
	golden := filepath.Join(h.module, "seccomp", "testdata", "decisions_"+runtime.GOARCH+".golden")
	decisions, err := os.ReadFile(golden)
	if !known || errors.Is(err, fs.ErrNotExist) {
		return nil, &Unavailable{NoProfile, "no list of hutch's decisions for " + runtime.GOARCH, ""}
	}
	if err != nil {
		return nil, err
	}
	p, err := profileFrom(string(decisions))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", golden, err)
	}
	p.Architectures = []string{arch}
	return json.Marshal(p)
}

// profileFrom reads lines of "NUMBER NAME DECISION", where the decision is
// "allow" or an errno, or several of them with conditions. A name that is ever
// allowed is allowed.
func profileFrom(decisions string) (*ociProfile, error) {
	eperm := uint(unix.EPERM)
	allow := ociSyscalls{Action: "SCMP_ACT_ALLOW"}
	refuse := ociSyscalls{Action: "SCMP_ACT_ERRNO", ErrnoRet: &eperm}
	for line := range strings.Lines(decisions) {
		if strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "" {
			continue
		}
		fields := strings.SplitN(strings.TrimSpace(line), " ", 3)
		if len(fields) != 3 {
			return nil, fmt.Errorf("line %q is not a number, a name and a decision", line)
		}
		// What comes after the bar holds for PID 1 only.
		ours, _, _ := strings.Cut(fields[2], "|")
		switch {
		case strings.Contains(ours, "allow"):
			allow.Names = append(allow.Names, fields[1])
		case strings.Contains(ours, "EPERM"):
			refuse.Names = append(refuse.Names, fields[1])
		}
	}
	if len(allow.Names) == 0 || len(refuse.Names) == 0 {
		return nil, fmt.Errorf("%d names allowed, %d refused: that is no policy", len(allow.Names), len(refuse.Names))
	}
	return &ociProfile{
		DefaultAction: "SCMP_ACT_ERRNO", DefaultErrnoRet: uint(unix.ENOSYS),
		Syscalls: []ociSyscalls{allow, refuse},
	}, nil
}

// compiledSeccomp is the program that hutch runs commands under, from the cache
// that the shared daemon's launcher fills.
func (h *Host) compiledSeccomp(ctx context.Context) ([]byte, error) {
	if _, err := h.sharedDaemon(ctx); err != nil {
		return nil, err
	}
	var found []byte
	err := filepath.WalkDir(h.path("state"), func(path string, e fs.DirEntry, err error) error {
		// Folders of sandboxes come and go, and some are not ours to read.
		if err != nil || e.IsDir() || filepath.Ext(path) != ".bpf" {
			return nil //nolint:nilerr // see above
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		program, err := cachedProgram(content)
		// The programs differ by what PID 1 may do besides: the commands' is shorter.
		if err == nil && (found == nil || len(program) < len(found)) {
			found = program
		}
		return err
	})
	if err == nil && found == nil {
		err = errors.New("hutch keeps no compiled seccomp program below " + h.path("state"))
	}
	return found, err
}

// cachedProgram takes the program out of a file of hutch's cache: a line that
// names the format, a SHA-256 of the rest, the rest.
func cachedProgram(content []byte) ([]byte, error) {
	const magic = "hutch-seccomp-v1\n"
	rest, ok := strings.CutPrefix(string(content), magic)
	if !ok || len(rest) <= sha256.Size {
		return nil, errors.New("not a cached seccomp program")
	}
	program := []byte(rest[sha256.Size:])
	if sum := sha256.Sum256(program); string(sum[:]) != rest[:sha256.Size] {
		return nil, errors.New("checksum of the cached seccomp program does not match")
	}
	return program, nil
}
