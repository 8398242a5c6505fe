package images

import (
	"crypto/md5" //nolint:gosec // the digest that dpkg keeps
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/internal/testenv"
)

// status is dpkg's list of two packages with the configuration files that are given by path and the content that the
// package brought.
func status(files ...[2]string) string {
	var b strings.Builder
	b.WriteString("Package: first\nStatus: install ok installed\nDescription: no configuration\n Conffiles:\n\nPackage: second\nConffiles:\n")
	for _, f := range files {
		fmt.Fprintf(&b, " %s %x\n", f[0], md5.Sum([]byte(f[1]))) //nolint:gosec // see above
	}
	b.WriteString("Description: a package\n with lines\n\n")
	return b.String()
}

// TestHostConffiles: configuration that is as its package brought it is shown, with the links beside it; what was
// changed, and what the skeleton has its own of, is not.
func TestHostConffiles(t *testing.T) {
	testenv.Axes(t, testenv.User)
	same := func(p string) [2]string { return [2]string{p, "as packaged"} }
	list := status(same("/etc/tool/main.conf"), same("/etc/tool/run.sh"), same("/etc/tool/changed.conf"),
		same("/etc/tool/mods/zip.ini"), same("/etc/one.conf"),
		same("/etc/tool/private/key.pem"), same("/etc/tool/mine.conf"), same("/etc/hosts"), same("/etc/tool/gone.conf"),
		same("/etc/../root/x"),
		same("/home/alice/x"), same("/etc/ssl/openssl.cnf"), same("/etc/apt/auth.conf.d/own"), same("/etc/linked/a"),
		same("/etc/systemd/system.conf"))
	list = strings.Replace(list, " /etc/one.conf "+fmt.Sprintf("%x", md5.Sum([]byte("as packaged"))),
		" /etc/one.conf newconffile\n$0 obsolete", 1)
	list = strings.Replace(list, "$0", fmt.Sprintf(" /etc/one.conf %x", md5.Sum([]byte("as packaged"))), 1)
	h := HostOptions{Root: fakeHost(t, map[string]string{
		"usr/bin/sh": "elf", "usr/share/tool/x": "x", "var/lib/dpkg/status": list,
		"etc/tool/main.conf": "as packaged", "etc/tool/run.sh": "0755:as packaged",
		"etc/tool/changed.conf": "token SECRET", "etc/tool/mods/zip.ini": "as packaged",
		"etc/one.conf": "as packaged", "etc/tool/private/key.pem": "as packaged",
		"etc/tool/mine.conf": "0640:as packaged", "etc/hosts": "as packaged",
		"etc/tool/on/zip.ini": "->../mods/zip.ini", "etc/tool/on/usr": "->/usr/share/tool/x",
		"etc/tool/on/root": "->/root/x", "etc/tool/on/other": "->/etc/npmrc",
		"etc/tool/extra.conf": "SECRET", "root/x": "as packaged", "home/alice/x": "as packaged", "etc/npmrc": "SECRET",
		"etc/other/link":          "->/usr/bin/sh",
		"etc/apt/auth.conf.d/own": "as packaged", "etc/real/a": "as packaged", "etc/linked": "->real",
		"etc/systemd/system.conf":               "as packaged",
		"etc/systemd/system/sync@alice.service": "->/usr/share/tool/x", "etc/security/x.conf": "->/usr/share/tool/x",
		"etc/security/y.conf": "shown",
		"etc/ssl/openssl.cnf": "changed, and shown all the same",
	})}
	s := openStore(t, Options{})
	img, err := s.Host(h)
	must(t, err)
	got := tree(t, s.path(img.Rootfs.Lower[0]))
	for p, want := range map[string]string{
		"/etc/tool/main.conf": "as packaged", "/etc/tool/run.sh": "as packaged",
		"/etc/tool/mods/zip.ini": "as packaged", "/etc/one.conf": "as packaged",
		"/etc/tool/on/zip.ini": "-> ../mods/zip.ini", "/etc/tool/on/usr": "-> /usr/share/tool/x",
		"/etc/ssl/openssl.cnf": "changed, and shown all the same",
	} {
		if got[p] != want {
			t.Errorf("%s: %q, want %q", p, got[p], want)
		}
	}
	for _, p := range []string{
		"/etc/tool/changed.conf", "/etc/tool/private", "/etc/tool/mine.conf", "/etc/tool/gone.conf",
		"/etc/tool/extra.conf", "/etc/tool/on/root",
		"/etc/apt/auth.conf.d", "/etc/linked/a", "/etc/systemd/system",
		"/etc/tool/on/other", "/root/x", "/home/alice", "/etc/npmrc", "/etc/other",
	} {
		if is, ok := got[p]; ok {
			t.Errorf("%s is shown: %q", p, is)
		}
	}
	if got["/etc/hosts"] == "as packaged" {
		t.Error("/etc/hosts is the host's")
	}
	if st, err := os.Stat(filepath.Join(s.path(img.Rootfs.Lower[0]), "etc/tool/run.sh")); err != nil || st.Mode().
		Perm() != 0o755 {
		t.Errorf("run.sh: %v, %v", st, err)
	}

	// What was changed is hidden from then on, and a link that comes is seen.
	must(t, os.WriteFile(filepath.Join(h.Root, "etc/tool/main.conf"), []byte("token SECRET"), 0o644))
	must(t, os.Symlink("../run.sh", filepath.Join(h.Root, "etc/tool/on/new")))
	second, err := s.Host(h)
	must(t, err)
	got = tree(t, s.path(second.Rootfs.Lower[0]))
	if _, ok := got["/etc/tool/main.conf"]; ok || got["/etc/tool/on/new"] != "-> ../run.sh" {
		t.Errorf("after a change: %q, %q", got["/etc/tool/main.conf"], got["/etc/tool/on/new"])
	}
}
