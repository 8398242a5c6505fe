package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hutch-sh/hutch/internal/yamltree"
	"github.com/hutch-sh/hutch/runtime/api"
)

// setTemplates reads the section: templates by their names, with what template.create takes. One of a name that hutch
// ships need say only what is to be different.
func setTemplates(c *Config, v *yamltree.Node) error {
	if v.Tag == yamltree.NullTag || v.Kind == yamltree.Mapping && len(v.Content) == 0 {
		return nil
	}
	if v.Kind != yamltree.Mapping {
		return errors.New("expected names with templates")
	}
	c.Templates = nil
	for i := 0; i+1 < len(v.Content); i += 2 {
		name, body := v.Content[i], v.Content[i+1]
		t, err := readTemplate(name.Value, body)
		if err != nil {
			return fmt.Errorf("line %d: %s: %w", name.Line, name.Value, err)
		}
		if slices.ContainsFunc(c.Templates, func(o api.TemplateSpec) bool { return o.Name == t.Name }) {
			return fmt.Errorf("line %d: %s is set already", name.Line, t.Name)
		}
		c.Templates = append(c.Templates, t)
	}
	slices.SortFunc(c.Templates, func(a, b api.TemplateSpec) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

func readTemplate(name string, body *yamltree.Node) (t api.TemplateSpec, err error) {
	value, err := Plain("", body)
	if err != nil {
		return t, err
	}
	fields, ok := value.(map[string]any)
	if !ok {
		return t, errors.New("expected names with values")
	}
	if _, has := fields["name"]; has {
		return t, errors.New("name: it is the template's name in the section")
	}
	fields["name"] = name
	if steps, ok := fields["steps"].([]any); ok {
		for i, s := range steps {
			if text, ok := s.(string); ok {
				steps[i] = map[string]any{"run": text}
			}
		}
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return t, err
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&t); err != nil {
		return t, errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	if slices.ContainsFunc(t.Steps, func(s api.TemplateStep) bool { return s.Copy != nil }) {
		return t, errors.New("steps that copy files are for hutch template create, which takes the files along")
	}
	whole := t
	if whole.Image == "" && whole.Template == "" {
		whole.Image = HostImage // of a shipped one: it has one
	}
	return t, whole.Validate()
}

func showTemplates(c *Config) string {
	if len(c.Templates) == 0 {
		return "{}"
	}
	all := map[string]json.RawMessage{}
	for _, t := range c.Templates {
		var fields map[string]any
		text, err := json.Marshal(t)
		if err == nil {
			err = json.Unmarshal(text, &fields)
		}
		delete(fields, "name")
		if text, merr := json.Marshal(fields); err == nil && merr == nil {
			all[t.Name] = text
		}
	}
	text, err := json.Marshal(all)
	if err != nil {
		return "{}" // cannot be: it was JSON before
	}
	return string(text)
}
