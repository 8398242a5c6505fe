package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/hutch-sh/hutch/internal/yamltree"
	"github.com/hutch-sh/hutch/runtime/api"
)

// Runtimes are short names for images, NAME or NAME@VERSION, and what they stand for: a
// reference, or another of these names. A * in a name matches any version, and stands for
// it in the reference; a name without one comes first. An @ that is not followed by a
// digest is in no reference, so the names with a version mean nothing else.
type Runtimes map[string]string

// builtin are the names that hold unless the file says otherwise.
var builtin = Runtimes{
	"python":   "python@3.12",
	"python@*": "docker.io/library/python:*-slim",
	"node":     "node@20",
	"node@*":   "docker.io/library/node:*-slim",
	"bash":     "bash@5",
	"bash@*":   "docker.io/library/bash:*",
	"go":       "go@1",
	"go@*":     "docker.io/library/golang:*",
	"rust":     "rust@1",
	"rust@*":   "docker.io/library/rust:*-slim",
	"ruby":     "ruby@3",
	"ruby@*":   "docker.io/library/ruby:*-slim",
}

// maxHops bounds names that stand for names.
const maxHops = 8

// Resolve gives the reference that a name stands for; what is no such name stands for
// itself. r may be nil.
func (r Runtimes) Resolve(name string) (string, error) {
	at := name
	for range maxHops {
		next, ok := r.look(at)
		if !ok {
			return at, nil
		}
		at = next
	}
	return "", api.Errorf(api.FailedPrecondition, "the names of images go in circles at %q", name).WithField("image").
		WithHint("correct the section runtimes of the configuration file")
}

// Tool gives the program and the version that a name asks for when nobody has configured
// an image for it: "python", "3.12". ok is false for other names.
func (r Runtimes) Tool(name string) (tool, version string, ok bool) {
	at := name
	for range maxHops {
		next, found := r.look(at)
		if !found {
			return "", "", false
		}
		tool, version, ok = strings.Cut(at, "@")
		if pattern, known := builtin[tool+"@*"]; ok && known && next == strings.Replace(pattern, "*", version, 1) {
			return tool, version, true
		}
		at = next
	}
	return "", "", false
}

func (r Runtimes) look(name string) (string, bool) {
	for _, table := range []Runtimes{r, builtin} {
		if to, ok := table[name]; ok {
			return to, true
		}
		base, version, ok := strings.Cut(name, "@")
		if !ok || !isVersion(version) {
			continue
		}
		if to, ok := table[base+"@*"]; ok {
			return strings.Replace(to, "*", version, 1), true
		}
	}
	return "", false
}

// isVersion accepts what may be part of a tag; a digest has a colon.
func isVersion(s string) bool {
	return s != "" && len(s) <= 64 &&
		strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") == ""
}

// check refuses names and references that cannot be what was meant.
func (r Runtimes) check() error {
	for _, name := range slices.Sorted(maps.Keys(r)) {
		base, version, versioned := strings.Cut(name, "@")
		to := r[name]
		switch {
		case base == HostImage:
			return fmt.Errorf("%q is built in", name)
		case !isVersion(base) || versioned && version != "*" && !isVersion(version):
			return fmt.Errorf("%q is not NAME, NAME@VERSION or NAME@*", name)
		case to == "" || strings.ContainsAny(to, " \t\n\x00"):
			return fmt.Errorf("%s: %q is no image", name, to)
		case strings.Count(to, "*") > 1 || strings.Contains(to, "*") && version != "*":
			return fmt.Errorf("%s: %q: one * stands for the version, where the name ends in @*", name, to)
		}
		if _, err := r.Resolve(strings.Replace(name, "*", "1", 1)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// setRuntimes reads the section.
func setRuntimes(c *Config, v *yamltree.Node) error {
	if v.Tag == yamltree.NullTag || v.Kind == yamltree.Mapping && len(v.Content) == 0 {
		return nil
	}
	if v.Kind != yamltree.Mapping {
		return errors.New("expected names with images")
	}
	c.Runtimes = make(Runtimes)
	for i := 0; i+1 < len(v.Content); i += 2 {
		name, to := v.Content[i], v.Content[i+1]
		if to.Kind != yamltree.Scalar {
			return fmt.Errorf("line %d: %s: expected an image", to.Line, name.Value)
		}
		if _, twice := c.Runtimes[name.Value]; twice {
			return fmt.Errorf("line %d: %s is set already", name.Line, name.Value)
		}
		c.Runtimes[name.Value] = to.Value
	}
	return c.Runtimes.check()
}

func showRuntimes(c *Config) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(c.Runtimes)) {
		all = append(all, strconv.Quote(name)+": "+strconv.Quote(c.Runtimes[name]))
	}
	return "{" + strings.Join(all, ", ") + "}"
}
