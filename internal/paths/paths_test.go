package paths

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
)

func TestResolve(t *testing.T) {
	me := os.Getuid()
	own := t.TempDir() // stands for /run/user; holds the folder of uid me only
	if err := os.Mkdir(filepath.Join(own, strconv.Itoa(me)), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(own, "4242"), 0o700); err != nil {
		t.Fatal(err)
	}
	type env map[string]string
	tests := []struct {
		name    string
		uid     int
		env     env
		want    Paths
		wantErr string
	}{
		{"root ignores XDG", 0, env{"HOME": "/root", "XDG_RUNTIME_DIR": "/run/user/0", "XDG_DATA_HOME": "/d"},
			Paths{Socket: "/run/hutch/hutchd.sock", Runtime: "/run/hutch", State: "/var/lib/hutch",
				Config: "/etc/hutch/config.yaml", Log: "/var/lib/hutch/hutchd.log"}, ""},
		{"root with overrides", 0, env{"HUTCH_SOCKET": "/a/s", "HUTCH_ROOT": "/b/", "HUTCH_CONFIG": "/c/x.yaml"},
			Paths{Socket: "/a/s", Runtime: "/run/hutch", State: "/b", Config: "/c/x.yaml", Log: "/b/hutchd.log"}, ""},
		{"user with XDG", 1000, env{"HOME": "/home/u", "XDG_RUNTIME_DIR": "/run/user/1000", "XDG_DATA_HOME": "/d",
			"XDG_CONFIG_HOME": "/c"},
			Paths{Socket: "/run/user/1000/hutch/hutchd.sock", Runtime: "/run/user/1000/hutch", State: "/d/hutch",
				Config: "/c/hutch/config.yaml", Log: "/d/hutch/hutchd.log"}, ""},
		{"user with HOME only", 4711, env{"HOME": "/home/u"},
			Paths{Socket: "/tmp/hutch-4711/hutchd.sock", Runtime: "/tmp/hutch-4711",
				State: "/home/u/.local/share/hutch", Config: "/home/u/.config/hutch/config.yaml",
				Log: "/home/u/.local/share/hutch/hutchd.log"}, ""},
		{"foreign /run/user folder", 4242, env{"HOME": "/home/u"},
			Paths{Socket: "/tmp/hutch-4242/hutchd.sock", Runtime: "/tmp/hutch-4242",
				State: "/home/u/.local/share/hutch", Config: "/home/u/.config/hutch/config.yaml",
				Log: "/home/u/.local/share/hutch/hutchd.log"}, ""},
		{"relative XDG is ignored", 4711, env{"HOME": "/home/u", "XDG_RUNTIME_DIR": "run", "XDG_DATA_HOME": "d"},
			Paths{Socket: "/tmp/hutch-4711/hutchd.sock", Runtime: "/tmp/hutch-4711",
				State: "/home/u/.local/share/hutch", Config: "/home/u/.config/hutch/config.yaml",
				Log: "/home/u/.local/share/hutch/hutchd.log"}, ""},
		{"no HOME", 4711, env{}, Paths{}, "HOME"},
		{"no HOME needed", 4711, env{"HUTCH_ROOT": "/b", "HUTCH_CONFIG": "/c.yaml"},
			Paths{Socket: "/tmp/hutch-4711/hutchd.sock", Runtime: "/tmp/hutch-4711", State: "/b", Config: "/c.yaml",
				Log: "/b/hutchd.log"}, ""},
		{"relative override", 0, env{"HUTCH_ROOT": "state"}, Paths{}, "HUTCH_ROOT"},
		{"socket of 107 bytes", 0, env{"HUTCH_SOCKET": "/" + strings.Repeat("s", 106)},
			Paths{Socket: "/" + strings.Repeat("s", 106), Runtime: "/run/hutch", State: "/var/lib/hutch",
				Config: "/etc/hutch/config.yaml", Log: "/var/lib/hutch/hutchd.log"}, ""},
		{"socket of 108 bytes", 0, env{"HUTCH_SOCKET": "/" + strings.Repeat("s", 107)}, Paths{}, "108 bytes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := resolver{env: func(k string) string { return tt.env[k] }, uid: tt.uid, runUser: own, tmp: "/tmp"}
			got, err := r.resolve()
			if tt.wantErr != "" {
				var e *api.Error
				if !errors.As(err, &e) || !strings.Contains(err.Error(), tt.wantErr) || e.Hint == "" {
					t.Fatalf("error %v, want an api error with a hint about %q", err, tt.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got.uid, got.ownConfig = 0, false
			if got != tt.want {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
		})
	}
	if me != 0 {
		r := resolver{env: func(k string) string { return env{"HOME": "/h"}[k] }, uid: me, runUser: own, tmp: "/tmp"}
		if p, err := r.resolve(); err != nil || p.Runtime != filepath.Join(own, strconv.Itoa(me), "hutch") {
			t.Errorf("own /run/user folder: %v, %v", p.Runtime, err)
		}
	}
}

// placesIn are places below a fresh folder, for the test's own uid.
func placesIn(t *testing.T) Paths {
	t.Helper()
	d := t.TempDir()
	return Paths{
		Socket: filepath.Join(d, "run", "hutchd.sock"), Runtime: filepath.Join(d, "run"),
		State: filepath.Join(d, "share", "hutch"), Config: filepath.Join(d, "cfg", "config.yaml"),
		uid: os.Getuid(), ownConfig: true,
	}
}

func modeOf(t *testing.T, path string) os.FileMode {
	t.Helper()
	st, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return st.Mode().Perm()
}

func TestMakeDirs(t *testing.T) {
	p := placesIn(t)
	want := os.FileMode(0o700)
	if p.uid == 0 {
		want = 0o711
	}
	for range 2 { // the second time they exist
		if err := p.MakeDirs(); err != nil {
			t.Fatal(err)
		}
		if m := modeOf(t, p.Runtime); m != want {
			t.Errorf("runtime folder has mode %o, want %o", m, want)
		}
		for _, d := range []string{p.State, filepath.Dir(p.State), filepath.Dir(p.Config)} {
			if m := modeOf(t, d); m != 0o700 {
				t.Errorf("%s has mode %o, want 700", d, m)
			}
		}
	}
}

func TestMakeDirsTightens(t *testing.T) {
	p := placesIn(t)
	if err := os.MkdirAll(p.State, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := p.MakeDirs(); err != nil {
		t.Fatal(err)
	}
	if m := modeOf(t, p.State); m != 0o700 {
		t.Errorf("state folder has mode %o, want 700", m)
	}
}

func TestMakeDirsRefuses(t *testing.T) {
	tests := []struct {
		name  string
		spoil func(t *testing.T, p *Paths)
		want  string
	}{
		{"symlink", func(t *testing.T, p *Paths) {
			must(t, os.Symlink(t.TempDir(), p.Runtime))
		}, "symlink"},
		{"dangling symlink", func(t *testing.T, p *Paths) {
			must(t, os.Symlink("/nonexistent", p.Runtime))
		}, "symlink"},
		{"file", func(t *testing.T, p *Paths) {
			must(t, os.WriteFile(p.Runtime, nil, 0o600))
		}, "not a folder"},
		{"writable by others", func(t *testing.T, p *Paths) {
			must(t, os.Mkdir(p.Runtime, 0o700))
			must(t, os.Chmod(p.Runtime, 0o777))
		}, "others may write"},
		{"somebody else's", func(t *testing.T, p *Paths) {
			must(t, os.Mkdir(p.Runtime, 0o700))
			p.uid = os.Getuid() + 1 // as good as a folder of another uid
		}, "belongs to uid"},
		{"socket in an open folder", func(t *testing.T, p *Paths) {
			d := t.TempDir()
			must(t, os.Chmod(d, 0o777))
			p.Socket = filepath.Join(d, "s")
		}, "replace a socket"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := placesIn(t)
			tt.spoil(t, &p)
			err := p.MakeDirs()
			var e *api.Error
			if !errors.As(err, &e) || e.Code != api.PermissionDenied || e.Hint == "" ||
				!strings.Contains(err.Error(), tt.want) {
				t.Fatalf("got %v, want permission_denied about %q", err, tt.want)
			}
		})
	}
}

func TestSocketInStickyFolder(t *testing.T) {
	p := placesIn(t)
	d := t.TempDir()
	must(t, unix.Chmod(d, 0o1777))
	p.Socket = filepath.Join(d, "s")
	if err := p.MakeDirs(); err != nil {
		t.Error(err)
	}
}

func TestConfigOfTheUserIsLeftAlone(t *testing.T) {
	p := placesIn(t)
	p.ownConfig = false
	if err := p.MakeDirs(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Dir(p.Config)); !os.IsNotExist(err) {
		t.Errorf("folder of $HUTCH_CONFIG was made: %v", err)
	}
}

func TestSibling(t *testing.T) {
	d := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(d, "bin"), 0o755))
	must(t, os.MkdirAll(filepath.Join(d, "libexec/hutch"), 0o755))
	exe := filepath.Join(d, "bin/hutch")
	beside, libexec := filepath.Join(d, "bin/hutchd"), filepath.Join(d, "libexec/hutch/hutchd")

	_, err := siblingOf(exe, "hutchd")
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.NotFound || !strings.Contains(err.Error(), beside) ||
		!strings.Contains(err.Error(), libexec) {
		t.Errorf("none there: %v, want not_found naming both places", err)
	}
	must(t, os.WriteFile(libexec, nil, 0o755))
	if got, err := siblingOf(exe, "hutchd"); got != libexec || err != nil {
		t.Errorf("libexec: %q, %v", got, err)
	}
	must(t, os.WriteFile(beside, nil, 0o644))
	if got, _ := siblingOf(exe, "hutchd"); got != libexec {
		t.Errorf("took %q, which is not executable", got)
	}
	must(t, os.Chmod(beside, 0o755))
	if got, _ := siblingOf(exe, "hutchd"); got != beside {
		t.Errorf("took %q, want the one beside", got)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
