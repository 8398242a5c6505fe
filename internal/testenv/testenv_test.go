package testenv

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/internal/probe"
)

// recorder is a test that notes how it would have ended.
type recorder struct {
	testing.TB
	name, said, ended string
	attrs             []string
}

func (r *recorder) Helper()           {}
func (r *recorder) Name() string      { return r.name }
func (r *recorder) Skip(args ...any)  { r.ended = "skip: " + fmt.Sprint(args...) }
func (r *recorder) Fatal(args ...any) { r.ended = "fatal: " + fmt.Sprint(args...) }

func (r *recorder) Fatalf(format string, args ...any) { r.Fatal(fmt.Sprintf(format, args...)) }
func (r *recorder) Errorf(format string, args ...any) { r.said = fmt.Sprintf(format, args...) }
func (r *recorder) FailNow()                          { r.Fatal(r.said) }
func (r *recorder) Failed() bool                      { return r.said != "" }
func (r *recorder) Attr(key, value string)            { r.attrs = append(r.attrs, key+"="+value) }

func TestRequire(t *testing.T) {
	root := t.TempDir()
	pkg := filepath.Join(root, "images")
	write(t, filepath.Join(root, "go.mod"), "module m\n")
	write(t, filepath.Join(root, ".ci", "must-run"), "^images\\.TestNamed$\n")
	if err := os.Mkdir(pkg, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Chdir(pkg)
	missing := probe.Check{Name: "overlay", Status: probe.No, Detail: "EPERM", Remedy: "sudo\nfix it"}
	for _, tt := range []struct {
		name, test, require string
		checks              []probe.Check
		want                string
	}{
		{"nothing asked", "TestNamed", RequireAll, nil, ""},
		{"all there", "TestNamed", RequireAll, []probe.Check{{Status: probe.Yes}}, ""},
		{"missing", "TestNamed", "", []probe.Check{missing}, "skip: overlay: no (EPERM); remedy: sudo fix it"},
		{"missing, must run", "TestNamed", RequireAll, []probe.Check{missing},
			"fatal: this test must run here, but overlay: no (EPERM)"},
		{"missing, need not run", "TestOther", RequireAll, []probe.Check{missing}, "skip: overlay: no"},
		{"inconclusive", "TestOther", "", []probe.Check{{Status: probe.Yes}, {Name: "x", Status: probe.Inconclusive}},
			"skip: x: inconclusive"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv(RequireVar, tt.require)
			r := &recorder{TB: t, name: tt.test}
			Require(r, tt.checks...)
			if (r.ended == "") != (tt.want == "") || !strings.HasPrefix(r.ended, tt.want) {
				t.Errorf("ended by %q, want %q", r.ended, tt.want)
			}
		})
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
