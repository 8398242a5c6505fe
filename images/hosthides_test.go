package images

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/images/host"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// hides are made-up files of a host, one by one beside what the same host shows, which is
// the twin of each denial. The host has a shell and /usr/local/etc besides.
var hides = []struct {
	rule   string // a line of host.NeverCopied or host.MaskedFolders, or what else hides it
	hidden string // the file, absolute
	is     string // content as fakeHost takes it; "" is SECRET
	twin   string // a file of the same kind that is shown
}{
	{"private", "/etc/ssl/certs/private/a.pem", "", "/etc/ssl/certs/public/a.pem"},
	{"*.key", "/etc/pki/tls/a.key", "", "/etc/pki/tls/a.crt"},
	{"*.p12", "/etc/pki/a.p12", "", "/etc/pki/a.p7b"},
	{"*.jks", "/etc/java/a.jks", "", "/etc/java/a.conf"},
	{"*.password", "/etc/java-21-openjdk/jmxremote.password", "", "/etc/java-21-openjdk/net.properties"},
	{"*.password.template", "/etc/java-21-openjdk/jmxremote.password.template", "",
		"/etc/java-21-openjdk/logging.properties"},
	{"*.access", "/etc/java-21-openjdk/jmxremote.access", "", "/etc/java-21-openjdk/jmxremote"},
	{"*~", "/etc/fonts/fonts.conf~", "", "/etc/fonts/fonts.conf"},
	{"*.dpkg-*", "/etc/fonts/a.dpkg-old", "", "/etc/fonts/a"},
	{"*.gz", "/etc/alternatives/vi.1.gz", "", "/etc/alternatives/vi"},
	{"/usr/local/etc", "/usr/local/etc/npmrc", "", "/usr/local/bin/npm"},

	{"not for everybody", "/etc/ssl/certs/mine.pem", "0600:SECRET", "/etc/ssl/certs/ours.pem"},
	{"a private key by any name", "/etc/ssl/certs/both.pem", "CERT\n-----BEGIN PRIVATE KEY-----\nSECRET",
		"/etc/ssl/certs/cert.pem"},
	{"a link to what is hidden", "/etc/alternatives/tool", "->/root/tool", "/etc/alternatives/ls"},
	{"a link below a masked folder", "/etc/alternatives/rc", "->/usr/local/etc/rc", "/etc/alternatives/cat"},
	{"passwords", "/etc/shadow", "", "/etc/shells"},
	{"passwords of groups", "/etc/gshadow", "", "/etc/protocols"},
	{"who may become root", "/etc/sudoers.d/alice", "", "/etc/ca-certificates/a"},
	{"keys of the host", "/etc/ssh/ssh_host_ed25519_key", "", "/etc/services"},
	{"configuration with tokens", "/etc/npmrc", "", "/etc/inputrc"},
	{"exported tokens", "/etc/profile.d/token.sh", "", "/etc/profile"},
	{"the environment", "/etc/environment", "", "/etc/timezone"},
	{"what changes every program", "/etc/ld.so.preload", "", "/etc/ld.so.conf"},
	{"names on the host's network", "/etc/hosts.allow", "", "/etc/networks"},
	{"file systems with credentials", "/etc/fstab", "", "/etc/rpc"},
	{"Kubernetes", "/etc/kubernetes/admin.conf", "", "/etc/host.conf"},
	{"container engines", "/etc/containers/auth.json", "", "/etc/gai.conf"},
	{"wireless networks", "/etc/NetworkManager/system-connections/home", "", "/etc/netconfig"},
	{"homes", "/home/alice/.ssh/id_ed25519", "", "/etc/login.defs"},
	{"root's home", "/root/.aws/credentials", "", "/etc/mime.types"},
	{"sockets and run-time state", "/run/docker.sock", "", "/etc/magic"},
	{"data of services", "/var/lib/postgresql/base", "", "/var/lib/ca-certificates/a.pem"},
	{"mail, logs, queues", "/var/log/auth.log", "", "/etc/os-release"},
	{"what may be anything", "/opt/tool/token", "", "/etc/debian_version"},
	{"data that is served", "/srv/www/conf", "", "/etc/lsb-release"},
	{"mounted disks", "/mnt/backup/dump", "", "/etc/localtime"},
	{"other people's temporary files", "/tmp/session", "", "/etc/locale.conf"},
	{"files in the root folder", "/token", "", "/etc/ssl/openssl.cnf"},
}

