package config

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hutch-sh/hutch/internal/units"
	"github.com/hutch-sh/hutch/internal/yamltree"
	"github.com/hutch-sh/hutch/runtime/api"
)

// key is one line of the file. To add one, add it to keys, and its default to Default.
type key struct {
	path string // "section.name"
	doc  string
	set  func(*Config, *yamltree.Node) error
	show func(*Config) string // as Print writes it

	alias string // it means this other key
	list  bool   // its value is a list, or a mapping
}

// sets is the path of what the key is for.
func (k *key) sets() string {
	if k.alias != "" {
		return k.alias
	}
	return k.path
}

// sections in the order in which Print writes them.
var sections = []struct{ name, doc string }{
	{"exec", "Commands."},
	{"defaults", "Limits of sandboxes that ask for none. What this machine cannot enforce is reported by\n# `hutch inspect`, and does not keep a sandbox from running. none is no limit.\n# The names of other products are understood, too: cpu_cores, memory_mb, disk_mb,\n# max_processes, timeout_seconds."},
	{"network", "What sandboxes that ask for nothing may reach. The names of other products are understood,\n# too, also in defaults: network_enabled, allowed_domains, blocked_domains; and tier:\n# restricted, standard or elevated."},
	{"audit", "The record of what was done with each sandbox: `hutch audit`."},
	{"quotas", "What all sandboxes of one user may have together; none is no quota."},
}

