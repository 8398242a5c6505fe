package config

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/internal/testenv/cost"
	"github.com/hutch-sh/hutch/internal/yamltree"
	"github.com/hutch-sh/hutch/internal/yamltree/yamlread"
	"github.com/hutch-sh/hutch/runtime/api"
)

// with is the default with a change.
func with(change func(*Config)) Config {
	c := Default()
	change(&c)
	return c
}

// TestDigest: what was published is believed of the same text only.
func TestDigest(t *testing.T) {
	dir := t.TempDir()
	file, left := filepath.Join(dir, "config.yaml"), filepath.Join(dir, "digest.json")
	approved := filepath.Join(t.TempDir(), "approved.json")
	parsed := 0
	parser := func(text []byte) (*yamltree.Node, error) {
		parsed++
		return yamlread.Parse(text)
	}
	ask := func(image string, mode api.ExecMode, times int) {
		t.Helper()
		d, err := LoadDigest(file, approved, left, parser)
		if err != nil || d.Image != image || d.Mode != mode || parsed != times {
			t.Errorf("%+v, %v after %d times, want %s, %s after %d", d, err, parsed, image, mode, times)
		}
	}
	set := func(text string) Config {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := Load(file, yamlread.Parse)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Approve(approved); err != nil {
			t.Fatal(err)
		}
		return c
	}
	ask("host", api.ExecModeAll, 0) // there is no file
	c := set("image: a:1\nhost_execution: allowed\nmode: selective\n")
	ask("a:1", api.ExecModeSelective, 1)
	if err := c.Publish(left); err != nil {
		t.Fatal(err)
	}
	ask("a:1", api.ExecModeSelective, 1)
	for _, bad := range []func() error{ // as somebody else might have made it
		func() error { return os.Chmod(left, 0o666) },
		func() error { return errors.Join(os.Chmod(left, 0o600), os.Link(left, left+".2")) },
		func() error { return errors.Join(os.Remove(left), os.Symlink(left+".2", left)) },
	} {
		if err := bad(); err != nil {
			t.Fatal(err)
		}
		parsed = 1
		ask("a:1", api.ExecModeSelective, 2)
	}
	if err := errors.Join(os.Remove(left), os.Rename(left+".2", left)); err != nil {
		t.Fatal(err)
	}
	parsed = 1
	ask("a:1", api.ExecModeSelective, 1)
	set("image: b:1\n") // and not loaded again
	ask("b:1", api.ExecModeAll, 2)
	if err := os.WriteFile(left, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	ask("b:1", api.ExecModeAll, 3)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	ask("host", api.ExecModeAll, 3)
	none, err := Load(file, parser)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the first removes what was left
		if err := none.Publish(left); err != nil {
			t.Error(err)
		}
	}
	if names, _ := os.ReadDir(dir); len(names) > 0 {
		t.Errorf("left: %v", names)
	}
}

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       Config
	}{
		{"empty", "", Default()},
		{"comments only", "# nothing\n", Default()},
		{"an empty section", "exec:\n", Default()},
		{"exec", "image: a\nexec:\n  timeout_s: 5\n  max_timeout_s: 60\n",
			with(func(c *Config) { c.Image, c.Exec = "a", api.ExecBounds{TimeoutS: 5, MaxTimeoutS: 60} })},
		{"the default follows a small maximum", "exec: {max_timeout_s: 60}\n",
			with(func(c *Config) { c.Exec = api.ExecBounds{TimeoutS: 60, MaxTimeoutS: 60} })},
		{"the maximum follows a large default", "exec: {timeout_s: 2h}\n",
			with(func(c *Config) { c.Exec = api.ExecBounds{TimeoutS: 7200, MaxTimeoutS: 7200} })},
		{"defaults", "defaults: {cpus: 1.5, memory_bytes: 512m, disk_bytes: 1.5g, pids: 20}\n", with(func(c *Config) {
			c.Defaults = api.Limits{CPUs: 1.5, MemoryBytes: 512 << 20, DiskBytes: 3 << 29, PIDs: 20}
		})},
		{"none", "defaults: {cpus: none, memory_bytes: none, disk_bytes: none, pids: none}\n", with(func(c *Config) {
			c.Defaults = api.Limits{CPUs: -1, MemoryBytes: -1, DiskBytes: -1, PIDs: -1}
		})},
		{"aliases", "defaults: {cpu_cores: 1, memory_mb: 512, disk_mb: 1024, max_processes: 20, timeout_seconds: 30, network_enabled: false, allowed_domains: [], blocked_domains: [a.example]}\n", with(func(c *Config) {
			c.Defaults = api.Limits{CPUs: 1, MemoryBytes: 512 << 20, DiskBytes: 1 << 30, PIDs: 20}
			c.Exec.TimeoutS = 30
			c.Network.Block = []string{"a.example"}
		})},
		{"network", "network:\n  mode: open\n  block: ['*.evil.test']\n  block_cidrs: [192.0.2.0/24]\n  allow_cidrs:\n  - 10.0.0.1\n", with(func(c *Config) {
			c.Network = api.NetPolicy{Mode: api.NetOpen, Block: []string{"*.evil.test"},
				BlockCIDRs: []string{"192.0.2.0/24"}, AllowCIDRs: []string{"10.0.0.1"}}
		})},
		{"what is allowed makes the mode", "network: {allow: [a.test]}\n", with(func(c *Config) {
			c.Network = api.NetPolicy{Mode: api.NetAllow, Allow: []string{"a.test"}}
		})},
		{"a tier", "network: {tier: elevated}\n", with(func(c *Config) { c.Network.Mode = api.NetOpen })},
		{"enabled", "defaults: {network_enabled: true, blocked_domains: [a.test]}\n", with(func(c *Config) {
			c.Network = api.NetPolicy{Mode: api.NetOpen, Block: []string{"a.test"}}
		})},
		{"enabled, with names", "network: {network_enabled: true, allowed_domains: [a.test]}\n", with(func(c *Config) {
			c.Network = api.NetPolicy{Mode: api.NetAllow, Allow: []string{"a.test"}}
		})},
		{"names alone", "defaults: {allowed_domains: [a.test]}\n", with(func(c *Config) {
			c.Network = api.NetPolicy{Mode: api.NetAllow, Allow: []string{"a.test"}}
		})},
		{"mode", "mode: selective\nhost_execution: allowed\n",
			with(func(c *Config) { c.Mode, c.Host = api.ExecModeSelective, api.HostAllowed })},
		{"host execution alone", "host_execution: allowed\n", with(func(c *Config) { c.Host = api.HostAllowed })},
		{"templates", "templates: {b: {image: x, steps: [make, {run: y, user: z}], limits: {memory_bytes: 1g}}, a: {pool_size: 2}}\n", with(func(c *Config) {
			c.Templates = []api.TemplateSpec{{Name: "a", PoolSize: 2},
				{Name: "b", Image: "x", Limits: api.Limits{MemoryBytes: 1 << 30},
					Steps: []api.TemplateStep{{Run: "make"}, {Run: "y", User: "z"}}}}
		})},
		{"quotas", "quotas: {sandboxes: 10, cpus: 8, memory_bytes: 16GiB}\n", with(func(c *Config) {
			c.Quotas = api.Quotas{Sandboxes: 10, CPUs: 8, MemoryBytes: 16 << 30}
		})},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Parse([]byte(tt.text), yamlread.Parse)
			if !reflect.DeepEqual(got, tt.want) || err != nil {
				t.Errorf("%+v, %v, want %+v", got, err, tt.want)
			}
		})
	}
}

