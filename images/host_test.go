package images

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/images/host"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// fakeHost is a host's root folder: path -> content; a trailing slash makes a
// folder, a leading "->" a symlink, a leading "0600:" a private file.
func fakeHost(t *testing.T, nodes map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for _, p := range slices.Sorted(func(yield func(string) bool) {
		for p := range nodes {
			if !yield(p) {
				return
			}
		}
	}) {
		full := filepath.Join(root, p)
		must(t, os.MkdirAll(filepath.Dir(full), 0o755))
		switch content := nodes[p]; {
		case strings.HasSuffix(p, "/"):
			must(t, os.MkdirAll(full, 0o755))
		case strings.HasPrefix(content, "->"):
			must(t, os.Symlink(content[2:], full))
		case len(content) > 5 && content[0] == '0' && content[4] == ':': // its mode
			mode, err := strconv.ParseUint(content[:4], 8, 9)
			must(t, err)
			must(t, os.WriteFile(full, []byte(content[5:]), 0o600))
			must(t, os.Chmod(full, os.FileMode(mode)))
		default:
			must(t, os.WriteFile(full, []byte(content), 0o644))
		}
	}
	return root
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// openStore opens a new store. An ordinary user cannot chown outside of a user
// namespace; TestInUserNamespace has what that leaves out.
func openStore(t *testing.T, opts Options) *Store {
	t.Helper()
	opts.SingleUID = opts.SingleUID || os.Geteuid() != 0
	return openStoreAt(t, filepath.Join(t.TempDir(), "images"), opts)
}

func openStoreAt(t *testing.T, dir string, opts Options) *Store {
	t.Helper()
	s, err := Open(dir, opts)
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

// tree lists the skeleton of an image: path -> "dir", "-> target" or content.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	m := make(map[string]string)
	must(t, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel := strings.TrimPrefix(p, dir)
		switch {
		case d.IsDir():
			m[rel] = "dir"
		case d.Type()&fs.ModeSymlink != 0:
			to, err := os.Readlink(p)
			if err != nil {
				return err
			}
			m[rel] = "-> " + to
		default:
			data, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			m[rel] = string(data)
		}
		return nil
	}))
	return m
}

var debianLike = map[string]string{
	"usr/bin/bash": "elf", "usr/bin/env": "elf", "usr/lib/": "", "usr/share/zoneinfo/UTC": "tz",
	"usr/local/etc/npmrc": "//registry/:_authToken=SECRET",
	"bin":                 "->usr/bin", "lib": "->usr/lib", "sbin": "->usr/sbin",
	"etc/shadow": "0600:root:SECRET", "etc/npmrc": "token SECRET", "etc/gitconfig": "SECRET",
	"etc/hosts":            "10.0.0.7 SECRET",
	"etc/ssh/ssh_host_key": "0600:SECRET", "etc/profile.d/token.sh": "export TOKEN=SECRET", "etc/environment": "SECRET",
	"etc/passwd":               "root:x:0:0:SECRET:/root:/bin/zsh\nalice:x:1000:1000:SECRET:/home/alice:/bin/bash\nwww-data:x:33:33:SECRET:/var/www:/usr/sbin/nologin\nroot2:x:0:0::/:/bin/sh\ndaemon:x:0:0::/:/bin/sh\n",
	"etc/group":                "root:x:0:alice\nwww-data:x:33:alice\nalice:x:1000:\nnogroup:x:65534:\n",
	"etc/ssl/certs/ca.crt":     "CERT",
	"etc/ssl/certs/link.pem":   "->ca.crt",
	"etc/ssl/certs/away.pem":   "->/root/away.pem",
	"etc/ssl/certs/local.pem":  "CERT\n-----BEGIN RSA PRIVATE KEY-----\nSECRET\n",
	"etc/ssl/certs/hidden.pem": "0600:SECRET",
	"etc/ssl/certs/x.key":      "SECRET", "etc/ssl/private/k.pem": "SECRET",
	"etc/pki/tls/private/k.pem": "SECRET",
	"etc/pki/tls/cert.pem":      "CERT2",
	"etc/alternatives/vi":       "->/usr/bin/env", "etc/alternatives/evil": "->/home/alice/evil",
	"etc/alternatives/masked": "->/usr/local/etc/npmrc",
	"etc/localtime":           "->/usr/share/zoneinfo/UTC",
	"etc/ld.so.cache":         "CACHE", "etc/ld.so.preload": "SECRET",
	"home/alice/.ssh/id": "SECRET", "root/away.pem": "SECRET", "run/docker.sock": "SECRET", "opt/tool/conf": "SECRET",
	"var/lib/app/db": "SECRET",
}

