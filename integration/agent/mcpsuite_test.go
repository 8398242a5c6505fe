package agent_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// mcpSuite is a program of those that testdata/mcp names and `make deps` installs. t is skipped where it does not
// start.
func mcpSuite(t testing.TB, program string, try ...string) (path string) {
	t.Helper()
	root, err := testenv.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(root, ".cache/mcp/node_modules/@modelcontextprotocol", program)
	check := probe.Check{Name: "mcp_" + filepath.Base(filepath.Dir(filepath.Dir(program))), Status: probe.Yes,
		Remedy: "install Node 20 or newer, and make deps"}
	if out, err := exec.Command("node", append([]string{"testdata/mcp/run.mjs", path}, try...)...).
		CombinedOutput(); err != nil {
		check.Status, check.Detail = probe.No, err.Error()+": "+world.Abridged(string(out))
	}
	testenv.Require(t, check)
	return path
}

// The suite's scenarios. Some hold for any server: of those everything must succeed. The others want a server made for
// the suite, which has a tool, a prompt or a resource of a certain name, or a capability that this one does not claim.
var (
	genericScenarios = []string{
		"server-initialize", "ping", "logging-set-level", "tools-list", "resources-list", "prompts-list",
		"server-sse-multiple-streams", "dns-rebinding-protection",
	}
	specialScenarios = map[string]string{
		"completion-complete": "method not found", "resources-subscribe": "method not found",
		"resources-unsubscribe": "method not found",
		"resources-read-text":   "Resource not found", "resources-read-binary": "Resource not found",
		"resources-templates-read": "Resource not found",
		"tools-call-simple-text":   "unknown tool", "tools-call-image": "unknown tool",
		"tools-call-audio": "unknown tool", "tools-call-embedded-resource": "unknown tool",
		"tools-call-mixed-content": "unknown tool", "tools-call-with-logging": "unknown tool",
		"tools-call-error": "unknown tool", "tools-call-with-progress": "unknown tool",
		"tools-call-sampling": "unknown tool", "tools-call-elicitation": "unknown tool",
		"json-schema-2020-12":          "not found",
		"elicitation-sep1034-defaults": "unknown tool", "elicitation-sep1330-enums": "unknown tool",
		"server-sse-polling": "",
		"prompts-get-simple": "unknown prompt", "prompts-get-with-args": "unknown prompt",
		"prompts-get-embedded-resource": "unknown prompt", "prompts-get-with-image": "unknown prompt",
	}
)

// finding is one of the suite's.
type finding struct {
	ID           string `json:"id"`
	Status       string `json:"status"`
	ErrorMessage string `json:"errorMessage"`
}

// TestMCPConformance: the conformance suite of the Model Context Protocol finds that the server keeps to it, in every
// scenario that is not about tools of a test server.
func TestMCPConformance(t *testing.T) {
	suite := mcpSuite(t, "conformance/dist/index.js", "list", "--server")
	w := world.New(t)
	at, cmd := mcpHTTP(t, w)
	server, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	// The suite sends no Authorization. Everything else goes through as it is, Host too.
	proxy := &httputil.ReverseProxy{Transport: mcpToken, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(server)
		r.Out.Host = r.In.Host
	}}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// net/http closes the body of a request when the answer to it begins. The transport may not have seen the end
		// of it yet, fails, and cuts the answer off.
		if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
			t.Error(err)
		}
		proxy.ServeHTTP(w, r)
	}))
	defer front.Close()
	dir := w.Sub(t, "findings")
	run := exec.Command("node", "testdata/mcp/run.mjs", suite, "server", "--url", front.URL+"/mcp", "--suite", "all",
		"--output-dir", dir)
	r := w.FinishInSteps(t, run)
	found := findings(t, dir)
	for _, name := range genericScenarios {
		checks := found[name]
		delete(found, name)
		if len(checks) == 0 {
			t.Errorf("%s did not run:\n%s%s", name, world.Abridged(r.Stdout), r.Stderr)
		}
		for _, c := range checks {
			if c.Status != "SUCCESS" {
				t.Errorf("%s: %+v", name, c)
			}
		}
	}
	for name, checks := range found {
		want, ok := specialScenarios[name]
		if !ok {
			t.Errorf("a scenario that nobody knows: %s %+v", name, checks)
		}
		if !slices.ContainsFunc(checks, func(f finding) bool { return strings.Contains(f.ErrorMessage, want) }) {
			t.Errorf("%s: %+v, want %s", name, checks, want)
		}
	}
	if len(found) != len(specialScenarios) {
		t.Errorf("%d special scenarios, want %d", len(found), len(specialScenarios))
	}
	if err := cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// findings reads what the suite has written: a folder server-SCENARIO-TIME for each.
func findings(t testing.TB, dir string) map[string][]finding {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*", "checks.json"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]finding{}
	for _, path := range paths {
		name := strings.TrimPrefix(filepath.Base(filepath.Dir(path)), "server-")
		name = name[:max(0, len(name)-len("-2006-01-02T15-04-05-000Z"))]
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var list []finding
		if err := json.Unmarshal(data, &list); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		found[name] = list
	}
	return found
}

// TestMCPInspector: the command line of the protocol's inspector starts the server, lists its tools and resources, and
// calls one.
func TestMCPInspector(t *testing.T) {
	inspector := mcpSuite(t, "inspector-cli/build/cli.js", "--help")
	w := world.New(t)
	inspect := func(code int, args ...string) string {
		t.Helper()
		server := []string{filepath.Join(w.Bin, "hutch"), "mcp", "--structured", "host"}
		cmd := exec.Command("node", slices.Concat([]string{inspector, "--cli"}, server, []string{"--method"}, args)...)
		cmd.Env = w.Vars
		cmd.Dir = filepath.Dir(inspector) // it looks for its package.json beside the working directory
		return w.Finish(t, cmd).Want(t, code).Stdout
	}
	var tools struct {
		Tools []struct{ Name string }
	}
	if out := inspect(0, "tools/list"); json.Unmarshal([]byte(out), &tools) != nil || len(tools.Tools) < 12 {
		t.Errorf("%s", out)
	}
	var templates struct {
		ResourceTemplates []struct{ URITemplate string }
	}
	if out := inspect(0, "resources/templates/list"); json.Unmarshal([]byte(out), &templates) != nil ||
		len(templates.ResourceTemplates) != 2 {
		t.Errorf("%s", out)
	}
	var result struct {
		Content           []struct{ Type, Text string }
		StructuredContent struct {
			ExitCode int `json:"exit_code"`
		}
		IsError bool
	}
	call := func(command string) {
		t.Helper()
		out := inspect(0, "tools/call", "--tool-name", "sandbox_run_command", "--tool-arg", "command="+command)
		if err := json.Unmarshal([]byte(out), &result); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
	}
	call("echo from $(hostname)")
	if result.IsError || !strings.HasPrefix(result.Content[0].Text, "from ") {
		t.Errorf("%+v", result)
	}
	call("exit 3")
	if !result.IsError || result.StructuredContent.ExitCode != 3 {
		t.Errorf("%+v", result)
	}
	if out := w.OK(t, "ps", "-aq"); out != "" {
		t.Errorf("left: %q", out)
	}
}
