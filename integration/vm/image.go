package main

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

//go:embed guest/image.sh
var imageScript string

// guestPackages are what a small server of a user has: a whole systemd with user
// sessions, and what the tests compare with or use.
var guestPackages = []string{
	"systemd", "systemd-sysv", "libpam-systemd", "dbus", "dbus-user-session", "uidmap", "kmod", "udev", "iproute2",
	"procps",
	"python3", "curl", "nftables", "libcap2-bin", "fuse3", "crun", "runc", "bubblewrap", "apparmor", "util-linux",
	"passwd",
	"login", "strace", "busybox-static", "sudo", "git",
}

// parts are what virtual machines are made of, in the cache.
type parts struct {
	dir string
}

func (p parts) root() string    { return filepath.Join(p.dir, "root.ext4") }
func (p parts) qemu() string    { return filepath.Join(p.dir, "qemu") }
func (p parts) kernels() string { return filepath.Join(p.dir, "kernels") }

// newest stands for the latest kernel there is, whose number changes.
const newest = "newest"

// kernel is the file of a kernel of a series such as "6.12", or of the newest.
func (p parts) kernel(series string) (string, error) {
	if series == newest {
		series = "*"
	}
	var found []string
	for _, pattern := range []string{"boot/vmlinuz-%s.*", "usr/lib/modules/%s.*/vmlinuz"} {
		some, err := filepath.Glob(filepath.Join(p.kernels(), fmt.Sprintf(pattern, series)))
		if err != nil {
			return "", err
		}
		found = append(found, some...)
	}
	if len(found) == 0 {
		return "", fmt.Errorf("no kernel %s in %s: the suites may have moved on, see suites and matrix", series,
			p.kernels())
	}
	return slices.MaxFunc(found, func(a, b string) int { return slices.Compare(numbers(a), numbers(b)) }), nil
}

// release is the version of a kernel, such as 6.12.107.
func (p parts) release(series string) (string, error) {
	path, err := p.kernel(series)
	return versionIn.FindString(path), err
}

// numbers are those of the version of the kernel in a file.
func numbers(path string) []int {
	var list []int
	for _, word := range strings.FieldsFunc(versionIn.FindString(path), func(r rune) bool { return r == '.' }) {
		n, err := strconv.Atoi(word)
		if err != nil {
			return nil // it is all digits: too many
		}
		list = append(list, n)
	}
	return list
}

var versionIn = regexp.MustCompile(`[0-9]+\.[0-9]+\.[0-9]+`)

// makeParts fetches and builds what the cache lacks: QEMU, the kernels and the root
// file system. Each appears whole or not at all.
func makeParts(ctx context.Context, dir string) (parts, error) {
	p := parts{dir}
	key := fmt.Sprintf("%x", sha256.Sum256([]byte(imageScript+strings.Join(append(guestPackages, suites...), " "))))
	stamp := filepath.Join(dir, "stamp")
	if have, err := os.ReadFile(stamp); err == nil && string(have) == key {
		return p, nil
	}
	if os.Geteuid() != 0 {
		return p, errors.New("making the image of the virtual machines needs root: sudo make test-vm")
	}
	if err := os.RemoveAll(dir); err != nil {
		return p, err
	}
	a, err := openArchive(ctx, filepath.Join(dir, "apt"))
	if err != nil {
		return p, err
	}
	if err := a.unpackWhole(ctx, "qemu-system-x86", p.qemu()); err != nil {
		return p, err
	}
	for _, suite := range suites {
		if err := a.unpackKernel(ctx, suite, p.kernels()); err != nil {
			return p, err
		}
	}
	if err := p.makeRoot(ctx, a.mirror); err != nil {
		return p, err
	}
	if err := os.RemoveAll(a.dir); err != nil {
		return p, err
	}
	return p, os.WriteFile(stamp, []byte(key), 0o644)
}

// makeRoot makes the root file system that all cases start from, of packages of mirror.
func (p parts) makeRoot(ctx context.Context, mirror string) error {
	root := filepath.Join(p.dir, "root")
	args := []string{
		"--quiet", "--variant=minbase", "--keyring=" + keyring, "--include=" + strings.Join(guestPackages, ","),
		"--aptopt=APT::Install-Recommends \"false\"", "--aptopt=Acquire::Languages \"none\"",
		"--aptopt=Acquire::Retries \"3\"",
	}
	for _, left := range []string{"doc", "locale", "man"} {
		args = append(args, "--dpkgopt=path-exclude=/usr/share/"+left+"/*")
	}
	if _, err := output(exec.CommandContext(ctx, "mmdebstrap", append(args, "trixie", root, mirror)...)); err != nil {
		return err
	}
	customize := exec.CommandContext(ctx, "sh", "-s", root, p.kernels())
	customize.Stdin = strings.NewReader(imageScript)
	if _, err := output(customize); err != nil {
		return err
	}
	// Nothing of it outlives a run, so it needs no journal and no checksums.
	if err := makeDisk(ctx, root, p.root(), "1600M", "-O", "^has_journal,^metadata_csum", "-m", "0"); err != nil {
		return err
	}
	return os.RemoveAll(root)
}

// makeDisk makes an ext4 file system with the contents of a folder.
func makeDisk(ctx context.Context, from, to, size string, options ...string) error {
	args := append([]string{"-q", "-F", "-t", "ext4", "-d", from}, options...)
	cmd := exec.CommandContext(ctx, "mke2fs", append(args, to, size)...)
	cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	_, err := output(cmd)
	return err
}