var keys = []key{
	{path: "image", doc: "image of a command line that names none", set: func(c *Config, v *yamltree.Node) error {
		if c.Image = v.Value; v.Value == "" {
			return errors.New("no image")
		}
		return nil
	}, show: func(c *Config) string { return strconv.Quote(c.Image) }},
	{path: "runtimes", doc: `names for images, such as {tools: tools@2, "tools@*": "registry.example.com/tools:*"}; python, node, bash, go, rust and ruby are built in`,
		list: true, set: setRuntimes, show: showRuntimes},
	{path: "ready", doc: "sandboxes that are launched ahead and wait for whoever asks next, a few MB each, and as many more once one with a network, or with a guarded workspace, was asked for; none launches each when it is asked for", set: func(c *Config, v *yamltree.Node) error {
		n, err := wholeOr(v, 0)
		if n > 32 {
			err = fmt.Errorf("%d are more than 32", n)
		}
		c.Ready = int(n)
		return err
	}, show: func(c *Config) string { return orNone(int64(c.Ready), 0) }},
	{path: "pools", doc: `pools of ready sandboxes, such as {py: {size: 4, image: python@3.12, network: {allow: [pypi.org]}}}, with what sandbox.create takes`,
		list: true, set: setPools, show: showPools},
	{path: "templates", doc: `templates, such as {claude: {image: registry.example.com/claude:1}}, with what template.create takes; one that hutch ships (hutch template ls) need say only what is different`,
		list: true, set: setTemplates, show: showTemplates},
	{path: "tokens", doc: "tokens without which no client is served, such as {ci: sha256:9f86...}, by the names that audit logs have; hutch config token NAME makes them", list: true, set: setTokens, show: showTokens},
	choice("mode", "where commands run: all of them in sandboxes, selective: what a scan finds risky, the rest on the host; off: on the host",
		[]string{"all", "selective", "off"}, func(c *Config) *string { return (*string)(&c.Mode) }),
	choice("host_execution",
		"whether commands may run on the host at all, by mode or by --mode: refused, or allowed and recorded (hutch audit host)",
		[]string{"refused", "allowed"}, func(c *Config) *string { return (*string)(&c.Host) }),
	seconds("exec.timeout_s", "of a command that names no timeout",
		func(c *Config) *float64 { return &c.Exec.TimeoutS }),
	seconds("exec.max_timeout_s", "the most that a command may ask for",
		func(c *Config) *float64 { return &c.Exec.MaxTimeoutS }),

	cores("defaults.cpus", "CPU time per wall time", func(c *Config) *float64 { return &c.Defaults.CPUs }),
	size("defaults.memory_bytes", "memory, with what is in tmpfs",
		func(c *Config) *int64 { return &c.Defaults.MemoryBytes }),
	size("defaults.disk_bytes", "what a sandbox may write", func(c *Config) *int64 { return &c.Defaults.DiskBytes }),
	count("defaults.pids", "processes and threads", func(c *Config) *int64 { return &c.Defaults.PIDs }),

	{path: "quotas.sandboxes", doc: "how many at once", set: func(c *Config, v *yamltree.Node) error {
		n, err := wholeOr(v, 0)
		if n > 1<<20 {
			err = fmt.Errorf("%d is more than any machine runs", n)
		}
		c.Quotas.Sandboxes = int(n)
		return err
	}, show: func(c *Config) string { return orNone(int64(c.Quotas.Sandboxes), 0) }},
	{path: "quotas.cpus", doc: "sum of their CPUs", set: func(c *Config, v *yamltree.Node) (err error) {
		c.Quotas.CPUs, err = coresOr(v, 0)
		return err
	}, show: func(c *Config) string { return coresText(c.Quotas.CPUs, 0) }},
	{path: "quotas.memory_bytes", doc: "sum of their memory", set: func(c *Config, v *yamltree.Node) (err error) {
		c.Quotas.MemoryBytes, err = sizeOr(v, 1, 0)
		return err
	}, show: func(c *Config) string { return sizeText(c.Quotas.MemoryBytes, 0) }},

	{path: "network.mode", doc: "none, allow, open or learn; allow when something is allowed",
		set: func(c *Config, v *yamltree.Node) error {
			c.Network.Mode = api.NetMode(v.Value)
			if !slices.Contains(api.NetModes, c.Network.Mode) {
				return fmt.Errorf("%q is not none, allow, open or learn", v.Value)
			}
			return nil
		}, show: func(c *Config) string { return string(c.Network.Mode) }},
	list("network.allow", `names to reach, such as ["example.com", "*.example.com", "tcp://db.example.com:5432"]`,
		func(c *Config) *[]string { return &c.Network.Allow }),
	list("network.block", "names never to reach", func(c *Config) *[]string { return &c.Network.Block }),
	list("network.allow_cidrs", "ranges of addresses to reach, such as [10.1.0.0/16]",
		func(c *Config) *[]string { return &c.Network.AllowCIDRs }),
	list("network.block_cidrs", "ranges never to reach", func(c *Config) *[]string { return &c.Network.BlockCIDRs }),
	{path: "network.learn", doc: "of mode learn: deny what is not allowed, or allow it",
		set: func(c *Config, v *yamltree.Node) error {
			c.Network.Learn = api.NetLearning(v.Value)
			return nil
		}, show: func(c *Config) string { return strconv.Quote(string(c.Network.Learn)) }},
	truth("network.ask", "of mode allow: somebody is asked about what is not allowed, and waited for",
		func(c *Config) *bool { return &c.Network.Ask }),
	{path: "network.ask_s", doc: "how long, in seconds; 0 is 60", set: func(c *Config, v *yamltree.Node) (err error) {
		c.Network.AskS, err = strconv.ParseFloat(v.Value, 64)
		return err
	}, show: func(c *Config) string { return strconv.FormatFloat(c.Network.AskS, 'g', -1, 64) }},

	truth("audit.enabled", "commands, files, policies and refused connections are recorded",
		func(c *Config) *bool { return &c.Audit.Enabled }),
	choice("audit.content", "what is read and written is recorded by its digest, or in full (64k of each)",
		[]string{"digest", "full"}, func(c *Config) *string { return &c.Audit.Content }),
	choice("audit.connections", "those that were denied, or all", []string{"denied", "all"},
		func(c *Config) *string { return &c.Audit.Connections }),
	redactions("audit.redact",
		`regular expressions of what must not be recorded, such as ["cust-[0-9]+"], beside common forms of passwords and tokens`, func(c *Config) *[]string { return &c.Audit.Redact }),
	size("audit.max_bytes", "what is kept of one sandbox; the oldest records go",
		func(c *Config) *int64 { return &c.Audit.MaxBytes }),
	size("audit.total_bytes", "what is kept of all sandboxes that are removed",
		func(c *Config) *int64 { return &c.Audit.TotalBytes }),
	count("audit.keep_days", "how long it is kept after a sandbox is removed",
		func(c *Config) *int64 { return &c.Audit.KeepDays }),
	truth("audit.sync", "records survive a loss of power, and cost the time of the disk",
		func(c *Config) *bool { return &c.Audit.Sync }),

	// The names that users of other products know.
	alias(cores("defaults.cpu_cores", "", func(c *Config) *float64 { return &c.Defaults.CPUs }), "defaults.cpus"),
	alias(megabytes("defaults.memory_mb", func(c *Config) *int64 { return &c.Defaults.MemoryBytes }),
		"defaults.memory_bytes"),
	alias(megabytes("defaults.disk_mb", func(c *Config) *int64 { return &c.Defaults.DiskBytes }),
		"defaults.disk_bytes"),
	alias(count("defaults.max_processes", "", func(c *Config) *int64 { return &c.Defaults.PIDs }), "defaults.pids"),
	alias(seconds("defaults.timeout_seconds", "", func(c *Config) *float64 { return &c.Exec.TimeoutS }),
		"exec.timeout_s"),
	enabled("defaults.network_enabled"), enabled("network.network_enabled"),
	alias(list("defaults.allowed_domains", "", func(c *Config) *[]string { return &c.Network.Allow }), "network.allow"),
	alias(list("network.allowed_domains", "", func(c *Config) *[]string { return &c.Network.Allow }), "network.allow"),
	alias(list("defaults.blocked_domains", "", func(c *Config) *[]string { return &c.Network.Block }), "network.block"),
	alias(list("network.blocked_domains", "", func(c *Config) *[]string { return &c.Network.Block }), "network.block"),
	{path: "network.tier", alias: "network.mode", set: func(c *Config, v *yamltree.Node) error {
		c.Network.Tier = api.NetTier(v.Value)
		if err := c.Network.Validate("network"); c.Network.Effective() == "" {
			return err
		}
		c.Network = c.Network.Settled()
		return nil
	}},
}