func TestHostSkeletonShowsOnlyWhatIsAllowed(t *testing.T) {
	s := openStore(t, Options{})
	root := fakeHost(t, debianLike)
	img, err := s.Host(HostOptions{Root: root})
	must(t, err)
	got := tree(t, s.path(img.Rootfs.Lower[0]))
	for p, content := range got {
		if strings.Contains(content, "SECRET") || strings.Contains(content, "alice") {
			t.Errorf("%s is shown: %q", p, content)
		}
	}
	want := map[string]string{
		"/bin": "-> usr/bin", "/usr": "dir", "/home": "dir", "/root": "dir", "/workspace": "dir",
		"/etc/ssl/certs/ca.crt": "CERT", "/etc/ssl/certs/link.pem": "-> ca.crt", "/etc/pki/tls/cert.pem": "CERT2",
		"/etc/alternatives/vi": "-> /usr/bin/env", "/etc/localtime": "-> /usr/share/zoneinfo/UTC",
		"/etc/ld.so.cache": "CACHE", "/etc/resolv.conf": "",
		"/etc/gitconfig": "[safe]\n\tdirectory = *\n", // its own
		"/etc/group":     "root:x:0:\nwww-data:x:33:\nnogroup:x:65534:\n",
	}
	for p, content := range want {
		if have, ok := got[p]; !ok || have != content {
			t.Errorf("%s = %q, want %q", p, have, content)
		}
	}
	for _, p := range []string{
		"/etc/shadow", "/etc/npmrc", "/etc/ld.so.preload", "/etc/profile.d", "/etc/environment",
		"/etc/ssl/certs/away.pem", "/etc/ssl/certs/local.pem", "/etc/ssl/certs/hidden.pem", "/etc/ssl/certs/x.key",
		"/etc/ssl/private", "/etc/pki/tls/private", "/etc/alternatives/evil", "/etc/alternatives/masked", "/opt/tool",
	} {
		if _, ok := got[p]; ok {
			t.Errorf("%s is in the skeleton", p)
		}
	}
	if strings.Count(got["/etc/passwd"], ":0:0:") != 1 ||
		!strings.HasPrefix(got["/etc/passwd"], "root:*:0:0:root:/root:/bin/bash\n") {
		t.Errorf("passwd:\n%s", got["/etc/passwd"])
	}
}

func TestHostModes(t *testing.T) {
	testenv.Axes(t, testenv.User)
	s := openStore(t, Options{})
	root := fakeHost(t, debianLike)
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	img, err := s.Host(HostOptions{Root: root})
	must(t, err)
	for p, want := range map[string]fs.FileMode{
		"": 0o755, "/root": 0o700, "/tmp": 0o777 | fs.ModeSticky, "/var/tmp": 0o777 | fs.ModeSticky,
		"/etc": 0o755, "/etc/passwd": 0o644, "/etc/ssl/certs": 0o755,
	} {
		st, err := os.Stat(s.path(img.Rootfs.Lower[0]) + p)
		must(t, err)
		if got := st.Mode() &^ fs.ModeDir; got != want {
			t.Errorf("%s has mode %v, want %v", p, got, want)
		}
	}
	if st, _ := os.Stat(s.Dir()); st.Mode().Perm() != 0o700 {
		t.Errorf("the store has mode %v", st.Mode())
	}
}

