package sdk_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// turn is what a scripted model says: text, or a call of a tool.
type turn struct {
	text string
	tool string
	args map[string]any
}

// model is a server of OpenAI's chat completions that says what a script has, in order, and the last turn again.
type model struct {
	*httptest.Server
	mu    sync.Mutex
	asked []string // the requests
}

func serveModel(t *testing.T, script []turn) *model {
	t.Helper()
	m := new(model)
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || !strings.HasSuffix(r.URL.Path, "/chat/completions") {
			http.Error(w, r.URL.Path, http.StatusNotFound)
			return
		}
		m.mu.Lock()
		now := script[min(len(m.asked), len(script)-1)]
		m.asked = append(m.asked, string(body))
		call := fmt.Sprintf("call_%d", len(m.asked)) // two calls of one id are one
		m.mu.Unlock()
		message, reason := map[string]any{"role": "assistant", "content": now.text}, "stop"
		if now.tool != "" {
			args, _ := json.Marshal(now.args)
			reason, message["content"] = "tool_calls", nil
			message["tool_calls"] = []any{map[string]any{"id": call, "type": "function",
				"function": map[string]any{"name": now.tool, "arguments": string(args)}}}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{
			"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "gpt-4.1",
			"choices": []any{map[string]any{"index": 0, "finish_reason": reason, "message": message}},
			"usage":   map[string]any{"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
		})
	}))
	t.Cleanup(m.Close)
	return m
}

// last is the last thing that the model was asked: what the tools have answered is in it.
func (m *model) last() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.asked) == 0 {
		return ""
	}
	return m.asked[len(m.asked)-1]
}

// frameworks is where make deps-sdk puts what Python's examples import.
func frameworks(t *testing.T) string {
	t.Helper()
	installed, err := filepath.Abs("../../.cache/sdk")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(installed, "requirements.txt")); err != nil {
		testenv.Require(t, probe.Check{Name: "frameworks", Status: probe.No, Detail: err.Error(),
			Remedy: "make deps-sdk"})
	}
	return installed
}

