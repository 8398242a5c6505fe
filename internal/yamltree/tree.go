// Package yamltree is what a YAML document holds, as a tree that can be read by who has no YAML parser: each start of
// `hutch` would pay for one, a quarter of a millisecond for the regular expressions of the library alone, and hardly
// any needs it.
package yamltree

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
)

// Parser makes the tree of a text with one document. It returns io.EOF where there is none. yamlread.Parse is one.
type Parser func(text []byte) (*Node, error)

// Kind is what a node is.
type Kind string

// The kinds.
const (
	Mapping  Kind = "mapping"
	Sequence Kind = "sequence"
	Scalar   Kind = "scalar"
	Alias    Kind = "alias"
)

// NullTag is the tag of a value that was left out, or is null.
const NullTag = "!!null"

// Node is a part of a document.
type Node struct {
	Kind    Kind    `json:"kind"`
	Tag     string  `json:"tag,omitempty"`
	Value   string  `json:"value,omitempty"` // of a scalar, as it is written but for quotes and escapes
	Line    int     `json:"line"`            // from 1
	Content []*Node `json:"content,omitempty"`

	// JSON is what JSON can say of a scalar; Wrong is why it can say nothing. Bool is set where it is true or false, in
	// any of YAML's ways.
	JSON  json.RawMessage `json:"json,omitempty"`
	Wrong string          `json:"wrong,omitempty"`
	Bool  *bool           `json:"bool,omitempty"`
}

// Truth is the value of a scalar that is true or false.
func (n *Node) Truth() (bool, error) {
	if n.Bool == nil {
		return false, fmt.Errorf("%q is neither true nor false", n.Value)
	}
	return *n.Bool, nil
}

// Plain is the value of a scalar: nil, a bool, a string, an int, or a json.Number that is no int.
func (n *Node) Plain() (v any, err error) {
	if n.Wrong != "" {
		return nil, fmt.Errorf("line %d: %s", n.Line, n.Wrong)
	}
	dec := json.NewDecoder(bytes.NewReader(n.JSON))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		return nil, fmt.Errorf("line %d: %w", n.Line, err)
	}
	if number, ok := v.(json.Number); ok {
		if i, err := strconv.Atoi(number.String()); err == nil {
			return i, nil
		}
	}
	return v, nil
}

// Role is the first argument of the hutchd that reads YAML for another process.
const Role = "yaml"

// Answer is how one process tells another one of a text.
type Answer struct {
	Root  *Node  `json:"root,omitempty"`
	Error string `json:"error,omitempty"` // why there is no root; both are empty where there is no document
}
