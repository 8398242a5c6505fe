package mcpconf

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"github.com/tailscale/hujson"

	"github.com/hutch-sh/hutch/internal/testenv/cost"
)

var command = []string{"/opt/hutch", "mcp", "--workspace", `a "b"\\c:overlay`}

func TestAdd(t *testing.T) {
	const entry = `{
      "command": "/opt/hutch",
      "args": [
        "mcp",
        "--workspace",
        "a \"b\"\\\\c:overlay"
      ]
    }`
	tests := []struct{ name, client, file, want string }{
		{"none", "claude", "", "{\n  \"mcpServers\": {\n    \"sandbox\": " + entry + "\n  }\n}\n"},
		{"others", "claude", "{\n  \"mcpServers\": {\n    \"x\": {} // its\n  },\n  \"y\": 1\n}\n",
			"{\n  \"mcpServers\": {\n    \"x\": {}, // its\n    \"sandbox\": " + entry + "\n  },\n  \"y\": 1\n}\n"},
		{"in place", "cursor", `{"mcpServers": {"sandbox": {"command": "old"}, "x": {}}}`,
			`{"mcpServers": {"sandbox": ` + entry + `, "x": {}}}`},
		{"tables", "codex", "model = \"m\" # mine\n\n[mcp_servers.sandbox]\ncommand = \"old\"\n\n" +
			"[mcp_servers.sandbox.env]\nA = \"b\"\n\n[mcp_servers.x]\ncommand = \"x\"\n",
			"model = \"m\" # mine\n\n[mcp_servers.x]\ncommand = \"x\"\n\n[mcp_servers.sandbox]\n" +
				"command = \"/opt/hutch\"\nargs = [\"mcp\", \"--workspace\", \"a \\\"b\\\"\\\\\\\\c:overlay\"]\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, _ := Find(tt.client)
			got, err := c.Add([]byte(tt.file), "sandbox", command)
			if err != nil || string(got) != tt.want {
				t.Fatalf("%v\n%s\nwant\n%s", err, got, tt.want)
			}
			again, err := c.Add(got, "sandbox", command)
			if err != nil || string(again) != tt.want {
				t.Errorf("the second time: %v\n%s", err, again)
			}
			gone, found, err := c.Remove(got, "sandbox")
			if err != nil || !found || strings.Contains(string(gone), "hutch") {
				t.Errorf("removed: %v, %v\n%s", found, err, gone)
			}
			if _, found, err := c.Remove(gone, "sandbox"); err != nil || found {
				t.Errorf("removed again: %v, %v", found, err)
			}
		})
	}
}

// TestRefused: what would lose something is left alone.
func TestRefused(t *testing.T) {
	for client, files := range map[string][]string{
		"claude": {"[]", "{", `{"mcpServers": []}`, "null", "\xff"},
		"codex": {"[mcp_servers", "mcp_servers = 1", "mcp_servers = { sandbox = { command = \"x\" } }",
			"text = \"\"\"\n[mcp_servers.sandbox]\nkept = 1\n\"\"\"\n"},
	} {
		c, _ := Find(client)
		for _, file := range files {
			if got, err := c.Add([]byte(file), "sandbox", command); err == nil {
				t.Errorf("%s: %q became %q", client, file, got)
			}
		}
	}
}

func FuzzJSON(f *testing.F) {
	for _, seed := range []string{
		"", "{}", `{"mcpServers": {"x": 1,},} // end`, "{\n\t\"a\": [1, {}],\n}", `{"mcpServers":{"sandbox":1}}`,
		`{"mcpServers":{},"mcpServers":{"sandbox":2}}`,
	} {
		f.Add([]byte(seed))
	}
	c, _ := Find("claude")
	f.Fuzz(func(t *testing.T, file []byte) {
		var added []byte
		var err error
		cost.Input(t, file, func(file []byte) { added, err = c.Add(file, "sandbox", command) })
		if err != nil {
			return
		}
		var before, after map[string]any
		decode(t, file, &before)
		decode(t, added, &after)
		servers, _ := after["mcpServers"].(map[string]any)
		got, _ := servers["sandbox"].(map[string]any)
		if got["command"] != command[0] {
			t.Fatalf("%q became %q", file, added)
		}
		delete(servers, "sandbox")
		if old, _ := before["mcpServers"].(map[string]any); old != nil {
			delete(old, "sandbox")
		} else {
			delete(after, "mcpServers")
		}
		if len(before)+len(after) > 0 && !reflect.DeepEqual(before, after) {
			t.Fatalf("%q became %q", file, added)
		}
	})
}

func decode(t *testing.T, file []byte, into any) {
	t.Helper()
	if len(strings.TrimSpace(string(file))) == 0 {
		return
	}
	plain, err := hujson.Standardize(append([]byte(nil), file...))
	if err == nil {
		err = json.Unmarshal(plain, into)
	}
	if err != nil {
		t.Fatalf("%q: %v", file, err)
	}
}

// FuzzTOML: add and remove change the one table, or nothing; that is what they check themselves.
func FuzzTOML(f *testing.F) {
	f.Add([]byte("a = 1\n[mcp_servers.x]\ncommand = 'x'\n[mcp_servers.'sandbox']\nargs = [\n  'a',\n]\n"))
	c, _ := Find("codex")
	f.Fuzz(func(t *testing.T, file []byte) {
		var added []byte
		var err error
		cost.Input(t, file, func(file []byte) { added, err = c.Add(file, "sandbox", command) })
		if err != nil {
			return
		}
		var all map[string]any
		err = toml.Unmarshal(added, &all)
		servers, _ := all["mcp_servers"].(map[string]any)
		if own, _ := servers["sandbox"].(map[string]any); err != nil || own["command"] != command[0] {
			t.Errorf("%q became %q: %v", file, added, err)
		}
	})
}
