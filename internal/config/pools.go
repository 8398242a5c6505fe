package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hutch-sh/hutch/internal/units"
	"github.com/hutch-sh/hutch/internal/yamltree"
	"github.com/hutch-sh/hutch/runtime/api"
)

// poolEntry is a pool as the file has it: by its name, beside the spec of its sandboxes.
type poolEntry struct {
	Size    int   `json:"size"`
	Prewarm *bool `json:"prewarm,omitempty"`
	api.Spec
}

// setPools reads the section.
func setPools(c *Config, v *yamltree.Node) error {
	if v.Tag == yamltree.NullTag || v.Kind == yamltree.Mapping && len(v.Content) == 0 {
		return nil
	}
	if v.Kind != yamltree.Mapping {
		return errors.New("expected names with pools")
	}
	c.Pools = nil
	for i := 0; i+1 < len(v.Content); i += 2 {
		name, body := v.Content[i], v.Content[i+1]
		e, err := readPool(body)
		if err != nil {
			return fmt.Errorf("line %d: %s: %w", name.Line, name.Value, err)
		}
		p := api.PoolSpec{Name: name.Value, Size: e.Size, Prewarm: e.Prewarm, Sandbox: e.Spec}
		if err := p.Validate(); err != nil {
			return fmt.Errorf("line %d: %s: %w", name.Line, name.Value, err)
		}
		if slices.ContainsFunc(c.Pools, func(o api.PoolSpec) bool { return o.Name == p.Name }) {
			return fmt.Errorf("line %d: %s is set already", name.Line, p.Name)
		}
		c.Pools = append(c.Pools, p)
	}
	slices.SortFunc(c.Pools, func(a, b api.PoolSpec) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

// readPool takes what the JSON-RPC interface takes, with sizes and times as people write them.
func readPool(body *yamltree.Node) (e poolEntry, err error) {
	e.Size = 1
	value, err := Plain("", body)
	if err != nil {
		return e, err
	}
	text, err := json.Marshal(value)
	if err != nil {
		return e, err
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&e); err != nil {
		return e, errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	return e, nil
}

// Plain is what JSON can say of a node, whose key says its unit: sizes and times may be written as people do.
func Plain(key string, n *yamltree.Node) (any, error) {
	switch n.Kind {
	case yamltree.Mapping:
		m := map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			k := n.Content[i].Value
			if _, twice := m[k]; twice {
				return nil, fmt.Errorf("line %d: %s is set already", n.Content[i].Line, k)
			}
			v, err := Plain(k, n.Content[i+1])
			if err != nil {
				return nil, err
			}
			m[k] = v
		}
		return m, nil
	case yamltree.Sequence:
		list := []any{}
		for _, c := range n.Content {
			v, err := Plain("", c)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, nil
	case yamltree.Alias:
		return nil, fmt.Errorf("line %d: aliases are not possible here", n.Line)
	}
	if n.Tag == "!!str" && strings.HasSuffix(key, "_bytes") {
		size, err := units.Size(n.Value)
		if err != nil {
			return nil, fmt.Errorf("line %d: %s: %w", n.Line, key, err)
		}
		return size, nil
	}
	if n.Tag == "!!str" && strings.HasSuffix(key, "_s") {
		s, err := units.Seconds(n.Value)
		if err != nil {
			return nil, fmt.Errorf("line %d: %s: %w", n.Line, key, err)
		}
		return s, nil
	}
	return n.Plain()
}

func showPools(c *Config) string {
	if len(c.Pools) == 0 {
		return "{}"
	}
	all := map[string]poolEntry{}
	for _, p := range c.Pools {
		all[p.Name] = poolEntry{Size: p.Size, Prewarm: p.Prewarm, Spec: p.Sandbox}
	}
	text, err := json.Marshal(all)
	if err != nil {
		return "{}" // cannot be: it was JSON before
	}
	return string(text)
}
