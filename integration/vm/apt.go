package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// keyring signs Debian's archive; every Debian-like host has it.
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// mirrorVar names a mirror of Debian for hosts that have none of their own.
const mirrorVar = "HUTCH_TEST_MIRROR"

// mirror is where this host's own packages come from.
func mirror(ctx context.Context) (string, error) {
	if uri := os.Getenv(mirrorVar); uri != "" {
		return uri, nil
	}
	list, err := output(exec.CommandContext(ctx, "apt-get", "indextargets", "--format", "$(REPO_URI)",
		"Created-By: Packages"))
	if err != nil {
		return "", err
	}
	for uri := range strings.FieldsSeq(list) {
		if path.Base(uri) == "debian" { // not debian-security
			return uri, nil
		}
	}
	return "", fmt.Errorf("no mirror of Debian among the sources of apt: set %s", mirrorVar)
}

// suites of the kernels and of what runs them. QEMU and the guest are trixie's on
// every host.
var suites = []string{"bookworm", "trixie", "trixie-backports"}

// archive is an apt of its own: lists, cache and an empty status below dir, so that
// nothing of the host's is read or changed but the keyring.
type archive struct{ dir, mirror string }

// openArchive makes the folders and fetches the package lists.
func openArchive(ctx context.Context, dir string) (archive, error) {
	a := archive{dir: dir}
	for _, sub := range []string{"lists/partial", "archives/partial", "etc/apt.conf.d", "etc/preferences.d"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return a, err
		}
	}
	if _, err := os.Stat(keyring); err != nil {
		return a, fmt.Errorf("%w: apt-get install debian-archive-keyring", err)
	}
	var err error
	if a.mirror, err = mirror(ctx); err != nil {
		return a, err
	}
	var sources strings.Builder
	for _, suite := range suites {
		fmt.Fprintf(&sources, "deb [signed-by=%s] %s %s main\n", keyring, a.mirror, suite)
	}
	conf := fmt.Sprintf(`Dir::State "%[1]s";
Dir::State::lists "%[1]s/lists";
Dir::State::status "%[1]s/status";
Dir::Cache "%[1]s";
Dir::Cache::archives "%[1]s/archives";
Dir::Etc "%[1]s/etc";
Dir::Etc::SourceList "%[1]s/sources.list";
APT::Architecture "amd64";
APT::Architectures "amd64";
APT::Install-Recommends "false";
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::Retries "3";
`, dir)
	for name, text := range map[string]string{"sources.list": sources.String(), "apt.conf": conf, "status": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return a, err
		}
	}
	_, err = a.apt(ctx, "", "apt-get", "-q", "update")
	return a, err
}

// apt runs one of apt's programs in folder at.
func (a archive) apt(ctx context.Context, at string, argv ...string) (string, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = at
	cmd.Env = append(os.Environ(), "APT_CONFIG="+filepath.Join(a.dir, "apt.conf"), "DEBIAN_FRONTEND=noninteractive")
	return output(cmd)
}

// unpackWhole unpacks a package and all that it depends on, down to libc, below to.
func (a archive) unpackWhole(ctx context.Context, pkg, to string) error {
	debs := filepath.Join(a.dir, "archives")
	if _, err := a.apt(ctx, "", "apt-get", "-qy", "--download-only", "install", pkg); err != nil {
		return err
	}
	return unpack(ctx, debs, to)
}

// unpackKernel unpacks the newest cloud kernel of a suite below to. The metapackage
// names it, because the archive moves; a kernel may be split in several packages.
func (a archive) unpackKernel(ctx context.Context, suite, to string) error {
	depends := func(pkg string) (string, error) {
		return a.apt(ctx, "", "apt-cache", "depends", pkg)
	}
	text, err := depends("linux-image-cloud-amd64/" + suite)
	if err != nil {
		return err
	}
	image := kernelPackage.FindString(text)
	if image == "" {
		return fmt.Errorf("%s: linux-image-cloud-amd64 depends on no kernel:\n%s", suite, text)
	}
	if text, err = depends(image); err != nil {
		return err
	}
	pkgs := []string{image}
	for _, part := range []string{"linux-binary-", "linux-modules-"} {
		if name := part + strings.TrimPrefix(image, "linux-image-"); strings.Contains(text, name) {
			pkgs = append(pkgs, name)
		}
	}
	debs, err := os.MkdirTemp(a.dir, "kernel-")
	if err != nil {
		return err
	}
	_, err = a.apt(ctx, debs, append([]string{"apt-get", "-q", "download"}, pkgs...)...)
	if err == nil {
		err = unpack(ctx, debs, to)
	}
	return errors.Join(err, os.RemoveAll(debs))
}

var kernelPackage = regexp.MustCompile(`linux-image-[0-9][^ \n]*-cloud-amd64`)

// unpack unpacks every package in the folder debs.
func unpack(ctx context.Context, debs, to string) error {
	all, err := filepath.Glob(filepath.Join(debs, "*.deb"))
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return fmt.Errorf("%s: %w", debs, fs.ErrNotExist)
	}
	for _, deb := range all {
		if _, err := output(exec.CommandContext(ctx, "dpkg-deb", "-x", deb, to)); err != nil {
			return err
		}
	}
	return nil
}

// output runs cmd and returns what it printed; an error tells what it said.
func output(cmd *exec.Cmd) (string, error) {
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s%s", strings.Join(cmd.Args, " "), err, out, stderr.String())
	}
	return string(out), nil
}
