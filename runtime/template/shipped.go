package template

import (
	"slices"

	"github.com/hutch-sh/hutch/runtime/api"
)

// shipped come with hutch. Nothing is fetched or built for one before somebody uses it. The images are those of the
// section runtimes of the configuration file, or of its section templates.
var shipped = []api.TemplateSpec{
	{Name: "base", Description: "this host's own programs", Image: "host"},
	{Name: "code_interpreter", Description: "Python, for code.run", Image: "python"},
	{Name: "node", Description: "Node.js", Image: "node"},
	{
		Name: "claude", Description: "Node.js with Claude Code", Image: "node", Cmd: []string{"claude"},
		Entrypoint: []string{},
		Steps:      []api.TemplateStep{{Argv: []string{"npm", "install", "--global", "@anthropic-ai/claude-code"}}},
		Build:      fromNPM,
		Network: api.NetPolicy{Mode: api.NetAllow, Allow: []string{"api.anthropic.com", "claude.ai",
			"console.anthropic.com"}},
	},
	{
		Name: "codex", Description: "Node.js with Codex", Image: "node", Cmd: []string{"codex"}, Entrypoint: []string{},
		Steps: []api.TemplateStep{{Argv: []string{"npm", "install", "--global", "@openai/codex"}}}, Build: fromNPM,
		Network: api.NetPolicy{Mode: api.NetAllow, Allow: []string{"api.openai.com", "auth.openai.com", "chatgpt.com"}},
	},
}

// fromNPM lets a build install packages, which sandboxes of the template then cannot.
var fromNPM = api.TemplateBuild{Network: api.NetPolicy{Mode: api.NetAllow, Allow: []string{"registry.npmjs.org"}}}

// Shipped are the templates that come with hutch, and those of the configuration file: one of a shipped name says what
// is different. With an image of its own it is taken to have what the shipped one's steps install.
func Shipped(configured []api.TemplateSpec) []api.TemplateSpec {
	list := withPassEnv(slices.Clone(shipped))
	for _, t := range configured {
		i := slices.IndexFunc(list, func(s api.TemplateSpec) bool { return s.Name == t.Name })
		if i < 0 {
			list = append(list, t)
			continue
		}
		below := list[i]
		merged := t.On(&below)
		switch {
		case t.Image != "" || t.Template != "":
			merged.Image, merged.Template = t.Image, t.Template
		default:
			merged.Steps = slices.Concat(below.Steps, t.Steps)
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
