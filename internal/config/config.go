// Package config reads the configuration file: what a user sets once for all sandboxes. The
// command line and the monitor share it; hutchd, which may not be able to open the file, is
// told by the monitor. keys.go has every key with its meaning and default.
package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"strings"
	"syscall"

	"github.com/hutch-sh/hutch/internal/yamltree"
	"github.com/hutch-sh/hutch/runtime/api"
)

// HostImage is the image that needs no registry: the host's own programs.
const HostImage = "host"

// The defaults of Exec, in seconds.
const (
	DefaultTimeoutS = 180
	DefaultMaxS     = 1800
)

// Config is the file, with a default for whatever it does not say.
type Config struct {
	Image    string
	Runtimes Runtimes // names beside the built-in ones
	// Tokens are SHA-256 digests of the tokens that clients must show, in hexadecimal digits, by the names of the
	// clients.
	Tokens   map[string]string
	Exec     api.ExecBounds
	Defaults api.Limits // of sandboxes that ask for none; Unlimited is none
	Quotas   api.Quotas
	Network  api.NetPolicy // of sandboxes that ask for none; its Mode is set
	Audit    api.AuditSettings
	Mode     api.ExecMode      // where commands run whose caller names none
	Host     api.HostExecution // whether any may run on the host
	Ready    int               // sandboxes launched ahead
	Pools    []api.PoolSpec    // by name
	// Templates are those that nobody need make, and what is different of those that hutch ships; by name.
	Templates []api.TemplateSpec

	// Held are keys that are not in force, because nobody has approved them: LoadApproved.
	Held []string

	sum string // of the file's text, where there was a file
}

// Default is what holds without a file.
func Default() Config {
	return Config{
		Image: HostImage,
		Exec:  api.ExecBounds{TimeoutS: DefaultTimeoutS, MaxTimeoutS: DefaultMaxS},
		Defaults: api.Limits{
			CPUs: 2, MemoryBytes: 4 << 30, DiskBytes: 10 << 30, PIDs: 1024,
		},
		Network: api.NetPolicy{Mode: api.NetNone},
		Ready:   2,
		Mode:    api.ExecModeAll, Host: api.HostRefused,
		Audit: api.AuditSettings{
			Enabled: true, Content: "digest", Connections: "denied", MaxBytes: 64 << 20, TotalBytes: 1 << 30,
			KeepDays: 30,
		},
	}
}

// Load reads the file at path; one that does not exist is all defaults.
func Load(path string, parser yamltree.Parser) (Config, error) {
	data, err := readAlone(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Default(), nil
	case err != nil:
		return Config{}, api.Errorf(api.FailedPrecondition, "%w", err).WithOp("read configuration")
	}
	c, err := Parse(data, parser)
	if err != nil {
		return Config{}, api.Errorf(api.InvalidArgument, "%s: %w", path, err).WithOp("read configuration").
			WithHint("`hutch config defaults` shows all that it may hold, such as exec.timeout_s and exec.max_timeout_s")
	}
	c.sum = sumOf(data)
	return c, nil
}

// readAlone reads a file of the user's that has one name: by another one, in a folder that a sandbox may write, it
// could be changed, and nobody can tell where that is.
func readAlone(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if ok && st.Mode().IsRegular() && sys.Nlink > 1 && int(sys.Uid) == os.Geteuid() {
		return nil, fmt.Errorf("%s has %d names (hard links): a sandbox that may write to one of them could change it; make it a file of its own: cp %[1]s %[1]s.new && mv %[1]s.new %[1]s", path, sys.Nlink)
	}
	return io.ReadAll(f)
}

// Parse reads the text of a file. Whatever is in it must be understood: a misspelt limit
// must not pass for one.
func Parse(data []byte, parser yamltree.Parser) (Config, error) { return parse(data, "", parser) }

// ParsePolicy reads a network policy: what the section network of a configuration file
// holds, as a file of its own. JSON is YAML.
func ParsePolicy(data []byte, parser yamltree.Parser) (api.NetPolicy, error) {
	c, err := parse(data, "network.", parser)
	return c.Network, err
}

