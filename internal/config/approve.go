package config

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/hutch-sh/hutch/internal/yamltree"
	"github.com/hutch-sh/hutch/runtime/api"
)

// A configuration file may lie where a sandbox can write it after all: a dotfiles manager links to it, a folder is
// mounted that should not be. So what in it lets sandboxes, or who asks for them, do more than they could without it is
// in force only when its user has approved it, as it stands, at a terminal (hutch config approve). What was approved is
// kept in the state folder, which no sandbox is ever given.

// Loosening is a part of a configuration that has to be approved.
type Loosening struct {
	Key  string // of the file, such as host_execution
	What string // what it allows, in a few words
	// Value is what the file says, as JSON.
	Value string
	sum   string
	undo  func(c *Config, approved *approvals) // puts what is stricter into its place
}

// Loosenings are those of c.
func (c *Config) Loosenings() (list []Loosening) {
	add := func(key, what string, value any, undo func(c *Config, approved *approvals)) {
		text, err := json.Marshal(value)
		if err != nil {
			panic(fmt.Sprintf("config: %s cannot be written: %v", key, err)) // all of it came from a file
		}
		sum := sha256.Sum256(append([]byte(key+"\x00"), text...))
		list = append(list, Loosening{key, what, string(text), hex.EncodeToString(sum[:]), undo})
	}
	def := Default()
	if c.Host != def.Host {
		add("host_execution", "commands may run on the host", c.Host,
			func(c *Config, _ *approvals) { c.Host, c.Mode = def.Host, def.Mode })
	}
	if c.Mode != def.Mode {
		add("mode", "commands run on the host where they ask for nothing else", c.Mode,
			func(c *Config, _ *approvals) { c.Mode = def.Mode })
	}
	if reaches(c.Network) {
		add("network", "sandboxes that ask for nothing reach a network", c.Network,
			func(c *Config, _ *approvals) { c.Network = def.Network })
	}
	if len(c.Tokens) > 0 {
		// Without tokens everybody of the user's is served: a file that takes them all away is caught by what was
		// approved before.
		add("tokens", "who shows one of these tokens is served, and nobody else", c.Tokens,
			func(c *Config, a *approvals) { c.Tokens = a.Tokens })
	}
	if a, d := &c.Audit, &def.Audit; !a.Enabled || a.MaxBytes < d.MaxBytes || a.TotalBytes < d.TotalBytes ||
		a.KeepDays < d.KeepDays || a.Content != d.Content {
		add("audit", "less is recorded than else, or for a shorter time, or what was read and written itself", c.Audit,
			func(c *Config, _ *approvals) {
				// What must not be recorded is not, whoever has said so.
				a := def.Audit
				a.Redact = c.Audit.Redact
				c.Audit = a
			})
	}
	// Networks, walls, what runs when they are built or started: much of a pool or template can loosen, also by way of
	// what it begins with.
	for _, p := range c.Pools {
		add("pools."+p.Name, "its sandboxes wait for whoever asks", p, func(c *Config, _ *approvals) {
			c.Pools = slices.DeleteFunc(slices.Clone(c.Pools), func(o api.PoolSpec) bool { return o.Name == p.Name })
		})
	}
	for _, t := range c.Templates {
		add("templates."+t.Name, "whoever names it gets its sandboxes", t, func(c *Config, _ *approvals) {
			c.Templates = slices.DeleteFunc(slices.Clone(c.Templates),
				func(o api.TemplateSpec) bool { return o.Name == t.Name })
		})
	}
	return list
}

// reaches reports whether a policy lets anything out.
func reaches(n api.NetPolicy) bool { return n.Settled().Mode != api.NetNone && n.Settled().Mode != "" }

// approvals is what was approved: the digests of loosenings, and the tokens, which must not go without that.
type approvals struct {
	Sums   []string          `json:"approved"`
	Tokens map[string]string `json:"tokens,omitempty"`
}

func readApprovals(path string) (*approvals, error) {
	a := &approvals{}
	text, err := readOwn(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return a, nil
	case err != nil:
		return a, fmt.Errorf("%s, where approved parts of the configuration are: %w", path, err)
	}
	if err := json.Unmarshal(text, a); err != nil {
		return &approvals{}, fmt.Errorf("%s: %w", path, err)
	}
	return a, nil
}

// LoadApproved is Load without what was not approved by path's file, in the place of which is what holds without it;
// Held says what that is.
func LoadApproved(path, approved string, parser yamltree.Parser) (Config, error) {
	c, err := Load(path, parser)
	if err != nil {
		return c, err
	}
	a, err := readApprovals(approved)
	if err != nil {
		return c, api.Errorf(api.FailedPrecondition, "%w", err).WithOp("read configuration").
			WithHint("remove it, then: hutch config approve")
	}
	for _, l := range c.Loosenings() {
		if !slices.Contains(a.Sums, l.sum) {
			l.undo(&c, a)
			c.Held = append(c.Held, l.Key)
		}
	}
	if len(c.Tokens) == 0 && len(a.Tokens) > 0 {
		c.Tokens = a.Tokens
		c.Held = append(c.Held, "tokens")
	}
	return c, nil
}

// Unapproved are the loosenings of c that the file at approved has not, and whether c takes all tokens away.
func (c *Config) Unapproved(approved string) (list []Loosening, err error) {
	a, err := readApprovals(approved)
	for _, l := range c.Loosenings() {
		if !slices.Contains(a.Sums, l.sum) {
			list = append(list, l)
		}
	}
	if len(c.Tokens) == 0 && len(a.Tokens) > 0 {
		list = append(list, Loosening{Key: "tokens", What: "everybody of yours is served, without a token"})
	}
	return list, err
}

// Approve writes that all of c is approved, and what was before no more.
func (c *Config) Approve(approved string) error {
	a := approvals{Sums: []string{}, Tokens: c.Tokens}
	for _, l := range c.Loosenings() {
		a.Sums = append(a.Sums, l.sum)
	}
	text, err := json.MarshalIndent(a, "", "  ")
	if err != nil {
		return err
	}
	return replaceFile(approved, append(text, '\n'))
}

// HeldNote tells of keys that are not in force; "" for none.
func HeldNote(held []string) string {
	if len(held) == 0 {
		return ""
	}
	verb := "is"
	if len(held) > 1 {
		verb = "are"
	}
	return fmt.Sprintf("%s of the configuration %s not in force, which nobody has approved",
		strings.Join(held, ", "), verb)
}