func TestHostBinds(t *testing.T) {
	testenv.Axes(t, testenv.User)
	tests := []struct {
		name  string
		nodes map[string]string
		opt   bool
		want  string // targets
		hide  string
		path  string // last part of PATH
		cmd   string
	}{
		{"merged", debianLike, false, "/usr", "/usr/local/etc", "/bin", "/bin/bash"},
		{"tex", map[string]string{"usr/bin/bash": "elf", "bin": "->usr/bin", "var/lib/texmf/ls-R": "x",
			"var/lib/other/x": "SECRET"}, false, "/usr /var/lib/texmf", "", "/bin", "/bin/bash"},
		{"opt", debianLike, true, "/usr /opt", "/usr/local/etc", "/bin", "/bin/bash"},
		{"alpine", map[string]string{"bin/sh": "elf", "sbin/": "", "lib/": "", "usr/bin/env": ""}, false,
			"/bin /sbin /lib /usr", "", "/bin", "/bin/sh"},
		{"etc is a link", map[string]string{"usr/local": "->../var/usrlocal", "var/usrlocal/etc/x": "SECRET",
			"bin": "->usr/bin"}, false, "/usr", "", "/bin", "/bin/sh"},
		{"nixos", map[string]string{
			"nix/store/s-sw/bin/python3": "elf", "nix/store/b-bash/bin/sh": "elf",
			"bin/sh":      "->/nix/store/b-bash/bin/sh",
			"usr/bin/env": "->/nix/store/s-sw/bin/env", "run/current-system/sw": "->/nix/store/s-sw",
			"etc/static/ssl/certs/ca.crt": "->/nix/store/c/ca.crt", "nix/store/c/ca.crt": "CERT",
			"etc/ssl/certs/ca.crt": "->/etc/static/ssl/certs/ca.crt",
		}, false, "/bin /usr /nix/store", "", "/nix/store/s-sw/bin", "/bin/sh"},
		{"guix", map[string]string{
			"gnu/store/s-profile/bin/python3": "elf", "gnu/store/b-bash/bin/sh": "elf",
			"bin/sh":                     "->/gnu/store/b-bash/bin/sh",
			"run/current-system/profile": "->/gnu/store/s-profile", "var/guix/profiles/per-user/alice/x": "SECRET",
		}, false, "/bin /gnu/store", "", "/gnu/store/s-profile/bin", "/bin/sh"},
		{"neither merged nor plain", map[string]string{
			"bin/bash": "elf", "sbin/": "", "lib/": "", "lib32/": "", "lib64/": "", "libx32/": "", "usr/bin/": "",
			"usr/local/etc/x": "SECRET",
		}, false, "/bin /sbin /lib /lib32 /lib64 /libx32 /usr", "/usr/local/etc", "/bin", "/bin/bash"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := openStore(t, Options{})
			root := fakeHost(t, tt.nodes)
			img, err := s.Host(HostOptions{Root: root, Opt: tt.opt})
			must(t, err)
			var targets, hide []string
			for _, b := range img.Rootfs.Binds {
				targets, hide = append(targets, b.Target), append(hide, b.Hide...)
				if b.Source != root+b.Target || !b.Recursive {
					t.Errorf("bind %+v", b)
				}
				if st, err := os.Lstat(filepath.Join(s.path(img.Rootfs.Lower[0]), b.Target)); err != nil ||
					!st.IsDir() {
					t.Errorf("no folder to mount %s on: %v", b.Target, err)
				}
			}
			if got := strings.Join(targets, " "); got != tt.want {
				t.Errorf("binds %q, want %q", got, tt.want)
			}
			if got := strings.Join(hide, " "); got != tt.hide {
				t.Errorf("hidden %q, want %q", got, tt.hide)
			}
			if p := strings.Split(img.Config.Env[0], ":"); p[len(p)-1] != tt.path {
				t.Errorf("PATH %v", p)
			}
			if img.Config.Cmd[0] != tt.cmd {
				t.Errorf("shell %v", img.Config.Cmd)
			}
			if tt.name == "nixos" {
				to, _ := os.Readlink(filepath.Join(s.path(img.Rootfs.Lower[0]), "etc/ssl/certs/ca.crt"))
				if to != "/nix/store/c/ca.crt" {
					t.Errorf("certificates lead to %q", to)
				}
			}
		})
	}
}