func parse(data []byte, prefix string, parser yamltree.Parser) (Config, error) {
	c, given := Default(), map[string]int{}
	root, err := parser(data)
	switch {
	case errors.Is(err, io.EOF):
		return c, nil
	case err != nil && (strings.Contains(err.Error(), "anchor") ||
		strings.Contains(err.Error(), "expected alphabetic")):
		return c, fmt.Errorf("%w: put quotes around a name that begins with *", err)
	case err != nil:
		return c, err
	}
	if root.Tag != yamltree.NullTag {
		if err := c.read(root, prefix, given); err != nil {
			return c, err
		}
	}
	return c, c.settle(given)
}

// read takes a mapping; prefix is "" or "section.".
func (c *Config) read(node *yamltree.Node, prefix string, given map[string]int) error {
	if node.Kind != yamltree.Mapping {
		return fmt.Errorf("line %d: expected names with values", node.Line)
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		name, value := node.Content[i], node.Content[i+1]
		path := prefix + name.Value
		if prefix == "" && isSection(name.Value) {
			if value.Tag == yamltree.NullTag {
				continue // all of it is commented out
			}
			if err := c.read(value, path+".", given); err != nil {
				return err
			}
			continue
		}
		k := find(path)
		if k == nil {
			return fmt.Errorf("line %d: %s not found in what this build knows%s", name.Line, path, suggestion(path))
		}
		if line, twice := given[k.sets()]; twice {
			return fmt.Errorf("line %d: %s is set in line %d already", name.Line, path, line)
		}
		given[k.sets()] = name.Line
		if value.Kind != yamltree.Scalar && !k.list {
			return fmt.Errorf("line %d: %s: expected one value", value.Line, path)
		}
		if err := k.set(c, value); err != nil {
			return fmt.Errorf("line %d: %s: %w", value.Line, path, err)
		}
	}
	return nil
}

// settle makes defaults follow what was given, and refuses what contradicts itself.
func (c *Config) settle(given map[string]int) error {
	e := &c.Exec
	_, hasTimeout := given["exec.timeout_s"]
	_, hasMost := given["exec.max_timeout_s"]
	switch {
	case hasTimeout && !hasMost:
		e.MaxTimeoutS = math.Max(e.MaxTimeoutS, e.TimeoutS)
	case hasMost && !hasTimeout:
		e.TimeoutS = math.Min(e.TimeoutS, e.MaxTimeoutS)
	}
	if e.TimeoutS > e.MaxTimeoutS {
		return fmt.Errorf("line %d: exec.timeout_s: %g is more than exec.max_timeout_s, %g", given["exec.timeout_s"],
			e.TimeoutS, e.MaxTimeoutS)
	}
	if err := c.Defaults.Validate("defaults"); err != nil {
		var e *api.Error
		if errors.As(err, &e) {
			return fmt.Errorf("line %d: %s (%s)", given[e.Field], e.Msg, e.Hint)
		}
		return err
	}
	if err := c.settleMode(given); err != nil {
		return err
	}
	return c.settleNetwork(given)
}

// settleMode refuses a mode that the other keys do not let come about, before a command meets it.
func (c *Config) settleMode(given map[string]int) error {
	switch {
	case c.Mode != api.ExecModeAll && c.Host != api.HostAllowed:
		return fmt.Errorf("line %d: mode: %s takes host_execution: allowed, which lets commands run outside of any sandbox", given["mode"], c.Mode)
	case c.Host == api.HostAllowed && !c.Audit.Enabled:
		return fmt.Errorf("line %d: host_execution: allowed takes audit.enabled: true: what runs on the host is recorded", given["host_execution"])
	}
	return nil
}

// settleNetwork finds the mode that goes with what was given, which other products leave
// to it, and refuses what is no policy.
func (c *Config) settleNetwork(given map[string]int) error {
	n := &c.Network
	_, hasMode := given["network.mode"]
	switch enabled := hasMode && n.Mode == ""; {
	case (enabled || !hasMode) && len(n.Allow)+len(n.AllowCIDRs) > 0:
		n.Mode = api.NetAllow
	case enabled:
		n.Mode = api.NetOpen
	}
	err := n.Validate("network")
	var e *api.Error
	if errors.As(err, &e) {
		field, _, _ := strings.Cut(e.Field, "[")
		return fmt.Errorf("line %d: %s (%s)", given[field], e.Msg, e.Hint)
	}
	return err
}
