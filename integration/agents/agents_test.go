package agents_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/agents"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// job is what an agent is made to do by a scripted model, in the words of its own tools.
type job struct {
	template string
	needs    string // a program of the host's that the steps take, with the image "host"
	script   []turn
}

const (
	task    = "Say where you are, and mend notes.txt."
	shows   = "uname -n; id -u"
	before  = "first line\nsecnd line\n"
	after   = "first line\nsecond line\n"
	correct = "perl -pi -e 's/secnd/second/' notes.txt"
)

// jobs are those of the templates that are built of Node's and Python's packages.
var jobs = []job{
	{template: "claude", needs: "npm", script: []turn{
		{tool: "Bash", args: object{"command": shows, "description": "Show"}},
		{tool: "Read", args: object{"file_path": "/workspace/notes.txt"}},
		{tool: "Edit", args: object{"file_path": "/workspace/notes.txt", "old_string": "secnd",
			"new_string": "second"}},
		{text: "It is mended."},
	}},
	{template: "codex", needs: "npm", script: []turn{
		{tool: "functions/exec", text: "text(await tools.exec_command({cmd: '" + shows + "'}))"},
		{tool: "functions/exec", text: "text(await tools.apply_patch(`*** Begin Patch\n*** Update File: notes.txt\n@@\n first line\n-secnd line\n+second line\n*** End Patch\n`))"},
		{text: "It is mended."},
	}},
}

// do builds the template of a job over the host's own programs, of packages that a registry on the loopback has. Then
// the agent works: it runs a command, edits a file of the workspace and ends. It reaches nothing but the model.
func (j *job) do(t *testing.T) {
	world.NeedsInside(t, "/usr/bin/"+j.needs)
	registry := serveRegistry(t, j.template)
	m := serveModel(t, j.script...)
	w := world.New(t)
	w.LogOnFailure(t)
	digest := j.digest(t)
	served := strings.TrimPrefix(registry.URL, "http://127.0.0.1")
	asked := strings.TrimPrefix(m.URL, "http://127.0.0.1")
	w.Configure(t, world.NoneAhead+"runtimes: {node: host, python: host}\ntemplates:\n  "+j.template+
		":\n    env: {npm_config_registry: \"http://host"+served+"/\", PIP_INDEX_URL: \"http://host"+served+
		"/simple\", PIP_TRUSTED_HOST: host}\n    build: {network: {mode: allow, allow: [\"host"+served+"\"]}}\n")
	built := w.FinishBusy(t, "template", "build", j.template)
	built.Want(t, 0)
	dir := w.Sub(t, "project")
	file := world.Write(t, filepath.Join(dir, "notes.txt"), before)
	agent := agents.Find(j.template)
	argv, env := agent.Command(task, "http://host"+asked)
	args := []string{"run", "--template", j.template, "--workspace", dir + ":rw", "--allow", "host" + asked,
		"-e", agent.Key + "=none"}
	for _, v := range env {
		args = append(args, "-e", v)
	}
	// It says nothing until it ends.
	ctx, cancel := context.WithTimeout(t.Context(), 5*world.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(w.Bin, "hutch"), append(append(args, "--"), argv...)...)
	cmd.Env = w.Vars
	out, err := cmd.CombinedOutput()
	t.Logf("%s", world.Abridged(string(out)))
	if ctx.Err() != nil {
		testenv.Late(t, "%s does not end; %v", j.template, m)
	}
	if err != nil {
		t.Errorf("%v; %v", err, m)
	}
	if got := world.Read(t, file); got != after {
		t.Errorf("notes.txt is %q; %v", got, m)
	}
	if heard := m.heard(); !strings.Contains(heard, "hutch-") {
		t.Errorf("no tool has answered from within a sandbox; %v", m)
	}
	if !t.Failed() {
		j.prove(t, digest)
	}
}

// digest is that of the template as it is shipped.
func (j *job) digest(t *testing.T) string {
	t.Helper()
	w := world.New(t)
	spec, err := w.Connect(t).Template(t.Context(), j.template)
	if err != nil {
		t.Fatal(err)
	}
	digest, err := agents.Digest(spec.TemplateSpec)
	if err != nil {
		t.Fatal(err)
	}
	return digest
}

// prove writes what docs/agents/README.md and hutch agents say of the template: make prove-agents.
func (j *job) prove(t *testing.T, digest string) {
	t.Helper()
	dir := os.Getenv("HUTCH_PROVE_AGENTS")
	if dir == "" {
		return
	}
	data, err := json.MarshalIndent(agents.Proof{Template: j.template, Digest: digest, Over: []string{"host"},
		Date: time.Now().UTC().Format(time.DateOnly), Did: []string{"command", "edit", "end"}}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	world.Write(t, filepath.Join(dir, j.template+".json"), string(data)+"\n")
}

// TestAgents: each agent that a template is shipped for is installed by it, and works, told by a scripted model.
func TestAgents(t *testing.T) {
	testenv.Axes(t)
	testenv.Suite(t, "agents")
	for _, j := range jobs {
		t.Run(j.template, j.do)
	}
}
