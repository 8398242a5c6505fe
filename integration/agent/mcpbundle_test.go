package agent_test

import (
	"archive/zip"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/mcpb"
)

// TestMCPBundle: what make package makes starts, from where it is unpacked, by what its manifest says.
func TestMCPBundle(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	at, project := w.Sub(t, "unpacked"), w.Sub(t, "project")
	world.Write(t, filepath.Join(project, "main.txt"), "one\n")
	bundle, _, err := mcpb.Make(mcpb.Config{Version: "1.2.3", Bin: w.Bin, License: filepath.Join(project, "main.txt"),
		Out: w.Sub(t, "dist")})
	if err != nil {
		t.Fatal(err)
	}
	unpack(t, bundle, at)
	var manifest struct {
		Server struct {
			MCPConfig struct {
				Command string
				Args    []string
			} `json:"mcp_config"`
		}
	}
	text, err := os.ReadFile(filepath.Join(at, "manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &manifest); err != nil {
		t.Fatal(err)
	}
	filled := strings.NewReplacer("${__dirname}", at, "${user_config.workspace}", project)
	var args []string
	for _, a := range manifest.Server.MCPConfig.Args {
		args = append(args, filled.Replace(a))
	}
	cmd := exec.Command(filled.Replace(manifest.Server.MCPConfig.Command), args...)
	cmd.Env = w.Vars
	s, err := mcp.NewClient(&mcp.Implementation{Name: "test"}, nil).Connect(t.Context(),
		&mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := mcpClient{ClientSession: s}
	if text := c.call(t, "sandbox_run_command", false, world.Args{"command": "cat main.txt"}); !strings.HasPrefix(text,
		"one\n[") {
		t.Errorf("%q", text)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// unpack unpacks a zip archive of the test's own.
func unpack(t testing.TB, archive, at string) {
	t.Helper()
	z, err := zip.OpenReader(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	for _, f := range z.File {
		in, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(at, f.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		out, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, f.Mode())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(out, in); err != nil {
			t.Fatal(err)
		}
		if err := out.Close(); err != nil {
			t.Fatal(err)
		}
		_ = in.Close()
	}
}
