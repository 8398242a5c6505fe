package agents_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/images/imagetest"
	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/agents"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// job is what an agent is made to do by a scripted model, in the words of its own tools.
type job struct {
	template string
	needs    string // a program of the host's that the steps take, with the image "host"
	script   []turn
}

const (
	task   = "Say where you are, and mend notes.txt."
	shows  = "uname -n; id -u"
	before = "first line\nsecnd line\n"
	after  = "first line\nsecond line\n"
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
	{template: "gemini", needs: "npm", script: []turn{
		{tool: "run_shell_command", args: object{"command": shows, "description": "Show"}},
		{tool: "replace", args: object{"file_path": "/workspace/notes.txt", "old_string": "secnd",
			"new_string": "second", "instruction": "Mend it."}},
		{text: "It is mended."},
	}},
	{template: "opencode", needs: "npm", script: []turn{
		{tool: "bash", args: object{"command": shows, "description": "Show"}},
		{tool: "read", args: object{"filePath": "/workspace/notes.txt"}},
		{tool: "edit", args: object{"filePath": "/workspace/notes.txt", "oldString": "secnd",
			"newString": "second"}},
		{text: "It is mended."},
	}},
	{template: "qwen", needs: "npm", script: []turn{
		{tool: "run_shell_command", args: object{"command": shows, "is_background": false, "description": "Show"}},
		{tool: "read_file", args: object{"file_path": "/workspace/notes.txt"}},
		{tool: "edit", args: object{"file_path": "/workspace/notes.txt", "old_string": "secnd",
			"new_string": "second"}},
		{text: "It is mended."},
	}},
	{template: "copilot", needs: "npm", script: []turn{
		{tool: "bash", args: object{"command": shows, "description": "Show"}},
		{tool: "edit", args: object{"path": "/workspace/notes.txt", "old_str": "secnd", "new_str": "second"}},
		{text: "It is mended."},
	}},
	{template: "aider", needs: "python3", script: []turn{
		{text: "notes.txt\n```\n<<<<<<< SEARCH\nsecnd line\n=======\nsecond line\n>>>>>>> REPLACE\n```\n"},
	}},
	{template: "mini-swe-agent", needs: "python3", script: []turn{
		{tool: "bash", args: object{"command": shows}},
		{tool: "bash", args: object{"command": "sed -i s/secnd/second/ notes.txt"}},
		{tool: "bash", args: object{"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"}},
	}},
}

// build makes a world in which a template is built over an image, of packages that a registry on the loopback has. It
// returns the digest of the template as it is shipped.
func build(t *testing.T, template, needs, image string) (*world.World, string) {
	t.Helper()
	world.NeedsInside(t, "/usr/bin/"+needs)
	registry := serveRegistry(t, template)
	digest := shippedDigest(t, template)
	w := world.New(t)
	w.LogOnFailure(t)
	served := strings.TrimPrefix(registry.URL, "http://127.0.0.1")
	w.Configure(t, world.NoneAhead+"runtimes: {node: \""+image+"\", python: \""+image+"\"}\ntemplates:\n  "+template+
		":\n    env: {npm_config_registry: \"http://host"+served+"/\", PIP_INDEX_URL: \"http://host"+served+
		"/simple\", PIP_TRUSTED_HOST: host}\n    build: {network: {mode: allow, allow: [\"host"+served+"\"]}}\n")
	if out, err := runs(t, w, "template", "build", template); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return w, digest
}

// do has the agent of a template work: it runs a command, edits a file of the workspace and ends. It can reach nothing
// but the model.
func (j *job) do(t *testing.T, over, image string) {
	w, digest := build(t, j.template, j.needs, image)
	m := serveModel(t, j.script...)
	asked := strings.TrimPrefix(m.URL, "http://127.0.0.1")
	dir := w.Sub(t, "project")
	file := world.Write(t, filepath.Join(dir, "notes.txt"), before)
	agent := agents.Find(j.template)
	argv, env := agent.Command(task, "http://host"+asked)
	args := []string{"agent", "--apply", "--workspace", dir, "--allow", "host" + asked, "-e", agent.Key + "=none"}
	for _, v := range env {
		args = append(args, "-e", v)
	}
	out, err := runs(t, w, append(append(args, j.template, "--"), argv[1:]...)...)
	t.Logf("%s", world.Abridged(out))
	if err != nil {
		t.Errorf("%v; %v", err, m)
	}
	if got := world.Read(t, file); got != after {
		t.Errorf("notes.txt is %q; %v", got, m)
	}
	if j.commands() && !strings.Contains(m.heard(), "hutch-") {
		t.Errorf("no tool has answered from within a sandbox; %v", m)
	}
	did := []string{"edit", "end"}
	if j.commands() {
		did = slices.Insert(did, 0, "command")
	}
	prove(t, j.template, digest, over, did...)
}

// runs is a command of hutch's that says nothing for a while, and has others compute for it.
func runs(t *testing.T, w *world.World, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*world.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(w.Bin, "hutch"), args...)
	cmd.Env, cmd.Dir = w.Vars, w.Dir
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		testenv.Late(t, "%s does not end: %s", strings.Join(args, " "), out)
	}
	return string(out), err
}

// commands reports whether the agent has a tool that runs them.
func (j *job) commands() bool { return j.script[0].tool != "" }

