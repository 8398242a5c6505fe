package template

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/internal/agents"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

var update = flag.Bool("update", false, "renew docs/agents/README.md")

//go:generate go test -run ^TestDocument$ . -update

// TestDocument: docs/agents/README.md has what is shipped, and says what is proven of it.
func TestDocument(t *testing.T) {
	testenv.Generated(t, "../../docs/agents/README.md", document(t), *update)
}

// TestProven: each proof is of a template as it is shipped now, and no agent has none.
func TestProven(t *testing.T) {
	proofs, err := agents.Proofs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range agents.All {
		locked, _ := files.ReadFile("shipped/" + a.Template + "/package.json")
		in, _ := files.ReadFile("shipped/" + a.Template + "/requirements.in")
		if !strings.Contains(string(locked)+string(in), a.Version) {
			t.Errorf("agent %s: version %s is not what the template installs", a.Template, a.Version)
		}
		if _, ok := proofs[a.Template]; !ok {
			t.Errorf("agent %s is not proven: make prove-agents RUN=TestAgents/%s", a.Template, a.Template)
		}
	}
	list := Shipped(nil)
	for name, p := range proofs {
		i := slices.IndexFunc(list, func(s api.TemplateSpec) bool { return s.Name == name })
		if i < 0 {
			t.Errorf("there is a proof of %s, and no such template is shipped", name)
			continue
		}
		if digest, err := agents.Digest(list[i]); err != nil || digest != p.Digest {
			t.Errorf("template %s has changed since it was proven (%v): make prove-agents RUN=TestAgents/%s", name, err, name)
		}
	}
}

// TestShippedLocked: steps of shipped templates install only what a lock file names by its hash, and sandboxes of an
// agent reach only the hosts of its model.
func TestShippedLocked(t *testing.T) {
	for _, s := range Shipped(nil) {
		for i := range s.Steps {
			if c := s.Steps[i].Copy; c != nil && (c.Digest == "" || i != 0) {
				t.Errorf("%s: step %d copies what nobody knows: %+v", s.Name, i+1, c)
			}
			for _, word := range []string{"npm install", "npm i ", "npx ", "curl", "wget"} {
				if strings.Contains(s.Steps[i].Run, word) {
					t.Errorf("%s: step %d installs what is not locked: %s", s.Name, i+1, s.Steps[i].Run)
				}
			}
			if run := s.Steps[i].Run; strings.Contains(run, "pip ") && !strings.Contains(run, "--require-hashes") {
				t.Errorf("%s: step %d asks for no hashes: %s", s.Name, i+1, run)
			}
		}
		if agents.Find(s.Name) != nil && (s.Network.Mode != api.NetAllow || len(s.Network.Allow) == 0) {
			t.Errorf("%s: network policy %+v", s.Name, s.Network)
		}
	}
}

// document is the generated part of docs/agents/README.md.
func document(t *testing.T) string {
	t.Helper()
	proofs, err := agents.Proofs()
	if err != nil {
		t.Fatal(err)
	}
	proven := func(name string) string {
		p, ok := proofs[name]
		if !ok {
			return "not by these tests"
		}
		return fmt.Sprintf("%s, over %s, %s", strings.Join(p.Did, ", "), strings.Join(p.Over, " and "), p.Date)
	}
	var b strings.Builder
	fmt.Fprint(&b, "| template | agent | its work without a question | key | another address of the model | may reach | proven |\n"+
		"|---|---|---|---|---|---|---|\n")
	list := Shipped(nil)
	for i := range agents.All {
		a := &agents.All[i]
		s := list[slices.IndexFunc(list, func(s api.TemplateSpec) bool { return s.Name == a.Template })]
		fmt.Fprintf(&b, "| `%s` | %s %s | `%s` | `%s` | `%s` | %s | %s |\n", a.Template, a.Title, a.Version,
			a.Line(), a.Key, a.Address, strings.Join(s.Network.Allow, ", "), proven(a.Template))
	}
	fmt.Fprint(&b, "\n| other template | is | image | proven |\n|---|---|---|---|\n")
	for _, s := range list {
		if agents.Find(s.Name) == nil {
			fmt.Fprintf(&b, "| `%s` | %s | `%s` | %s |\n", s.Name, s.Description, s.Image, proven(s.Name))
		}
	}
	return b.String()
}
