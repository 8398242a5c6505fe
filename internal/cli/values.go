package cli

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/hutch-sh/hutch/internal/units"
	"github.com/hutch-sh/hutch/runtime/api"
)

// ParseSize reads a size in bytes, as in 512m; 0 is none.
func ParseSize(s string) (int64, error) { return units.Size(s) }

// ParseTimeout reads seconds ("30", "0.5") or a Go duration ("1m30s"). The
// result is in seconds.
func ParseTimeout(s string) (float64, error) { return units.Seconds(s) }

// ParseBound reads a limit with parse, or "none", which is no limit. 0 is no limit that
// anything could run in, and not the absence of one.
func ParseBound[T int64 | float64](s string, parse func(string) (T, error)) (T, error) {
	if s == "none" || s == "unlimited" {
		return api.Unlimited, nil
	}
	v, err := parse(s)
	if err == nil && v == 0 {
		err = fmt.Errorf("%q leaves nothing; none is no limit", s)
	}
	return v, err
}

// ParseCount reads a whole number from 1 on.
func ParseCount(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%q is not a number from 1 on", s)
	}
	return n, nil
}

// ParseLife reads TIME[:ACTION], what is to be done with a sandbox when a time is over.
func ParseLife(s string) (after float64, action api.LifeAction, err error) {
	text, name, given := strings.Cut(s, ":")
	if after, err = ParseTimeout(text); err != nil {
		return 0, "", err
	}
	action = api.LifeAction(name)
	switch {
	case after == 0:
		return 0, "", fmt.Errorf("%q is no time at all", s)
	case given && !slices.Contains(api.LifeActions, action):
		return 0, "", fmt.Errorf("%q: %q is not pause, stop, kill or remove", s, name)
	}
	return after, action, nil
}

// ParseCPUs reads a number of CPUs, e.g. "1.5".
func ParseCPUs(s string) (float64, error) {
	v, err := units.Float(s)
	if err != nil || v <= 0 {
		return 0, fmt.Errorf("%q is not a number of CPUs (examples: 0.5, 2)", s)
	}
	return v, nil
}

// ParseUlimit reads the value of --ulimit as docker has it, NAME=SOFT[:HARD] in the
// kernel's units, and adds it to r; -1 and "unlimited" are no limit.
func ParseUlimit(s string, r *api.Rlimits) error {
	name, value, ok := strings.Cut(s, "=")
	place := r.ByName(name)
	switch {
	case !ok:
		return fmt.Errorf("%q is not NAME=SOFT[:HARD]", s)
	case name == "cpu":
		return fmt.Errorf("%q: use --cpu-time, which counts all processes of a command where it can", s)
	case place == nil:
		return fmt.Errorf("%q is no resource (%s)", name, strings.Join(api.RlimitNames, ", "))
	}
	soft, hard, both := strings.Cut(value, ":")
	l := &api.Rlimit{}
	var err error
	if l.Soft, err = parseLimit(soft); err == nil && both {
		var v int64
		v, err = parseLimit(hard)
		l.Hard = &v
	}
	if err != nil {
		return fmt.Errorf("%q is not NAME=SOFT[:HARD] with whole numbers", s)
	}
	*place = l
	return nil
}

func parseLimit(s string) (int64, error) {
	if s == "unlimited" {
		return api.Unlimited, nil
	}
	return strconv.ParseInt(s, 10, 64)
}

// ParseVolume reads the value of --volume, SRC:DST[:MODE]. SRC may hold colons,
// since DST is absolute; it comes back as it was written. Without a slash it is the name of a volume.
func ParseVolume(s string) (api.Mount, error) {
	rest, mode := cutMode(s)
	i := strings.LastIndex(rest, ":/")
	if i < 0 {
		if strings.HasPrefix(rest, "/") && !strings.Contains(rest, ":") {
			return api.Mount{}, fmt.Errorf("%q is not SRC:DST[:ro|rw|overlay]; every folder inside is the sandbox's own: leave it out", s)
		}
		return api.Mount{}, fmt.Errorf("%q is not SRC:DST[:ro|rw|overlay] with an absolute DST", s)
	}
	m := api.Mount{Source: rest[:i], Target: rest[i+1:], Mode: mode}
	if strings.Contains(m.Target, ":") {
		option := m.Target[strings.LastIndex(m.Target, ":")+1:]
		return api.Mount{}, fmt.Errorf("unknown mode %q in %q (ro, rw or overlay)", option, s)
	}
	if m.Target = path.Clean(m.Target); m.Target == "/" {
		return api.Mount{}, fmt.Errorf("%q: the root of the sandbox cannot be mounted over", s)
	}
	if m.Source == "" {
		return api.Mount{}, fmt.Errorf("%q names no folder of the host and no volume", s)
	}
	if !strings.ContainsRune(m.Source, '/') && m.Source != "." && m.Source != ".." {
		m.Source, m.Volume = "", m.Source
		if err := (api.VolumeParams{Name: m.Volume}).Validate(); err != nil {
			return api.Mount{}, fmt.Errorf("%q is neither the name of a volume nor a folder, which starts with / or ./",
				m.Volume)
		}
	}
	return m, nil
}

// ParseWorkspace reads the value of --workspace, PATH[:MODE]. PATH comes back as
// it was written.
func ParseWorkspace(s string) (api.Workspace, error) {
	p, mode := cutMode(s)
	if p == "" {
		return api.Workspace{}, fmt.Errorf("%q names no folder", s)
	}
	return api.Workspace{Path: p, Mode: mode}, nil
}

// cutMode takes a mode off the end of s; read-write is docker's default. What docker and podman have beside it says
// nothing here: no label of SELinux has to be changed, and nothing is cached.
func cutMode(s string) (string, api.MountMode) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return s, api.ModeRW
	}
	mode := api.ModeRW
	for word := range strings.SplitSeq(s[i+1:], ",") {
		switch m := api.MountMode(word); m {
		case api.ModeRO, api.ModeRW, api.ModeOverlay:
			mode = m
		case "z", "Z", "cached", "delegated", "consistent":
		default:
			return s, api.ModeRW
		}
	}
	return s[:i], mode
}

// ParseLabels reads the values of --label, NAME[=VALUE].
func ParseLabels(values []string) (map[string]string, error) {
	if len(values) == 0 {
		return nil, nil
	}
	labels := make(map[string]string, len(values))
	for _, v := range values {
		name, value, _ := strings.Cut(v, "=")
		if name == "" {
			return nil, fmt.Errorf("label %q has no name", v)
		}
		labels[name] = value
	}
	return labels, nil
}

// SandboxPath checks a path inside the sandbox, as --workdir takes it.
func SandboxPath(flag, value string) error {
	if value != "" && !filepath.IsAbs(value) {
		return fmt.Errorf("--%s %q is not absolute", flag, value)
	}
	return nil
}

// SplitCommand splits the arguments of a verb whose flags have been parsed.
// dash is where pflag met "--", negative when it did not. With a "--" before
// everything the name was left out, and it is "". Otherwise the first argument
// is the name, the rest the command, verbatim except for one leading "--".
func SplitCommand(args []string, dash int) (name string, command []string) {
	if len(args) == 0 || dash == 0 {
		return "", args
	}
	name, command = args[0], args[1:]
	if len(command) > 0 && command[0] == "--" {
		command = command[1:]
	}
	return name, command
}