// shippedDigest is that of a template as it is shipped.
func shippedDigest(t *testing.T, template string) string {
	t.Helper()
	w := world.New(t)
	spec, err := w.Connect(t).Template(t.Context(), template)
	if err != nil {
		t.Fatal(err)
	}
	digest, err := agents.Digest(spec.TemplateSpec)
	if err != nil {
		t.Fatal(err)
	}
	return digest
}

// prove writes what docs/agents/README.md and hutch agents say of a template, where make prove-agents asks for it.
func prove(t *testing.T, template, digest, over string, did ...string) {
	t.Helper()
	dir := os.Getenv("HUTCH_PROVE_AGENTS")
	if dir == "" || t.Failed() {
		return
	}
	file := filepath.Join(dir, template+".json")
	proof, now := agents.Proof{Template: template, Digest: digest, Over: []string{over}, Did: did,
		Date: time.Now().UTC().Format(time.DateOnly)}, agents.Proof{}
	if old, err := os.ReadFile(file); err == nil && json.Unmarshal(old, &now) == nil && now.Digest == digest {
		proof.Over = append(proof.Over, now.Over...) // of this template, too
		slices.Sort(proof.Over)
		proof.Over = slices.Compact(proof.Over)
	}
	data, err := json.MarshalIndent(proof, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	world.Write(t, file, string(data)+"\n")
}

// TestAgents: each agent that a template is shipped for is installed by it, and works, told by a scripted model.
func TestAgents(t *testing.T) {
	testenv.Axes(t)
	testenv.Suite(t, "agents")
	for _, j := range jobs {
		t.Run(j.template, func(t *testing.T) { j.do(t, "host", "host") })
	}
}

// TestAgentsImage is TestAgents of one over an image, of Debian with Node.js, that a registry has.
func TestAgentsImage(t *testing.T) {
	testenv.Axes(t)
	testenv.Suite(t, "agents")
	ref := world.Push(t, imagetest.StartRegistry(t), "node", imagetest.Image{Layers: []imagetest.Layer{
		world.DebianLayer(t), imagetest.NewLayer(imagetest.Tar(nodeFiles(t)...), imagetest.Zstd)}})
	jobs[claude()].do(t, "an image", ref)
}

// nodeFiles are the host's Node.js and npm.
func nodeFiles(t *testing.T) []imagetest.File {
	t.Helper()
	world.NeedsInside(t, "/usr/bin/node")
	npm, err := filepath.EvalSymlinks("/usr/bin/npm")
	if err != nil {
		world.NeedsInside(t, "/usr/bin/npm")
	}
	all := []imagetest.File{imagetest.Exec("usr/local/bin/node", world.Read(t, "/usr/bin/node")),
		imagetest.Symlink("usr/local/bin/npm", npm)}
	root := filepath.Dir(filepath.Dir(npm))
	err = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		name := strings.TrimPrefix(path, "/")
		switch {
		case err != nil:
			return err
		case d.IsDir():
			all = append(all, imagetest.Dir(name))
		case d.Type().IsRegular():
			all = append(all, imagetest.Exec(name, world.Read(t, path)))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// claude is the place of the job that is done most often.
func claude() int { return slices.IndexFunc(jobs, func(j job) bool { return j.template == "claude" }) }

// TestAgentsSmoke is TestAgents of one, for each run of CI.
func TestAgentsSmoke(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	testenv.Suite(t, "slow")
	jobs[claude()].do(t, "host", "host")
}

// TestCodeInterpreter: code in a sandbox of that template has what people calculate with, and Node.js.
func TestCodeInterpreter(t *testing.T) {
	testenv.Axes(t)
	testenv.Suite(t, "agents")
	const template = "code_interpreter"
	w, digest := build(t, template, "python3", "host")
	c := w.Connect(t)
	box, err := c.CreateSandbox(t.Context(), api.CreateParams{Spec: api.Spec{Template: template}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	run := func(language, code string) api.CodeResult {
		t.Helper()
		late := 5 * world.Patience.Seconds() // the first import compiles
		r, err := c.RunCode(t.Context(),
			api.CodeParams{Sandbox: box.ID, Language: language, Code: code, TimeoutS: late})
		if err != nil || r.Error != nil {
			t.Errorf("%s: %+v, %+v, %v", code, r, r.Error, err)
		}
		return r
	}
	if r := run("python", "import numpy, scipy.stats, PIL.Image\nround(float(scipy.stats.norm.cdf(0)), 1)"); r.Text != "0.5" {
		t.Errorf("%+v", r)
	}
	if r := run("python", "import pandas\npandas.DataFrame({'a': [41, 42]}).to_excel('/tmp/a.xlsx')\n"+
		"int(pandas.read_excel('/tmp/a.xlsx')['a'].max())"); r.Text != "42" {
		t.Errorf("%+v", r)
	}
	if r := run("python", "import matplotlib.pyplot as plt\n_ = plt.plot([1, 2, 3])"); len(r.Artifacts) == 0 {
		t.Errorf("no figure: %+v", r)
	}
	if r := run("javascript", "process.version"); !strings.Contains(r.Text, "v22.") {
		t.Errorf("%+v", r)
	}
	prove(t, template, digest, "host", "scipy", "a spreadsheet by pandas", "a figure", "JavaScript")
}
