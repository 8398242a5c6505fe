// Package define reads what people write templates in: YAML files and a part of what Dockerfiles can say. It runs in
// the client, where the files are.
package define

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/hutch-sh/hutch/internal/config"
	"github.com/hutch-sh/hutch/internal/units"
	"github.com/hutch-sh/hutch/internal/yamltree"
	"github.com/hutch-sh/hutch/runtime/api"
)

// Template is one that was read. Its steps that copy files have no target yet where Copies has them: Resolve says what
// that is.
type Template struct {
	Spec   api.TemplateSpec
	Copies []Copy
	// Dockerfile is the name of a file whose FROM and steps come first, relative to the one that was read.
	Dockerfile string
	Args       map[string]string // of that
}

// Copy is what a step copies.
type Copy struct {
	Step    int
	Line    int
	Sources []string // patterns, below the folder of the context
	Target  string   // absolute; a folder where it ends with a slash
}

// wrong is an error about a line.
func wrong(line int, format string, args ...any) *api.Error {
	return api.Errorf(api.InvalidArgument, "line %d: %s", line, fmt.Sprintf(format, args...))
}

// MaxFile bounds a file that defines a template, in bytes.
const MaxFile = 1 << 20

// aliases are names of other products, and what they are here.
var aliases = map[string]string{
	"cpu_cores": "limits.cpus", "max_processes": "limits.pids", "timeout_seconds": "limits.timeout_s",
	"memory_mb": "limits.memory_bytes", "disk_mb": "limits.disk_bytes",
	"allowed_domains": "network.allow", "blocked_domains": "network.block", "network_enabled": "network.mode",
	"start_cmd": "start", "ready_cmd": "ready", "from": "image",
}

// YAML reads a file as template.create's params have it, with sizes and times as people write them, shorter forms of
// steps, start, ready and ports, and the names that users of other products know.
func YAML(data []byte, parser yamltree.Parser) (*Template, error) {
	if len(data) > MaxFile {
		return nil, api.Errorf(api.InvalidArgument, "%d bytes are more than %d", len(data), MaxFile)
	}
	root, err := parser(data)
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("the file is empty")
		}
		return nil, api.Errorf(api.InvalidArgument, "%w", err)
	}
	if root.Kind != yamltree.Mapping {
		return nil, wrong(root.Line, "expected names with values")
	}
	t := &Template{}
	fields := map[string]any{}
	lines := map[string]int{}
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		name := key.Value
		if was, twice := lines[name]; twice {
			return nil, wrong(key.Line, "%s is set in line %d already", name, was)
		}
		lines[name] = key.Line
		if err := t.field(fields, name, value); err != nil {
			return nil, located(key.Line, name, err)
		}
	}
	if err := t.decode(fields, lines); err != nil {
		return nil, err
	}
	return t, nil
}

// texts are names with a text each.
func texts(n *yamltree.Node) (map[string]string, error) {
	if n.Tag == yamltree.NullTag {
		return nil, nil
	}
	if n.Kind != yamltree.Mapping {
		return nil, wrong(n.Line, "expected names with values")
	}
	m := map[string]string{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		if value.Kind != yamltree.Scalar {
			return nil, wrong(value.Line, "%s: expected a text", name.Value)
		}
		if _, twice := m[name.Value]; twice {
			return nil, wrong(name.Line, "%s is set already", name.Value)
		}
		m[name.Value] = value.Value
		if value.Tag == yamltree.NullTag {
			m[name.Value] = ""
		}
	}
	return m, nil
}

// located adds the line to an error that has none.
func located(line int, name string, err error) error {
	if rest, ok := strings.CutPrefix(err.Error(), "line "); ok && rest != "" && rest[0] >= '0' && rest[0] <= '9' {
		return err
	}
	return wrong(line, "%s: %v", name, err)
}