// enabled is a switch that leaves the mode to what is allowed: settleNetwork.
func enabled(path string) key {
	return key{path: path, alias: "network.mode", set: func(c *Config, v *yamltree.Node) error {
		on, err := v.Truth()
		if err != nil && v.Tag != yamltree.NullTag {
			return err
		}
		if c.Network.Mode = ""; !on {
			c.Network.Mode = api.NetNone
		}
		return nil
	}}
}

func find(path string) *key {
	for i := range keys {
		if keys[i].path == path {
			return &keys[i]
		}
	}
	return nil
}

func isSection(name string) bool {
	for _, s := range sections {
		if s.name == name {
			return true
		}
	}
	return false
}

// suggestion names a key that a misspelt one may be meant for.
func suggestion(path string) string {
	for i := range keys {
		k := &keys[i]
		_, name, _ := strings.Cut("."+k.path, ".")
		if strings.HasPrefix(k.path, path) || strings.HasSuffix(k.path, "."+path) || strings.HasPrefix(path, name) {
			return "; is " + k.path + " meant?"
		}
	}
	return ""
}

func alias(k key, of string) key {
	k.alias = of
	return k
}

func seconds(path, doc string, place func(*Config) *float64) key {
	return key{path: path, doc: doc + "; seconds, or as in 3m", set: func(c *Config, v *yamltree.Node) (err error) {
		s, err := units.Seconds(v.Value)
		if err == nil && (s <= 0 || s > api.MaxSeconds) {
			err = fmt.Errorf("%s is not possible; use up to %d seconds", v.Value, api.MaxSeconds)
		}
		*place(c) = s
		return err
	}, show: func(c *Config) string { return strconv.FormatFloat(*place(c), 'g', -1, 64) }}
}

func list(path, doc string, place func(*Config) *[]string) key {
	return key{path: path, doc: doc, list: true, set: func(c *Config, v *yamltree.Node) error {
		if v.Kind != yamltree.Sequence && v.Tag != yamltree.NullTag {
			return errors.New("expected a list")
		}
		*place(c) = nil
		for _, n := range v.Content {
			if n.Kind != yamltree.Scalar || n.Tag == yamltree.NullTag {
				return fmt.Errorf("line %d: expected a name or an address", n.Line)
			}
			*place(c) = append(*place(c), n.Value)
		}
		return nil
	}, show: func(c *Config) string {
		quoted := make([]string, len(*place(c)))
		for i, s := range *place(c) {
			quoted[i] = strconv.Quote(s)
		}
		return "[" + strings.Join(quoted, ", ") + "]"
	}}
}

func truth(path, doc string, place func(*Config) *bool) key {
	return key{path: path, doc: doc, set: func(c *Config, v *yamltree.Node) (err error) {
		if v.Tag == yamltree.NullTag {
			return nil // it is commented out
		}
		*place(c), err = v.Truth()
		return err
	}, show: func(c *Config) string { return strconv.FormatBool(*place(c)) }}
}

