package main

import (
	"errors"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/runtime/api"
)

// The daemon's errors name fields of requests, which is what programs, templates and the configuration have. Who has
// typed -m 1 knows of no limits.memory_bytes: here fields become the flags that were typed.

// flagOfField is the flag for each field of a request, without what goes before in it: limits., the number of a mount.
var flagOfField = map[string]string{
	"memory_bytes": "memory", "swap_bytes": "memory-swap", "memory_high_bytes": "memory-high",
	"limits.cpus": "cpus", "cpu_weight": "cpu-weight", "limits.cpuset": "cpuset-cpus", "limits.pids": "pids-limit",
	"io_read_bps": "io-read", "io_write_bps": "io-write", "disk_bytes": "disk", "limits.inodes": "inodes",
	"shm_bytes": "shm-size", "timeout_s": "timeout", "cpu_time_s": "cpu-time", "output_bytes": "output-limit",
	"best_effort":    "best-effort",
	"limits.rlimits": "ulimit", "ttl_s": "ttl", "ttl_action": "ttl", "idle_s": "idle", "idle_action": "idle",
	"mounts": "volume", "workspace": "workspace", "writable_usr": "writable-usr", "seccomp_profile": "seccomp",
	"network.mode": "network", "network.tier": "network", "network.allow": "allow", "network.block": "block",
	"network.allow_cidrs": "allow-cidr", "network.block_cidrs": "block-cidr",
	"labels": "label", "cwd": "workdir", "hosts": "add-host", "cap_drop": "cap-drop", "read_only": "read-only",
	"stop_signal": "stop-signal",
	// These are words as well: they are fields only where an error says so.
	"name": "name", "hostname": "hostname", "user": "user", "env": "env", "workdir": "workdir", "platform": "platform",
	"pull":     "pull",
	"template": "template", "scope": "scope", "seccomp": "seccomp", "apparmor": "apparmor", "ids": "ids",
	"landlock": "landlock", "undo": "undo",
}

// fieldNames finds names of fields that are nothing else in a text, and what stands before one.
var fieldNames = regexp.MustCompile(`(^|[^\w.])((?:mounts|hosts)\[\d+\](?:\.\w+)?|cap_drop|read_only|workspace\.\w+|network\.\w+(?:\[\d+\])?|limits\.rlimits\.(\w+)|` +
	`(?:limits\.)?\w+_(?:bytes|bps|s|action|usr|profile|weight|effort)\b|limits\.(?:cpus|cpuset|pids|inodes)\b)`)

// inFlags is err in the words of the command line: fields become flags that cmd was given; in hints, those that it has.
func inFlags(cmd *cobra.Command, args []string, err error) error {
	if list, ok := err.(cli.Errors); ok { //nolint:errorlint // as PrintError takes it
		for i := range list {
			list[i] = inFlags(cmd, args, list[i])
		}
		return list
	}
	var known *api.Error
	if cmd == nil || !errors.As(err, &known) {
		return err
	}
	text, hint := fieldFlags(cmd.Flags(), args, known.Field, err.Error(), known.Hint)
	if text == err.Error() && hint == known.Hint {
		return err
	}
	told := *known
	told.Hint = hint
	return &inWords{text: text, known: &told, err: err}
}

// inWords is an error that is told otherwise.
type inWords struct {
	text  string
	known *api.Error // before err's, which has another hint
	err   error
}

func (e *inWords) Error() string { return e.text }

func (e *inWords) Unwrap() []error { return []error{e.known, e.err} }

// fieldFlags puts flags in the place of fields in an error's text and hint.
func fieldFlags(fs *pflag.FlagSet, args []string, field, text, hint string) (inText, inHint string) {
	replace := func(text string, mayUse func(*pflag.Flag) bool) string {
		text = fieldNames.ReplaceAllStringFunc(text, func(found string) string {
			m := fieldNames.FindStringSubmatch(found)
			if flag := flagOf(fs, m[2]); flag != nil && mayUse(flag) {
				found = m[1] + typedAs(flag, args)
				if m[3] != "" { // --ulimit nofile
					found += " " + m[3]
				}
			}
			return found
		})
		return doubled.ReplaceAllStringFunc(text, func(found string) string {
			if m := doubled.FindStringSubmatch(found); m[1] == m[2] {
				return m[1]
			}
			return found
		})
	}
	typed := func(f *pflag.Flag) bool { return f.Changed }
	text = replace(text, typed)
	if flag := flagOf(fs, field); flag != nil && flag.Changed { // a field that is a word as well
		text = strings.Replace(text, field+": ", typedAs(flag, args)+": ", 1)
		hint = noLimit.Replace(hint)
	}
	return text, replace(hint, func(*pflag.Flag) bool { return true })
}

// noLimit has flags' word for the numbers that fields have.
var noLimit = strings.NewReplacer(", 0 for the default, -1 for no limit", ", or none for no limit",
	"use 0 for the default, -1 for no limit", "use a size, or none for no limit",
	"or for no limit: none, -1 on the socket", "or none for no limit")

// doubled is a flag that a hint gives beside its field.
var doubled = regexp.MustCompile(`(--?[a-z-]+) \((--?[a-z-]+)\)`)

// flagOf is the command's flag for a field, nil where it has none.
func flagOf(fs *pflag.FlagSet, field string) *pflag.Flag {
	name, _, _ := strings.Cut(field, "[")
	for _, known := range []string{name, strings.TrimPrefix(name, "limits."),
		name[:max(0, strings.LastIndexByte(name, '.'))]} {
		flag := fs.Lookup(flagOfField[known])
		if flag != nil && known == "mounts" && !flag.Changed {
			for _, other := range []string{"mount", "tmpfs"} {
				if f := fs.Lookup(other); f != nil && (f.Changed || other == "mount") {
					flag = f
				}
			}
		}
		if flag != nil {
			return flag
		}
	}
	return nil
}

// typedAs is a flag as it stands on the command line, -m or --memory.
func typedAs(flag *pflag.Flag, args []string) string {
	for _, a := range args {
		if a == "--" {
			break
		}
		if flag.Shorthand != "" && strings.HasPrefix(a, "-"+flag.Shorthand) {
			return "-" + flag.Shorthand
		}
	}
	return "--" + flag.Name
}
