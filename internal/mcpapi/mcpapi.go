// Package mcpapi is what `hutch mcp` tells hutch-mcp, which it becomes.
package mcpapi

import "github.com/hutch-sh/hutch/runtime/api"

// Variable is the environment variable that holds a Config in JSON.
const Variable = "HUTCH_MCP"

// Config is what the server is to do.
type Config struct {
	Spec    api.Spec `json:"spec"`              // of the sandboxes it makes; it opens the folders
	Sandbox string   `json:"sandbox,omitempty"` // use this one, which stays
	Keep    bool     `json:"keep,omitempty"`    // what is made stays
	Private bool     `json:"private,omitempty"` // with a daemon of its own
	// Structured has results carry what they say as an object, too. Of the clients that were looked at two show models
	// that and not the text, which says more, and two show both.
	Structured bool `json:"structured,omitempty"`
	// Mode is where sandbox_run_command runs commands, unless the model asks for a stricter one. Folder is where on the
	// host, absolute: the workspace's folder; "" with mode all.
	Mode   api.ExecMode `json:"mode,omitempty"`
	Folder string       `json:"folder,omitempty"`
	// Registries are those of which the model may have images fetched, beside the session's own.
	Registries []string `json:"registries,omitempty"`
	// HTTP is the address to serve on instead of stdin and stdout, TokenFile holds the bearer token; "" makes one.
	HTTP      string `json:"http,omitempty"`
	TokenFile string `json:"token_file,omitempty"`
}