// TestNotebook: docs/examples/notebook, by Jupyter's own kernel: a picture that code in the sandbox has made is shown.
func TestNotebook(t *testing.T) {
	testenv.Axes(t)
	testenv.Suite(t, "sdk")
	t.Parallel()
	w := world.New(t)
	notebook, err := filepath.Abs("../../docs/examples/notebook/sandbox.ipynb")
	if err != nil {
		t.Fatal(err)
	}
	cmd := python(t, w, "python3", "-c", `
import sys, nbclient, nbformat
notebook = nbformat.read(sys.argv[1], 4)
nbclient.NotebookClient(notebook, kernel_name="python3").execute()
shown = [o.get("data", {}) for cell in notebook.cells for o in cell.get("outputs", [])]
print(shown)
assert shown[0]["text/plain"].startswith("'hello from hutch-"), shown[0]
assert any("image/png" in data for data in shown)
assert "--allow example.com" in shown[-1]["text/plain"], shown[-1]
`, notebook)
	cmd.Env = append(cmd.Env, "PYTHONPATH="+source(t)+":"+frameworks(t), "HOME="+w.Dir, "JUPYTER_RUNTIME_DIR="+w.Dir)
	if r := w.FinishInSteps(t, cmd); r.Code != 0 {
		t.Errorf("exit code %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
}

// TestReference: what the packages export is described, and refers to nothing that is not.
func TestReference(t *testing.T) {
	testenv.Axes(t)
	testenv.Suite(t, "sdk")
	t.Parallel()
	frameworks(t)
	installed(t, runtimes+"/typedoc", "make deps-sdk")
	w := world.New(t)
	out := w.Path("reference")
	// It reads all sources, and says nothing meanwhile.
	ctx, cancel := context.WithTimeout(t.Context(), 10*world.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "make", "-C", "../..", "--no-print-directory", "reference", "REFERENCE="+out)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for page, about := range map[string]string{
		"python/hutch.html":               "At the end of its with block it is removed",
		"typescript/classes/Sandbox.html": "await using",
	} {
		if !strings.Contains(world.Read(t, filepath.Join(out, page)), about) {
			t.Errorf("%s says nothing of %q", page, about)
		}
	}
}

// TestPythonAgents: the frameworks of docs/examples/agents, as they are published, work in a sandbox, by a scripted
// model.
func TestPythonAgents(t *testing.T) {
	testenv.Axes(t)
	testenv.Suite(t, "sdk")
	installed := frameworks(t)
	for _, c := range []struct {
		example string
		args    []string
		script  []turn
		prints  string // what the example prints in the end
		told    string // what the model was told by the sandbox
	}{
		{"smolagents_code.py", []string{"What is it?"}, []turn{
			{text: "Thought: compute.\n<code>\nimport platform\nx = 6 * 7\nprint('saw', x, platform.node())\n</code>"},
			{text: "Thought: done.\n<code>\nfinal_answer(x + 1)\n</code>"},
		}, "43\n", "saw 42 hutch-"},
		{"openai_agents.py", []string{"Do it."}, []turn{
			{tool: "write_file", args: map[string]any{"path": "/workspace/new.txt", "content": "one two\n"}},
			{tool: "shell", args: map[string]any{"command": "wc -w new.txt; uname -n"}},
			{text: "It has 2 words."},
		}, "+one two", "2 new.txt"},
		{"deepagents_backend.py", []string{"Do it."}, []turn{
			{tool: "write_file", args: map[string]any{"file_path": "/tmp/p.py", "content": "print(6*7)\n"}},
			{tool: "execute", args: map[string]any{"command": "python3 /tmp/p.py; uname -n"}},
			{text: "It prints 42."},
		}, "It prints 42.\n", "42"},
		{"mini_swe_agent.py", []string{".", "Fix it."}, []turn{
			{tool: "bash", args: map[string]any{"command": "echo fixed >fixed.txt; uname -n"}},
			{tool: "bash", args: map[string]any{"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"}},
		}, "+fixed", "hutch-"},
		{"inspect_sandbox.py", nil, []turn{
			{tool: "bash", args: map[string]any{"command": "cat secret.txt; uname -n"}},
			{text: "It is swordfish."},
		}, "1.000", "hutch-"},
	} {
		t.Run(strings.TrimSuffix(c.example, ".py"), func(t *testing.T) {
			w := world.New(t)
			m := serveModel(t, c.script)
			example, err := filepath.Abs("../../docs/examples/agents/" + c.example)
			if err != nil {
				t.Fatal(err)
			}
			project := w.Sub(t, "project")
			args := append([]string{example}, c.args...)
			if c.args == nil { // it takes relative paths alone
				relative, err := filepath.Rel(project, example)
				if err != nil {
					t.Fatal(err)
				}
				args = []string{"-m", "inspect_ai", "eval", relative, "--model", "openai/gpt-4.1", "--display", "plain"}
			}
			// To import a framework takes up to half a minute on a busy machine.
			ctx, cancel := context.WithTimeout(t.Context(), 10*world.Patience)
			defer cancel()
			env := python(t, w, "python3").Env
			cmd := exec.CommandContext(ctx, interpreter(t, "python3"), args...)
			cmd.Dir = project
			cmd.Env = append(env, "PYTHONPATH="+source(t)+":"+installed, "HOME="+w.Dir, "MSWEA_SILENT_STARTUP=1",
				"OPENAI_BASE_URL="+m.URL+"/v1", "OPENAI_API_BASE="+m.URL+"/v1", "OPENAI_API_KEY=none")
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), c.prints) || !strings.Contains(m.last(), c.told) {
				t.Errorf("%v, want %q\n%s\nthe model was told %s, want %q", err, c.prints, out, m.last(), c.told)
			}
		})
	}
}