func choice(path, doc string, values []string, place func(*Config) *string) key {
	return key{path: path, doc: doc, set: func(c *Config, v *yamltree.Node) error {
		if !slices.Contains(values, v.Value) {
			return fmt.Errorf("%q is not %s", v.Value, strings.Join(values, " or "))
		}
		*place(c) = v.Value
		return nil
	}, show: func(c *Config) string { return *place(c) }}
}

// redactions is a list of regular expressions.
func redactions(path, doc string, place func(*Config) *[]string) key {
	k := list(path, doc, place)
	read := k.set
	k.set = func(c *Config, v *yamltree.Node) error {
		if err := read(c, v); err != nil {
			return err
		}
		for _, p := range *place(c) {
			if _, err := regexp.Compile(p); err != nil {
				return err
			}
		}
		return nil
	}
	return k
}

func cores(path, doc string, place func(*Config) *float64) key {
	return key{path: path, doc: doc, set: func(c *Config, v *yamltree.Node) (err error) {
		*place(c), err = coresOr(v, api.Unlimited)
		return err
	}, show: func(c *Config) string { return coresText(*place(c), api.Unlimited) }}
}

func size(path, doc string, place func(*Config) *int64) key {
	return key{path: path, doc: doc, set: func(c *Config, v *yamltree.Node) (err error) {
		*place(c), err = sizeOr(v, 1, api.Unlimited)
		return err
	}, show: func(c *Config) string { return sizeText(*place(c), api.Unlimited) }}
}

func megabytes(path string, place func(*Config) *int64) key {
	return key{path: path, set: func(c *Config, v *yamltree.Node) (err error) {
		*place(c), err = sizeOr(v, 1<<20, api.Unlimited)
		return err
	}}
}

func count(path, doc string, place func(*Config) *int64) key {
	return key{path: path, doc: doc, set: func(c *Config, v *yamltree.Node) (err error) {
		*place(c), err = wholeOr(v, api.Unlimited)
		return err
	}, show: func(c *Config) string { return orNone(*place(c), api.Unlimited) }}
}

// none is how the file says that there is no limit.
const none = "none"

func coresOr(v *yamltree.Node, unlimited float64) (float64, error) {
	if v.Value == none {
		return unlimited, nil
	}
	n, err := units.Float(v.Value)
	if err != nil || n < 0.01 || n > api.MaxCPUs {
		return 0, fmt.Errorf("%q is not 0.01 to %d CPUs, nor %s", v.Value, api.MaxCPUs, none)
	}
	return n, nil
}

// sizeOr reads a size; a plain number counts in unit bytes.
func sizeOr(v *yamltree.Node, unit, unlimited int64) (int64, error) {
	if v.Value == none {
		return unlimited, nil
	}
	n, err := units.Size(v.Value)
	if _, plain := units.Float(v.Value); plain == nil && err == nil {
		if n > (1<<62)/unit {
			err = fmt.Errorf("size %q is out of range", v.Value)
		}
		n *= unit
	}
	if err == nil && n == 0 {
		err = fmt.Errorf("0 is no limit that anything can run in; %s is no limit", none)
	}
	return n, err
}

func wholeOr(v *yamltree.Node, unlimited int64) (int64, error) {
	if v.Value == none {
		return unlimited, nil
	}
	n, err := strconv.ParseInt(v.Value, 10, 64)
	if err != nil || n < 1 || n > api.MaxPIDs {
		return 0, fmt.Errorf("%q is not 1 to %d, nor %s", v.Value, api.MaxPIDs, none)
	}
	return n, nil
}

func orNone(n, unlimited int64) string {
	if n == unlimited {
		return none
	}
	return strconv.FormatInt(n, 10)
}

func coresText(n, unlimited float64) string {
	if n == unlimited {
		return none
	}
	return strconv.FormatFloat(n, 'g', -1, 64)
}

// sizeText is n as a person writes it, when that is exact.
func sizeText(n, unlimited int64) string {
	if n == unlimited {
		return none
	}
	for _, u := range []struct {
		shift int
		name  string
	}{{30, "g"}, {20, "m"}, {10, "k"}} {
		if n>>u.shift<<u.shift == n {
			return strconv.FormatInt(n>>u.shift, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}
