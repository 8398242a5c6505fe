// Package mcpconf edits the files in which programs that speak MCP keep their servers. It changes one entry and leaves
// every other byte, comments included, as it is; what it cannot change so it refuses.
package mcpconf

import (
	"errors"
	"path/filepath"
	"slices"
)

// Client is a program that speaks MCP.
type Client struct {
	Name  string // as the user calls it
	Title string
	// Project is its file in a project, and User the one in the user's home folder; "" where it reads none.
	Project, User string
	// Workspace is what it puts in place of the project's folder.
	Workspace string

	format
}

// format is how a file is written.
type format interface {
	// add puts the server in, in place of one with that name; remove takes it out, if it is there.
	add(file []byte, name string, command []string) ([]byte, error)
	remove(file []byte, name string) (changed []byte, found bool, err error)
	// show is the entry alone.
	show(name string, command []string) string
}

// Clients are those that are known, by name. Where the files are is from each one's documentation, of November 2026.
var Clients = []Client{
	{"claude", "Claude Code", ".mcp.json", ".claude.json", ".", object{"mcpServers", commandAndArgs}},
	{"codex", "Codex", "", ".codex/config.toml", ".", table("mcp_servers")},
	{"cursor", "Cursor", ".cursor/mcp.json", ".cursor/mcp.json", "${workspaceFolder}",
		object{"mcpServers", commandAndArgs}},
	{"gemini", "Gemini CLI", ".gemini/settings.json", ".gemini/settings.json", ".",
		object{"mcpServers", commandAndArgs}},
	{"opencode", "opencode", "opencode.json", ".config/opencode/opencode.json", ".", object{"mcp", local}},
	{"vscode", "VS Code", ".vscode/mcp.json", ".config/Code/User/mcp.json", "${workspaceFolder}",
		object{"servers", stdio}},
}

// Names are those of Clients.
func Names() []string {
	var names []string
	for _, c := range Clients {
		names = append(names, c.Name)
	}
	return names
}

// Find returns the client of a name.
func Find(name string) (Client, bool) {
	i := slices.IndexFunc(Clients, func(c Client) bool { return c.Name == name })
	if i < 0 {
		return Client{}, false
	}
	return Clients[i], true
}

// File is the path of its file: in home where user is true, or else in project. It fails where it has none.
func (c Client) File(project, home string, user bool) (string, error) {
	switch {
	case user:
		return filepath.Join(home, c.User), nil
	case c.Project == "":
		return "", errors.New(c.Title + " has no such file in projects")
	}
	return filepath.Join(project, c.Project), nil
}

// Add returns file, which may be empty, with a server of this name: command is its program and arguments.
func (c Client) Add(file []byte, name string, command []string) ([]byte, error) {
	return c.add(file, name, command)
}

// Remove returns file without the server of this name. found says whether it was there.
func (c Client) Remove(file []byte, name string) (changed []byte, found bool, err error) {
	return c.remove(file, name)
}

// Show is what Add puts into a file.
func (c Client) Show(name string, command []string) string { return c.show(name, command) }
