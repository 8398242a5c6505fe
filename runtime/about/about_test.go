package about

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/spec"
)

// kernel mounts nothing, at a folder that it makes.
type kernel struct{ fails error }

func (k kernel) Tmpfs([]sys.FSOption, int) (*os.File, error) {
	if k.fails != nil {
		return nil, k.fails
	}
	return os.Open(os.DevNull)
}

func (k kernel) Attach(_ *os.File, at string) error { return os.Mkdir(at, 0o755) }

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestWrite: a sandbox is told what it may do, and again when that changes; of a build that had it in one folder only
// the policy is written, and of one that told nothing nothing is.
func TestWrite(t *testing.T) {
	dir := t.TempDir()
	if err := Mount(kernel{fs.ErrInvalid}, dir); err == nil {
		t.Error("no error")
	}
	if err := errors.Join(Mount(kernel{}, dir), Furnish(dir)); err != nil {
		t.Fatal(err)
	}
	a := api.About{Version: 1, Sandbox: "sb_1", Text: "You may."}
	files := map[string]string{"cpus": "0-3"}
	if err := Write(dir, a, files); err != nil {
		t.Fatal(err)
	}
	a.Text, files["cpus"] = "You may not.", "0"
	if err := Replace(dir, a, files); err != nil {
		t.Fatal(err)
	}
	var got api.About
	err := json.Unmarshal([]byte(read(t, filepath.Join(Told(dir), "policy.json"))), &got)
	if err != nil || got.Text != a.Text || read(t, filepath.Join(Sys(dir), "cpus")) != "0\n" ||
		read(t, filepath.Join(Told(dir), "policy.txt")) != "You may not.\n" {
		t.Errorf("%+v, %v", got, err)
	}
	old := t.TempDir()
	if err := Replace(old, a, files); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of one that was told nothing: %v", err)
	}
	if err := os.Mkdir(filepath.Join(old, Folder), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Replace(old, a, files); err != nil || read(t, filepath.Join(old, Folder, "policy.txt")) != "You may not.\n" {
		t.Error(err)
	}
}

// TestParagraph: a model is told what its policy says about what is refused again and again, bounded.
func TestParagraph(t *testing.T) {
	r := api.Sandbox{Image: spec.HostImage}
	for kind, want := range map[string]string{
		api.KindNet: "There is no network", api.KindFile: "All files are", api.KindSyscall: "System calls that",
		"limit": "",
	} {
		got := Paragraph(r, &api.Spec{}, kind)
		if !strings.HasPrefix(got, want) || want == "" && got != "" || strings.Contains(got, "\n") {
			t.Errorf("%s: %q", kind, got)
		}
	}
	r.Network.NetPolicy = api.NetPolicy{Mode: api.NetAllow, Allow: []string{strings.Repeat("é", 5000)}}
	if got := Paragraph(r, &api.Spec{}, api.KindNet); len(got) > maxParagraph+100 || !utf8.ValidString(got) {
		t.Errorf("%d bytes", len(got))
	}
}

// TestText: a model is told what it may do, in words.
func TestText(t *testing.T) {
	many := strings.Split(strings.Repeat("a.test,", maxNames)+"b.test", ",")
	for want, change := range map[string]func(r *api.Sandbox, sp *api.Spec){
		"There is no network": func(*api.Sandbox, *api.Spec) {},
		"reaches nothing yet": func(r *api.Sandbox, _ *api.Spec) { r.Network.Mode = api.NetAllow },
		"Allowed: a.test. Of that not: b.test.": func(r *api.Sandbox, _ *api.Spec) {
			r.Network.NetPolicy = api.NetPolicy{Mode: api.NetAllow, Allow: []string{"a.test"}, Block: []string{"b.test"}}
		},
		"21 entries": func(r *api.Sandbox, _ *api.Spec) {
			r.Network.NetPolicy = api.NetPolicy{Mode: api.NetAllow, Allow: many}
		},
		"your user is asked": func(r *api.Sandbox, _ *api.Spec) {
			r.Network.NetPolicy = api.NetPolicy{Mode: api.NetAllow, Ask: true}
		},
		"public internet":         func(r *api.Sandbox, _ *api.Spec) { r.Network.Mode = api.NetOpen },
		"is being learned":        func(r *api.Sandbox, _ *api.Spec) { r.Network.Mode = api.NetLearn },
		"programs (/usr) can onl": func(r *api.Sandbox, _ *api.Spec) { r.Image = spec.HostImage },
		"can be added and replac": func(r *api.Sandbox, sp *api.Spec) { r.Image, sp.WritableUsr = spec.HostImage, true },
		"3 processes":             func(r *api.Sandbox, _ *api.Spec) { r.Limits.PIDs = 3 },
		"2 CPUs":                  func(r *api.Sandbox, _ *api.Spec) { r.Limits.CPUs = 2 },
		"of memory, ": func(r *api.Sandbox, _ *api.Spec) {
			r.Limits = api.Limits{MemoryBytes: 1 << 30, DiskBytes: 1 << 30}
		},
		"no sockets but local":  func(r *api.Sandbox, _ *api.Spec) { r.Seccomp = api.SeccompStrict },
		"Debuggers do not work": func(r *api.Sandbox, _ *api.Spec) { r.Seccomp = api.SeccompBuild },
		"Some system calls":     func(r *api.Sandbox, _ *api.Spec) { r.Seccomp = api.SeccompCustom },
		"is changed for real": func(_ *api.Sandbox, sp *api.Spec) {
			sp.Workspace = &api.Workspace{Path: "/secret/w", Mode: api.ModeRW}
		},
		"outlives this sandbox": func(_ *api.Sandbox, sp *api.Spec) {
			sp.Mounts = []api.Mount{{Volume: "v", Target: "/v", Mode: api.ModeRW}}
		},
		"/o shows a folder of the user's": func(_ *api.Sandbox, sp *api.Spec) {
			sp.Mounts = []api.Mount{{Source: "/secret/o", Target: "/o/", Mode: api.ModeOverlay}}
		},
		"which you can only read": func(_ *api.Sandbox, sp *api.Spec) {
			sp.Mounts = []api.Mount{{Source: "/secret/r", Target: "/r", Mode: api.ModeRO}}
		},
	} {
		var r api.Sandbox
		var sp api.Spec
		change(&r, &sp)
		if a := Of(r, &sp); !strings.Contains(a.Text, want) || strings.Contains(a.Text, "/secret") {
			t.Errorf("%q is not in %q", want, a.Text)
		}
	}
}