func TestHostMaskIsOpaque(t *testing.T) {
	s := openStore(t, Options{})
	img, err := s.Host(HostOptions{Root: fakeHost(t, debianLike)})
	must(t, err)
	mask := s.path(img.Rootfs.Binds[0].Overlay)
	buf := make([]byte, 8)
	n, err := unix.Getxattr(filepath.Join(mask, "local/etc"), "user.overlay.opaque", buf)
	if err != nil || string(buf[:n]) != "y" {
		t.Errorf("the mask of /usr/local/etc is not opaque: %q, %v", buf[:max(n, 0)], err)
	}
	if _, err := unix.Getxattr(filepath.Join(mask, "local"), "user.overlay.opaque", buf); err == nil {
		t.Error("/usr/local is opaque: its programs are hidden")
	}
}

func TestHostIsRebuiltWhenTheHostChanges(t *testing.T) {
	s := openStore(t, Options{})
	root := fakeHost(t, debianLike)
	first, err := s.Host(HostOptions{Root: root})
	must(t, err)
	again, err := s.Host(HostOptions{Root: root})
	must(t, err)
	if again != first {
		t.Error("an unchanged host was looked at twice within a moment")
	}
	must(t, os.WriteFile(filepath.Join(root, "etc/ssl/certs/new.crt"), []byte("NEW"), 0o644))
	second, err := s.Host(HostOptions{Root: root})
	must(t, err)
	if second.ID == first.ID {
		t.Fatal("a new certificate did not change the skeleton")
	}
	if got := tree(t, s.path(second.Rootfs.Lower[0]))["/etc/ssl/certs/new.crt"]; got != "NEW" {
		t.Errorf("new.crt = %q", got)
	}

	// The old one goes with the next collection, unless a sandbox has it.
	lease, err := s.Lease(first.Rootfs.Lower)
	must(t, err)
	_, err = s.GC(nil)
	must(t, err)
	if _, err := os.Stat(s.path(first.Rootfs.Lower[0])); err != nil {
		t.Errorf("a leased skeleton was removed: %v", err)
	}
	lease.Release()
	_, err = s.GC(nil)
	must(t, err)
	if _, err := os.Stat(s.path(first.Rootfs.Lower[0])); err == nil {
		t.Error("an outdated skeleton stays")
	}
	if _, err := os.Stat(s.path(second.Rootfs.Lower[0])); err != nil {
		t.Errorf("the skeleton in use was removed: %v", err)
	}
}

func TestHostOfThisMachine(t *testing.T) {
	testenv.Axes(t, testenv.User)
	s := openStore(t, Options{})
	start := time.Now()
	img, err := s.Host(HostOptions{})
	must(t, err)
	build := time.Since(start)
	start = time.Now()
	same := host.Unchanged(s.host.sources)
	check := time.Since(start)
	got := tree(t, s.path(img.Rootfs.Lower[0]))
	var size int
	for p, c := range got {
		size += len(c)
		if strings.Contains(p, "shadow") || strings.Contains(c, "PRIVATE KEY-----") {
			t.Errorf("%s is shown", p)
		}
	}
	start = time.Now()
	next, err := Open(s.Dir(), Options{})
	must(t, err)
	other, err := next.Host(HostOptions{})
	must(t, err)
	if same && host.Unchanged(s.host.sources) && other.ID != img.ID {
		t.Error("another process made another skeleton of an unchanged host")
	}
	must(t, next.Close())
	t.Logf("another process found it in %v", time.Since(start))
	t.Logf("%d nodes, %d bytes, built in %v, %d sources checked in %v", len(got), size, build,
		len(s.host.sources), check)
}
