// Package agents knows the agents that hutch's templates are for: how each is run where nobody answers it, and which of
// them this build was tested with.
package agents

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Task stands in Unattended for what the agent is to do, URL in Address for where its model is.
const (
	Task = "{task}"
	URL  = "{url}"
)

// Agent is a program that a shipped template is for. Tests run it as this says, and people read the same.
type Agent struct {
	Template string
	Title    string
	Version  string
	// Unattended is the command line that does Task and ends, without a question.
	Unattended []string
	// Key is the variable with the key of the model.
	Key string
	// Address has the agent look for its model at URL: a variable, or words for the command, which begin with a dash.
	Address string
}

// All are the agents, in the order of the documentation.
var All = []Agent{
	{
		Template: "claude", Title: "Claude Code", Version: "2.1.332",
		Unattended: []string{"claude", "--dangerously-skip-permissions", "-p", Task},
		Key:        "ANTHROPIC_API_KEY", Address: "ANTHROPIC_BASE_URL={url}",
	},
	{
		Template: "codex", Title: "Codex", Version: "0.171.0",
		Unattended: []string{"codex", "exec", "--skip-git-repo-check", Task},
		Key:        "CODEX_API_KEY", Address: "-c openai_base_url={url}/v1",
	},
	{
		Template: "gemini", Title: "Gemini CLI", Version: "0.61.0",
		Unattended: []string{"gemini", "-y", "-p", Task},
		Key:        "GEMINI_API_KEY", Address: "GOOGLE_GEMINI_BASE_URL={url}",
	},
	{
		Template: "opencode", Title: "opencode", Version: "1.18.18",
		Unattended: []string{"opencode", "run", Task},
		Key:        "ANTHROPIC_API_KEY",
		Address:    `OPENCODE_CONFIG_CONTENT={"provider":{"anthropic":{"options":{"baseURL":"{url}/v1"}}}}`,
	},
	{
		Template: "qwen", Title: "Qwen Code", Version: "0.24.4",
		Unattended: []string{"qwen", "-y", "-p", Task},
		Key:        "OPENAI_API_KEY", Address: "OPENAI_BASE_URL={url}/v1",
	},
	{
		Template: "copilot", Title: "GitHub Copilot CLI", Version: "1.0.102",
		Unattended: []string{"copilot", "--allow-all-tools", "-p", Task},
		Key:        "COPILOT_PROVIDER_API_KEY", Address: "COPILOT_PROVIDER_BASE_URL={url}/v1",
	},
	{
		Template: "aider", Title: "Aider", Version: "0.86.2",
		Unattended: []string{"aider", "--yes-always", "--no-stream", "--no-git", "--model", "openai/gpt-4.1",
			"--message", Task},
		Key: "OPENAI_API_KEY", Address: "OPENAI_API_BASE={url}/v1",
	},
	{
		Template: "mini-swe-agent", Title: "mini-SWE-agent", Version: "2.4.6",
		Unattended: []string{"mini", "-y", "--exit-immediately", "-m", "openai/gpt-4.1", "-t", Task},
		Key:        "OPENAI_API_KEY", Address: "OPENAI_API_BASE={url}/v1",
	},
}

// Find is the agent of a template; nil for other templates.
func Find(template string) *Agent {
	if i := slices.IndexFunc(All, func(a Agent) bool { return a.Template == template }); i >= 0 {
		return &All[i]
	}
	return nil
}

// Command is what does a task by the model at url, with the variables that it takes.
func (a *Agent) Command(task, url string) (argv, env []string) {
	argv = slices.Clone(a.Unattended)
	for i := range argv {
		argv[i] = strings.ReplaceAll(argv[i], Task, task)
	}
	address := strings.ReplaceAll(a.Address, URL, url)
	if strings.HasPrefix(address, "-") {
		return append(argv, strings.Fields(address)...), nil
	}
	return argv, strings.Fields(address)
}

// Line is Unattended as it is typed.
func (a *Agent) Line() string {
	words := slices.Clone(a.Unattended)
	for i, w := range words {
		if strings.ContainsAny(w, " \"{}") {
			words[i] = "'" + w + "'"
		}
	}
	return strings.Join(words, " ")
}

// Proof is what a test writes when a template of these contents has done its work.
type Proof struct {
	Template string `json:"template"`
	// Digest is that of the template, see Digest: of another template this is no proof.
	Digest string   `json:"digest"`
	Over   []string `json:"over"` // the images that it was built over
	Date   string   `json:"date"` // UTC
	Did    []string `json:"did"`  // what the test has seen
}

// Digest is that of a template's specification, which has the digests of the files that its steps copy. The variables
// that `hutch agent` passes make no difference to what tests prove.
func Digest(spec api.TemplateSpec) (string, error) {
	spec.PassEnv = nil
	data, err := json.Marshal(spec)
	if err != nil {
		return "", fmt.Errorf("the digest of a template: %w", err)
	}
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}

// proven holds a file for each template: `make prove-agents` writes them.
//
//go:embed proven/*.json
var proven embed.FS

// Proofs are those of this build, by template.
func Proofs() (map[string]Proof, error) {
	entries, err := proven.ReadDir("proven")
	if err != nil {
		return nil, err
	}
	all := map[string]Proof{}
	for _, e := range entries {
		data, err := proven.ReadFile(path.Join("proven", e.Name()))
		if err != nil {
			return nil, err
		}
		var p Proof
		if err := json.Unmarshal(data, &p); err != nil {
			return nil, fmt.Errorf("%s is no proof: %w", e.Name(), err)
		}
		if p.Template+".json" != e.Name() {
			return nil, fmt.Errorf("%s is the proof of %q", e.Name(), p.Template)
		}
		all[p.Template] = p
	}
	return all, nil
}