// field takes one name of the file.
func (t *Template) field(fields map[string]any, name string, value *yamltree.Node) (err error) {
	switch name {
	case "dockerfile":
		t.Dockerfile = value.Value
		return onlyScalar(value)
	case "args":
		t.Args, err = texts(value)
		return err
	case "steps":
		return t.steps(value)
	}
	if to, ok := aliases[name]; ok {
		return alias(fields, name, to, value)
	}
	v, err := config.Plain(name, value)
	if err != nil {
		return err
	}
	switch name {
	case "limits", "network":
		if v, err = section(name, value); err != nil {
			return err
		}
		m, ok := v.(map[string]any)
		if !ok {
			return errors.New("expected names with values")
		}
		for k, x := range m {
			if err := put(fields, name+"."+k, x); err != nil {
				return err
			}
		}
		return nil
	case "start", "ready", "ports":
		v = longer(name, v)
	}
	return put(fields, name, v)
}

func onlyScalar(n *yamltree.Node) error {
	if n.Kind != yamltree.Scalar || n.Value == "" {
		return errors.New("expected one value")
	}
	return nil
}

// section is limits or network, in which the aliases are understood, too.
func section(name string, n *yamltree.Node) (any, error) {
	if n.Kind != yamltree.Mapping {
		return nil, errors.New("expected names with values")
	}
	fields := map[string]any{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if to, ok := aliases[key.Value]; ok && strings.HasPrefix(to, name+".") {
			if err := alias(fields, key.Value, to, value); err != nil {
				return nil, located(key.Line, key.Value, err)
			}
			continue
		}
		v, err := config.Plain(key.Value, value)
		if err == nil {
			err = put(fields, name+"."+key.Value, v)
		}
		if err != nil {
			return nil, located(key.Line, key.Value, err)
		}
	}
	inner, _ := fields[name].(map[string]any)
	if inner == nil {
		inner = map[string]any{}
	}
	return inner, nil
}

// alias takes a name of another product.
func alias(fields map[string]any, name, to string, value *yamltree.Node) error {
	v, err := config.Plain("", value)
	if err != nil {
		return err
	}
	switch name {
	case "memory_mb", "disk_mb":
		n, err := units.Float(value.Value)
		if err != nil || n < 0 || n > 1<<40 {
			return fmt.Errorf("%q is no number of megabytes", value.Value)
		}
		v = int64(n * (1 << 20))
	case "network_enabled":
		on, ok := v.(bool)
		if !ok {
			return fmt.Errorf("%q is neither true nor false", value.Value)
		}
		if v = "none"; on {
			v = "open" // names that are allowed make it allow: see settleNetwork
		}
	case "start_cmd", "ready_cmd":
		v = longer(to, v)
	}
	return put(fields, to, v)
}

// put sets a field, which may be one of a section.
func put(fields map[string]any, path string, v any) error {
	outer, inner, nested := strings.Cut(path, ".")
	if nested {
		m, ok := fields[outer].(map[string]any)
		if !ok {
			if fields[outer] != nil {
				return fmt.Errorf("%s is set already", outer)
			}
			m = map[string]any{}
			fields[outer] = m
		}
		fields, outer = m, inner
	}
	if _, twice := fields[outer]; twice {
		return fmt.Errorf("%s is set already", path)
	}
	fields[outer] = v
	return nil
}

// longer makes the long form of a short one: a command, a port, or a list of ports.
func longer(name string, v any) any {
	list, isList := v.([]any)
	text, isText := v.(string)
	number, isNumber := v.(int)
	switch {
	case name == "ports" && isList:
		long := make([]any, 0, len(list))
		for _, p := range list {
			if n, ok := p.(int); ok {
				p = map[string]any{"port": n}
			}
			long = append(long, p)
		}
		return long
	case name == "ready" && isNumber:
		return map[string]any{"port": number}
	case name != "ports" && isText:
		return map[string]any{"command": text}
	case name != "ports" && isList:
		return map[string]any{"argv": list}
	}
	return v
}

// steps reads the steps; one that is a string is for the shell.
func (t *Template) steps(n *yamltree.Node) error {
	if n.Tag == yamltree.NullTag {
		return nil
	}
	if n.Kind != yamltree.Sequence {
		return errors.New("expected a list of steps")
	}
	for _, s := range n.Content {
		step := api.TemplateStep{Line: s.Line}
		if s.Kind == yamltree.Scalar {
			step.Run = s.Value
		} else if err := t.step(&step, s); err != nil {
			return located(s.Line, "steps", err)
		}
		t.Spec.Steps = append(t.Spec.Steps, step)
	}
	return nil
}

