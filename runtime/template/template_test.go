package template

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/internal/testenv/cost"
	"github.com/hutch-sh/hutch/runtime/api"
)

type entry struct {
	name, link, text string
	kind             byte
}

func archive(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		if e.kind == 0 {
			e.kind = tar.TypeReg
		}
		h := &tar.Header{Name: e.name, Linkname: e.link, Typeflag: e.kind, Mode: 0o644, Uid: 7,
			Size: int64(len(e.text))}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestContext: what is kept of an archive has nothing in it that a step cannot copy, and each step gets its own part.
func TestContext(t *testing.T) {
	good := archive(t, entry{name: "0/", kind: tar.TypeDir}, entry{name: "0/a/b", text: "x"},
		entry{name: "2/l", link: "../../etc", kind: tar.TypeSymlink})
	var kept bytes.Buffer
	digests, err := copyContext(&kept, bytes.NewReader(good), 3)
	if err != nil || digests[0] == "" || digests[1] != "" || digests[2] == "" {
		t.Fatalf("%q, %v", digests, err)
	}
	var sent bytes.Buffer
	if err := sendContext(&sent, bytes.NewReader(kept.Bytes()), 0); err != nil {
		t.Fatal(err)
	}
	r := tar.NewReader(&sent)
	h, err := r.Next()
	if err != nil || h.Name != "a/b" || h.Uid != 0 {
		t.Errorf("%+v, %v", h, err)
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("more than the step's own: %v", err)
	}
	other, err := copyContext(io.Discard,
		bytes.NewReader(archive(t, entry{name: "0/", kind: tar.TypeDir}, entry{name: "0/a/b", text: "y"})), 3)
	if err != nil || other[0] == digests[0] {
		t.Errorf("another content has the digest %q, %v", other[0], err)
	}
	for name, bad := range map[string][]byte{
		"no number":    archive(t, entry{name: "a/b"}),
		"a large one":  archive(t, entry{name: "3/b"}),
		"a sign":       archive(t, entry{name: "+1/b"}),
		"zeros":        archive(t, entry{name: "00/b"}),
		"up":           archive(t, entry{name: "0/../b"}),
		"up at last":   archive(t, entry{name: "0/a/.."}),
		"absolute":     archive(t, entry{name: "0//b"}),
		"a device":     archive(t, entry{name: "0/b", kind: tar.TypeChar}),
		"a hard link":  archive(t, entry{name: "0/b", kind: tar.TypeLink, link: "0/c"}),
		"a file alone": archive(t, entry{name: "0"}),
		"no archive":   []byte(strings.Repeat("x", 1024)),
	} {
		if _, err := copyContext(io.Discard, bytes.NewReader(bad), 3); api.ErrorCode(err) != api.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzContext(f *testing.F) {
	f.Add(archive(f, entry{name: "0/a", text: "x"}, entry{name: "1/l", link: "x", kind: tar.TypeSymlink}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		var kept bytes.Buffer
		var digests []string
		var err error
		cost.Of(t, len(data), func() {
			kept.Reset()
			digests, err = copyContext(&kept, bytes.NewReader(data), 2)
		})
		if err != nil {
			return
		}
		for i := range digests {
			if err := sendContext(io.Discard, bytes.NewReader(kept.Bytes()), i); err != nil {
				t.Fatalf("what was kept cannot be read: %v", err)
			}
		}
		again, err := copyContext(io.Discard, bytes.NewReader(kept.Bytes()), 2)
		if err != nil || !reflect.DeepEqual(again, digests) {
			t.Fatalf("kept it has the digests %q, not %q: %v", again, digests, err)
		}
	})
}

// TestUnder: what a sandbox's creator asks for goes before its template, and that before the one that it begins with.
func TestUnder(t *testing.T) {
	base := api.TemplateSpec{
		Name: "base", Image: "i", Env: map[string]string{"A": "base", "B": "base", "C": "base"},
		Limits:  api.Limits{PIDs: 1, CPUs: 1, MemoryBytes: 1},
		Network: api.NetPolicy{Mode: api.NetOpen}, User: "base", Start: &api.TemplateStart{Command: "base"},
		Ready: &api.TemplateReady{Port: 1}, Cmd: []string{"base"},
	}
	child := api.TemplateSpec{Name: "child", Template: "base", Env: map[string]string{"A": "child", "B": "child"},
		Limits: api.Limits{PIDs: 2, CPUs: 2}, Start: &api.TemplateStart{Command: "child"}}
	w := whole([]*definition{{kept: kept{Spec: child}}, {kept: kept{Spec: base}}})
	got := w.Under(api.Spec{Template: "child", Env: map[string]string{"A": "mine"}, Limits: api.Limits{PIDs: 3},
		Workdir: "/w"})
	want := api.Spec{
		Image: "i", Env: map[string]string{"A": "mine", "B": "child", "C": "base"},
		Limits:  api.Limits{PIDs: 3, CPUs: 2, MemoryBytes: 1},
		Network: api.NetPolicy{Mode: api.NetOpen}, User: "base", Workdir: "/w",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	if w.Start.Command != "child" || w.Ready != nil || w.Cmd[0] != "base" {
		t.Errorf("%+v", w)
	}
	one, two := keyOf(&ground{digest: "a"}, &w, []api.TemplateStep{{Run: "x", Line: 1}}),
		keyOf(&ground{digest: "a"}, &w, []api.TemplateStep{{Run: "x", Line: 2, TimeoutS: 3}})
	if one != two || one == keyOf(&ground{digest: "b"}, &w, []api.TemplateStep{{Run: "x"}}) ||
		one == keyOf(&ground{digest: "a"}, &w, []api.TemplateStep{{Run: "y"}}) {
		t.Error("keys")
	}
}

// TestShipped: the configuration says what is different.
func TestShipped(t *testing.T) {
	find := func(list []api.TemplateSpec, name string) *api.TemplateSpec {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
		return nil
	}
	for _, s := range shipped() {
		if err := s.Validate(); err != nil {
			t.Errorf("%s: %v", s.Name, err)
		}
	}
	list := Shipped([]api.TemplateSpec{{Name: "claude", Image: "own"}, {Name: "codex", PoolSize: 1}, {Name: "none"},
		{Name: "more", Image: "x"}})
	claude, codex := find(list, "claude"), find(list, "codex")
	if claude.Image != "own" || len(claude.Steps) != 0 || len(claude.Network.Allow) == 0 || claude.Cmd[0] != "claude" ||
		claude.Env["PATH"] != "" || claude.Env["IS_SANDBOX"] == "" {
		t.Errorf("%+v", claude)
	}
	if codex.Image != "node" || len(codex.Steps) != 2 || codex.PoolSize != 1 || codex.Build.Network.IsZero() {
		t.Errorf("%+v", codex)
	}
	if host := find(Shipped([]api.TemplateSpec{{Name: "claude", Image: "host"}}), "claude"); len(host.Steps) != 2 ||
		host.Image != "host" || host.Env["PATH"] == "" {
		t.Errorf("%+v", host)
	}
	if find(list, "none") != nil || find(list, "more") == nil {
		t.Errorf("%+v", list)
	}
}
