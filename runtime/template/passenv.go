package template

import "github.com/hutch-sh/hutch/runtime/api"

// passEnv are the variables that `hutch agent` passes to shipped templates: keys of the agent's own model, and where
// that is. What reaches further, such as a token for GitHub, is for the user to name.
var passEnv = map[string][]string{
	"claude": {"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "ANTHROPIC_MODEL",
		"CLAUDE_CODE_OAUTH_TOKEN"},
	"codex":  {"CODEX_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL"},
	"gemini": {"GEMINI_API_KEY", "GEMINI_MODEL", "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL"},
	"opencode": {"ANTHROPIC_API_KEY", "GEMINI_API_KEY", "OPENAI_API_KEY", "OPENCODE_API_KEY",
		"OPENROUTER_API_KEY"},
	"qwen": {"DASHSCOPE_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL"},
	"copilot": {"COPILOT_GITHUB_TOKEN", "COPILOT_MODEL", "COPILOT_OFFLINE", "COPILOT_PROVIDER_API_KEY",
		"COPILOT_PROVIDER_BASE_URL", "COPILOT_PROVIDER_TYPE"},
	"aider": {"AIDER_MODEL", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "OPENAI_API_BASE", "OPENAI_API_KEY",
		"OPENROUTER_API_KEY"},
	"mini-swe-agent": {"ANTHROPIC_API_KEY", "GEMINI_API_KEY", "MSWEA_MODEL_NAME", "OPENAI_API_BASE", "OPENAI_API_KEY"},
	"openhands":      {"LLM_API_KEY", "LLM_BASE_URL", "LLM_MODEL"},
}

// withPassEnv gives templates these where they name none themselves. It changes the list.
func withPassEnv(list []api.TemplateSpec) []api.TemplateSpec {
	for i := range list {
		if t := &list[i]; t.PassEnv == nil {
			t.PassEnv = passEnv[t.Name]
		}
	}
	return list
}