// TestHostHides: each line of what the image hides, with a twin that it shows.
func TestHostHides(t *testing.T) {
	testenv.Axes(t, testenv.User)
	for _, line := range slices.Concat(host.NeverCopied, host.MaskedFolders) {
		if line.Why == "" {
			t.Errorf("%s has no reason", line.What)
		}
		if _, err := filepath.Match(line.What, "x"); err != nil {
			t.Errorf("%q: %v", line.What, err)
		}
		if !ruleTested(line.What) {
			t.Errorf("%s has no test", line.What)
		}
	}
	for _, p := range host.EtcAllowed {
		if _, err := filepath.Match(p, "x"); err != nil {
			t.Errorf("%q: %v", p, err)
		}
	}
	for _, h := range hides {
		t.Run(h.rule, func(t *testing.T) {
			content := h.is
			if content == "" {
				content = "SECRET"
			}
			s := openStore(t, Options{})
			img, err := s.Host(HostOptions{Root: fakeHost(t,
				map[string]string{"usr/bin/sh": "elf", "usr/local/etc/": "", h.hidden: content, h.twin: "public"})})
			must(t, err)
			if shownInside(t, s, img, h.hidden) {
				t.Errorf("%s is shown", h.hidden)
			}
			if !shownInside(t, s, img, h.twin) {
				t.Errorf("%s is not shown: that its neighbour is not proves nothing", h.twin)
			}
		})
	}
}

// shownInside reports whether a sandbox sees p: in the skeleton, or by a bind that does not
// hide it.
func shownInside(t *testing.T, s *Store, img *HostImage, p string) bool {
	t.Helper()
	for _, b := range img.Rootfs.Binds {
		if host.Within(p, b.Target) {
			return !slices.ContainsFunc(b.Hide, func(h string) bool { return host.Within(p, h) })
		}
	}
	_, err := os.Lstat(filepath.Join(s.path(img.Rootfs.Lower[0]), p))
	return err == nil
}

// TestHostNotices: what of the host changes the image, in a process that already has it.
func TestHostNotices(t *testing.T) {
	write := func(p, content string) func(*testing.T, string) {
		return func(t *testing.T, root string) {
			full := filepath.Join(root, p)
			must(t, os.MkdirAll(filepath.Dir(full), 0o755))
			must(t, os.WriteFile(full, []byte(content), 0o644))
		}
	}
	for _, tt := range []struct {
		name   string
		change func(t *testing.T, root string)
		want   bool
	}{
		{"a file in a folder that is copied", write("etc/ssl/certs/new.crt", "NEW"), true},
		{"a file beside one that is copied", write("etc/ssl/cert.pem", "NEW"), true},
		{"a folder that was not there", write("var/lib/ca-certificates/a.pem", "NEW"), true},
		{"content", write("etc/ld.so.cache", "CACHE 2"), true},
		{"accounts", write("etc/passwd", "root:x:0:0::/root:/bin/sh\n"), true},
		{"a file turned private",
			func(t *testing.T, root string) { must(t, os.Chmod(filepath.Join(root, "etc/ld.so.cache"), 0o600)) }, true},
		{"a file that is gone",
			func(t *testing.T, root string) { must(t, os.Remove(filepath.Join(root, "etc/ssl/certs/ca.crt"))) }, true},
		{"a folder to mask",
			func(t *testing.T, root string) { must(t, os.RemoveAll(filepath.Join(root, "usr/local/etc"))) }, true},
		{"a folder of programs",
			func(t *testing.T, root string) { must(t, os.Mkdir(filepath.Join(root, "lib64"), 0o755)) }, true},
		{"a store of Nix", write("nix/store/a/bin/a", "elf"), true},
		{"a store of Guix", write("gnu/store/a/bin/a", "elf"), true},
		{"/opt", write("opt2", "x"), true},
		{"what is hidden", write("home/alice/new", "x"), false},
		{"a program", write("usr/bin/new", "elf"), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := openStore(t, Options{})
			h := HostOptions{Root: fakeHost(t, debianLike), Opt: tt.name == "/opt"}
			first, err := s.Host(h)
			must(t, err)
			tt.change(t, h.Root)
			s.host.checked = time.Time{}
			second, err := s.Host(h)
			must(t, err)
			if got := second.ID != first.ID; got != tt.want {
				t.Errorf("noticed: %v, want %v", got, tt.want)
			}
		})
	}
}

func ruleTested(rule string) bool {
	for _, h := range hides {
		if h.rule == rule {
			return true
		}
	}
	return false
}
