package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/internal/yamltree/yamlread"
	"github.com/hutch-sh/hutch/runtime/api"
)

// TestApprove: what a file allows holds when it was approved as it stands, and else what is stricter; all the rest of
// the file holds.
func TestApprove(t *testing.T) {
	dir := t.TempDir()
	file, approved := filepath.Join(dir, "config.yaml"), filepath.Join(dir, "approved.json")
	set := func(text string) Config {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := LoadApproved(file, approved, yamlread.Parse)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	approve := func() {
		t.Helper()
		c, err := Load(file, yamlread.Parse)
		if err == nil {
			err = c.Approve(approved)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	const digest = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
	for _, tt := range []struct {
		text, held string
		strict     func(c *Config) bool
	}{
		{"ready: 3\ndefaults: {pids: 10}\nnetwork: {block: [a.test]}\n", "",
			func(c *Config) bool { return c.Ready == 3 && c.Defaults.PIDs == 10 }},
		{"host_execution: allowed\nmode: off\n", "host_execution mode",
			func(c *Config) bool { return c.Host == api.HostRefused && c.Mode == api.ExecModeAll }},
		{"host_execution: allowed\n", "host_execution", func(c *Config) bool { return c.Host == api.HostRefused }},
		{"network: {allow: [a.test]}\nready: 3\n", "network", func(c *Config) bool {
			return c.Network.Mode == api.NetNone && len(c.Network.Allow) == 0 && c.Ready == 3
		}},
		{"defaults: {network_enabled: true}\n", "network",
			func(c *Config) bool { return c.Network.Mode == api.NetNone }},
		{"network: {tier: elevated}\n", "network", func(c *Config) bool { return c.Network.Mode == api.NetNone }},
		{"audit: {enabled: false}\n", "audit", func(c *Config) bool { return c.Audit.Enabled }},
		{"audit: {redact: ['cust-[0-9]+'], keep_days: 1}\n", "audit",
			func(c *Config) bool { return len(c.Audit.Redact) == 1 && c.Audit.KeepDays == 30 }},
		{"audit: {redact: ['cust-[0-9]+']}\n", "", func(c *Config) bool { return len(c.Audit.Redact) == 1 }},
		{"audit: {connections: all, sync: true, keep_days: 90}\n", "",
			func(c *Config) bool { return c.Audit.KeepDays == 90 }},
		{"pools: {a: {size: 1, image: host}, b: {size: 1, image: host, network: {allow: [a.test]}}}\n",
			"pools.a pools.b",
			func(c *Config) bool { return len(c.Pools) == 0 }},
		{"templates: {a: {image: host}, b: {image: host, network: {mode: open}}}\n", "templates.a templates.b",
			func(c *Config) bool { return len(c.Templates) == 0 }},
		// A token that nobody has approved keeps nobody out either.
		{"tokens: {ci: " + digest + "}\n", "tokens", func(c *Config) bool { return len(c.Tokens) == 0 }},
	} {
		_ = os.Remove(approved)
		c := set(tt.text)
		if got := strings.Join(c.Held, " "); got != tt.held || !tt.strict(&c) {
			t.Errorf("%s: %q is held: %+v", tt.text, got, c)
		}
		approve()
		if c := set(tt.text); len(c.Held) > 0 {
			t.Errorf("%s: %q is held when it was approved", tt.text, c.Held)
		}
		if list, err := c.Unapproved(approved); err != nil || len(list) > 0 && tt.held == "" {
			t.Errorf("%s: %v, %v", tt.text, list, err)
		}
	}
	// An approval is of one value, and of one key.
	set("network: {allow: [a.test]}\n")
	approve()
	if c := set("network: {allow: [a.test, b.test]}\n"); !slices.Equal(c.Held, []string{"network"}) ||
		len(c.Network.Allow) > 0 {
		t.Errorf("%+v", c)
	}
	// Tokens that were approved stay until it is approved that they go, or change.
	set("tokens: {ci: " + digest + "}\n")
	approve()
	for _, text := range []string{"", "tokens: {ci: sha256:" + strings.Repeat("0", 64) + "}\n"} {
		if c := set(text); !slices.Equal(c.Held, []string{"tokens"}) || "sha256:"+c.Tokens["ci"] != digest {
			t.Errorf("%q: %+v", text, c)
		}
	}
	set("")
	approve()
	if c := set(""); len(c.Held)+len(c.Tokens) > 0 {
		t.Errorf("%+v", c)
	}
	// What others may have written approves nothing.
	if err := os.Chmod(approved, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadApproved(file, approved, yamlread.Parse); err == nil ||
		!strings.Contains(err.Error(), "somebody else's") {
		t.Errorf("a file that all may write: %v", err)
	}
}
