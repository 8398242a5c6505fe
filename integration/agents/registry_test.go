package agents_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// What make deps-agents fetches, each package by the hash that a lock file of a template has.
const (
	npmCache = ".cache/agents/npm/_cacache/content-v2/sha512"
	wheels   = ".cache/agents/wheels"
	locks    = "runtime/template/shipped"
)

// serveRegistry is, on the loopback, npm's registry and the index of Python's packages, of what make deps-agents has
// fetched. The lock files name the public ones, and what is asked of another one has to have their hashes.
func serveRegistry(t testing.TB, template string) *httptest.Server {
	t.Helper()
	root, err := testenv.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	for _, lock := range []string{"package-lock.json", "requirements.txt"} {
		at := filepath.Join(root, locks, template, lock)
		if _, err := os.Stat(at); err != nil {
			continue
		}
		want, _ := os.ReadFile(at)
		if got, err := os.ReadFile(filepath.Join(root, ".cache/agents", template, lock)); string(got) != string(want) {
			testenv.Require(t, probe.Check{Name: "agents", Status: probe.No,
				Detail: fmt.Sprintf("the packages of template %s are not here: %v", template, err),
				Remedy: "make deps-agents"})
		}
	}
	mux := http.NewServeMux()
	tarballs := npmPackages(t, filepath.Join(root, locks, template, "package-lock.json"))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		digest, ok := tarballs[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		http.ServeFile(w, r, filepath.Join(root, npmCache, digest[:2], digest[2:4], digest[4:]))
	})
	mux.HandleFunc("/simple/{name}/{$}", func(w http.ResponseWriter, r *http.Request) {
		found, _ := filepath.Glob(filepath.Join(root, wheels, "*.whl"))
		fmt.Fprint(w, "<!DOCTYPE html><html><body>\n")
		for _, f := range found {
			base := filepath.Base(f)
			project, _, _ := strings.Cut(base, "-")
			if normalized(project) == r.PathValue("name") {
				fmt.Fprintf(w, "<a href=\"/wheels/%s\">%s</a>\n", url.PathEscape(base), base)
			}
		}
		fmt.Fprint(w, "</body></html>\n")
	})
	mux.Handle("/wheels/", http.StripPrefix("/wheels/", http.FileServer(http.Dir(filepath.Join(root, wheels)))))
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

var separators = regexp.MustCompile("[-_.]+")

// normalized is the name of a project as an index has it (PEP 503).
func normalized(name string) string { return strings.ToLower(separators.ReplaceAllString(name, "-")) }

// npmPackages are the paths below a registry's URL of what a lock file names, with their SHA-512 digests.
func npmPackages(t testing.TB, file string) map[string]string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		return nil // of another kind
	}
	var lock struct {
		Packages map[string]struct{ Resolved, Integrity string }
	}
	if err := json.Unmarshal(data, &lock); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for name, p := range lock.Packages {
		if name == "" {
			continue
		}
		at, err := url.Parse(p.Resolved)
		sum, ok := strings.CutPrefix(p.Integrity, "sha512-")
		digest, derr := base64.StdEncoding.DecodeString(sum)
		if err != nil || derr != nil || !ok || at.Host != "registry.npmjs.org" {
			t.Errorf("%s: %s is not locked by its hash at the public registry: %q, %q", file, name, p.Resolved, p.Integrity)
			continue
		}
		all[at.Path] = hex.EncodeToString(digest)
	}
	return all
}