func (t *Template) step(step *api.TemplateStep, n *yamltree.Node) error {
	v, err := config.Plain("", n)
	if err != nil {
		return err
	}
	m, ok := v.(map[string]any)
	if !ok {
		return errors.New("expected a command, or names with values")
	}
	if what, has := m["copy"]; has {
		delete(m, "copy")
		c, err := copyOf(what)
		if err != nil {
			return err
		}
		c.Step, c.Line = len(t.Spec.Steps), n.Line
		t.Copies = append(t.Copies, *c)
		step.Copy = &api.TemplateCopy{Sources: c.Sources, Target: c.Target}
	}
	if _, has := m["line"]; has {
		return errors.New("line is not for people to set")
	}
	return strictly(m, step)
}

// copyOf reads {from: ..., to: ...}, or a list that ends with the target.
func copyOf(v any) (*Copy, error) {
	var words []string
	add := func(list any) bool {
		if s, ok := list.(string); ok {
			words = append(words, s)
			return true
		}
		all, ok := list.([]any)
		for _, w := range all {
			s, isText := w.(string)
			ok = ok && isText
			words = append(words, s)
		}
		return ok
	}
	ok := false
	switch v := v.(type) {
	case map[string]any:
		ok = len(v) == 2 && add(v["from"]) && add(v["to"])
	case []any:
		ok = add(v)
	}
	if !ok || len(words) < 2 {
		return nil, errors.New("copy: expected {from: FILE or [FILE...], to: FOLDER/}, or [FILE..., FOLDER/]")
	}
	return newCopy(words)
}

func newCopy(words []string) (*Copy, error) {
	c := &Copy{Sources: words[:len(words)-1], Target: words[len(words)-1]}
	if !strings.HasPrefix(c.Target, "/") {
		return nil, fmt.Errorf("copy: %q is not an absolute path", c.Target)
	}
	return c, nil
}

// strictly decodes what JSON could say, and nothing that is not known.
func strictly(v, to any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(to); err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// decode makes the spec of the fields. An error of one field names its line.
func (t *Template) decode(fields map[string]any, lines map[string]int) error {
	steps := t.Spec.Steps
	settleNetwork(fields)
	for name, v := range fields {
		if err := strictly(map[string]any{name: v}, &t.Spec); err != nil {
			line := lines[name]
			if line == 0 { // an alias has set it
				for a, to := range aliases {
					if first, _, _ := strings.Cut(to, "."); first == name && lines[a] > 0 {
						line = lines[a]
					}
				}
			}
			return wrong(max(line, 1), "%s: %v", name, err)
		}
	}
	t.Spec.Steps = steps
	return nil
}

// settleNetwork makes the mode fit names that are allowed.
func settleNetwork(fields map[string]any) {
	n, _ := fields["network"].(map[string]any)
	if n == nil {
		return
	}
	if allow, _ := n["allow"].([]any); len(allow) > 0 && (n["mode"] == nil || n["mode"] == "open") {
		n["mode"] = "allow"
	}
}

// On puts what a YAML file says over what its Dockerfile does, whose steps come first.
func (t *Template) On(below *Template) (*Template, error) {
	if t.Spec.Image != "" || t.Spec.Template != "" {
		return nil, api.Errorf(api.InvalidArgument,
			"it has an image or a template, and a Dockerfile, whose FROM names that").WithHint("leave it out")
	}
	spec := t.Spec.On(&below.Spec)
	spec.Image, spec.Template = below.Spec.Image, ""
	spec.Steps = append(append([]api.TemplateStep{}, below.Spec.Steps...), t.Spec.Steps...)
	all := &Template{Spec: spec, Copies: below.Copies}
	for _, c := range t.Copies {
		c.Step += len(below.Spec.Steps)
		all.Copies = append(all.Copies, c)
	}
	return all, nil
}