func TestRefused(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"a template's field": {"templates: {a: {imagee: b}}\n", "unknown field"},
		"a template that copies": {"templates: {a: {image: b, steps: [{copy: {target: /x}}]}}\n",
			"takes the files along"},
		"a template that cannot": {"templates: {a: {image: b, pool_size: 99}}\n", "pool_size"},
		"no mode":                {"mode: some\n", "is not all or selective or off"},
		"a mode in vain":         {"image: a\nmode: off\n", "line 2: mode: off takes host_execution: allowed"},
		"nothing recorded": {"host_execution: allowed\naudit: {enabled: false}\n",
			"line 1: host_execution: allowed takes audit.enabled"},
		"unknown key":        {"image: a\nexec:\n  max_timeout: 60\n", "line 3: exec.max_timeout not found"},
		"meant":              {"exec: {max_timeout: 60}\n", "is exec.max_timeout_s meant?"},
		"in another section": {"pids: 3\n", "is defaults.pids meant?"},
		"unknown section":    {"image: a\nother: 1\n", "line 2: other not found"},
		"more than the maximum": {"exec:\n  max_timeout_s: 60\n  timeout_s: 61\n",
			"line 3: exec.timeout_s: 61 is more than"},
		"negative":           {"exec: {timeout_s: -1}\n", "not a duration"},
		"no number":          {"exec: {timeout_s: .nan}\n", "not a duration"},
		"no time":            {"exec: {timeout_s: 0}\n", "not possible"},
		"no yaml":            {"{", "line 1"},
		"a list":             {"exec: [1]\n", "line 1: expected names"},
		"a list for a value": {"exec: {timeout_s: [1]}\n", "expected one value"},
		"twice":              {"exec:\n  timeout_s: 1\n  timeout_s: 2\n", "line 3"},
		"twice, as its alias": {"defaults:\n  cpus: 1\n  cpu_cores: 2\n",
			"line 3: defaults.cpu_cores is set in line 2 already"},
		"too little memory": {"defaults:\n  memory_bytes: 1m\n",
			"line 2: defaults.memory_bytes: 1048576 is too small"},
		"zero":           {"defaults: {memory_bytes: 0}\n", "none is no limit"},
		"no size":        {"defaults: {memory_bytes: lots}\n", "not a size"},
		"too large":      {"defaults: {memory_mb: 99999999999999}\n", "out of range"},
		"no CPU":         {"defaults: {cpus: 0}\n", "0.01 to 4096"},
		"half a process": {"defaults: {pids: 1.5}\n", "1 to 4194304"},
		"disabled, with names": {"defaults:\n  network_enabled: false\n  allowed_domains: [a.example]\n",
			"line 2: network.mode: none, but names"},
		"a mode":                {"network: {mode: some}\n", "not none, allow, open or learn"},
		"a tier":                {"network: {tier: some}\n", "no tier"},
		"a mode and a tier":     {"network: {mode: open, tier: elevated}\n", "set in line 1 already"},
		"an alias and the name": {"network: {allow: [a.test], allowed_domains: [b.test]}\n", "set in line 1 already"},
		"a broad name": {"network:\n  mode: allow\n  allow: ['*.com']\n",
			"line 3: network.allow[0]: \"*.com\" allows every"},
		"a star without quotes":  {"network: {allow: [*.example.com]}\n", "put quotes around"},
		"a name for a list":      {"network: {allow: a.test}\n", "expected a list"},
		"a list of lists":        {"network: {allow: [[a.test]]}\n", "expected a name"},
		"two documents":          {"image: a\n---\nimage: b\n", "more than one document"},
		"an alias of yaml's own": {"exec: &x {timeout_s: *x}\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Parse([]byte(tt.text), yamlread.Parse)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%+v, %v; want %q", got, err, tt.want)
			}
		})
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	if got, err := Load(filepath.Join(dir, "none"), yamlread.Parse); err != nil || !reflect.DeepEqual(got, Default()) {
		t.Errorf("without a file: %+v, %v", got, err)
	}
	if _, err := Load(dir, yamlread.Parse); err == nil {
		t.Error("a folder was read")
	}
	path := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(path, []byte("a: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path, yamlread.Parse); !errors.Is(err, &api.Error{Code: api.InvalidArgument}) ||
		!strings.Contains(err.Error(), path) {
		t.Errorf("%v", err)
	}
}

// TestPrint: what is printed is read as the same.
func TestPrint(t *testing.T) {
	for _, c := range []Config{Default(), with(func(c *Config) {
		c.Image = "a: b #"
		c.Defaults = api.Limits{CPUs: -1, MemoryBytes: 100<<20 + 1, DiskBytes: -1, PIDs: -1}
		c.Quotas = api.Quotas{Sandboxes: 3, CPUs: 0.5, MemoryBytes: 1 << 30}
		c.Network = api.NetPolicy{Mode: api.NetLearn, Learn: api.LearnAllow, Allow: []string{"*.a.test", "b.test:1"},
			BlockCIDRs: []string{"::/0"}}
	})} {
		var plain, commented bytes.Buffer
		if err := errors.Join(Print(&plain, c, false), Print(&commented, c, true)); err != nil {
			t.Fatal(err)
		}
		if got, err := Parse(plain.Bytes(), yamlread.Parse); err != nil || !reflect.DeepEqual(got, c) {
			t.Errorf("%s\n%+v, %v", plain.String(), got, err)
		}
		if got, err := Parse(commented.Bytes(), yamlread.Parse); err != nil || !reflect.DeepEqual(got, Default()) {
			t.Errorf("%s\n%+v, %v", commented.String(), got, err)
		}
	}
}

// TestPolicy: a policy in a file of its own, as YAML or JSON.
func TestPolicy(t *testing.T) {
	want := api.NetPolicy{Mode: api.NetAllow, Allow: []string{"*.a.test"}, Block: []string{"b.a.test"}}
	for _, text := range []string{
		"mode: allow\nallow:\n- '*.a.test'\nblock: [b.a.test]\n",
		`{"mode": "allow", "allow": ["*.a.test"], "block": ["b.a.test"], "allow_cidrs": null}`,
		`{"network_enabled": true, "allowed_domains": ["*.a.test"], "blocked_domains": ["b.a.test"]}`,
	} {
		if got, err := ParsePolicy([]byte(text), yamlread.Parse); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"image: a\n":                                 "network.image not found",
		"network: {mode: open}\n":                    "network.network not found",
		`{"mode": "open", "asks": 1}`:                "network.asks not found",
		`{"allow": ["a.test"], "allow": ["b.test"]}`: "already",
	} {
		if got, err := ParsePolicy([]byte(text), yamlread.Parse); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v, want %s", text, got, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "image: a", "exec: {timeout_s: 3m}", "defaults: {memory_mb: 5, cpus: none}",
		"quotas: {cpus: 1e9}", "a: &a [*a]", "network: {tier: standard, allow: [a.b], block: [\"*\"]}",
		"defaults: {network_enabled: true}", "? [x]\n: y", "templates: {a: {image: b, steps: [c]}}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var c Config
		var err error
		cost.Input(t, data, func(data []byte) { c, err = Parse(data, yamlread.Parse) })
		if err != nil {
			return
		}
		var b bytes.Buffer
		if err := Print(&b, c, false); err != nil {
			t.Fatal(err)
		}
		if got, err := Parse(b.Bytes(), yamlread.Parse); err != nil || !reflect.DeepEqual(got, c) {
			t.Errorf("%q is %+v, printed\n%s\n%+v, %v", data, c, b.String(), got, err)
		}
	})
}
