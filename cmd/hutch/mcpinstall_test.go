package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestMCPInstall: what is installed is written where the client looks, with the mode that the file had, and taken out.
func TestMCPInstall(t *testing.T) {
	project, home := t.TempDir(), t.TempDir()
	t.Chdir(project)
	t.Setenv("HOME", home)
	run := func(cmd *cobra.Command, args ...string) (string, error) {
		var out strings.Builder
		cmd.SetOut(&out)
		cmd.SetArgs(args)
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		err := cmd.Execute()
		return out.String(), err
	}
	read := func(path string) string {
		t.Helper()
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	for _, tt := range []struct {
		client, file, want string
		flags              []string
	}{
		{"claude", project + "/.mcp.json", `".:overlay"`, nil},
		{"cursor", project + "/.cursor/mcp.json", `"${workspaceFolder}:overlay"`, nil},
		{"gemini", home + "/.gemini/settings.json", `"mcpServers"`, []string{"--user"}},
		{"codex", home + "/.codex/config.toml", `[mcp_servers.box]`, []string{"--user", "--name", "box"}},
	} {
		flags := append([]string{"--yes"}, tt.flags...)
		out, err := run(newMCPInstall(), append(flags, tt.client)...)
		if err != nil || !strings.Contains(out, tt.file) || !strings.Contains(read(tt.file), tt.want) {
			t.Fatalf("%s: %v\n%s", tt.client, err, out)
		}
		_, err = run(newMCPUninstall(), append(flags, tt.client)...)
		if err != nil || strings.Contains(read(tt.file), "box") {
			t.Errorf("%s: %v: %s", tt.client, err, read(tt.file))
		}
	}
	if st, err := os.Stat(home + "/.codex/config.toml"); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}

	// Dotfiles may lie elsewhere; what a project leads to may not.
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	if err := os.WriteFile(elsewhere, []byte(`{"a": 1}`), 0o640); err != nil {
		t.Fatal(err)
	}
	for _, link := range []string{home + "/.claude.json", project + "/opencode.json"} {
		if err := os.Symlink(elsewhere, link); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := run(newMCPInstall(), "-y", "opencode"); err == nil || read(elsewhere) != `{"a": 1}` {
		t.Errorf("%v\n%s", err, out)
	}
	out, err := run(newMCPInstall(), "-y", "--user", "claude")
	if err != nil || !strings.Contains(read(elsewhere), "mcp") {
		t.Errorf("%v\n%s", err, out)
	}
	if st, err := os.Stat(elsewhere); err != nil || st.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v", st.Mode(), err)
	}

	// What is wrong changes nothing.
	for _, args := range [][]string{
		{"-y", "codex"}, {"-y", "nobody"}, {"-y", "--name", "a b", "claude"}, {"-y", "claude", "--nonsense"},
		{"claude"},
	} {
		if out, err := run(newMCPInstall(), args...); err == nil {
			t.Errorf("%v: %s", args, out)
		}
	}
	if left, err := filepath.Glob(project + "/*hutch-*"); err != nil || left != nil {
		t.Errorf("%v, %v", left, err)
	}
	if text := read(project + "/.mcp.json"); strings.Contains(text, "hutch") {
		t.Error(text)
	}
}
