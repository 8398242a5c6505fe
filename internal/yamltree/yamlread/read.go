// Package yamlread reads YAML.
package yamlread

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"

	"github.com/hutch-sh/hutch/internal/yamltree"
)

// Parse is a yamltree.Parser.
func Parse(text []byte) (*yamltree.Node, error) {
	var doc yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(text))
	if err := dec.Decode(&doc); err != nil {
		return nil, err // io.EOF as it is
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more than one document in the file")
	}
	return tree(doc.Content[0]), nil
}

var kinds = map[yaml.Kind]yamltree.Kind{
	yaml.MappingNode: yamltree.Mapping, yaml.SequenceNode: yamltree.Sequence, yaml.ScalarNode: yamltree.Scalar,
	yaml.AliasNode: yamltree.Alias,
}

func tree(n *yaml.Node) *yamltree.Node {
	t := &yamltree.Node{Kind: kinds[n.Kind], Tag: n.Tag, Value: n.Value, Line: n.Line}
	for _, c := range n.Content {
		t.Content = append(t.Content, tree(c))
	}
	if n.Kind == yaml.ScalarNode {
		var err error
		if t.JSON, err = plain(n); err != nil {
			t.Wrong = err.Error()
		}
		var b bool
		if n.Tag != yamltree.NullTag && n.Decode(&b) == nil {
			t.Bool = &b
		}
	}
	return t
}

func plain(n *yaml.Node) ([]byte, error) {
	var v any
	if err := n.Decode(&v); err != nil {
		return nil, err
	}
	text, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("%s: nothing that JSON could say", n.Value)
	}
	return text, nil
}

// Serve reads a text and writes its yamltree.Answer, for a process that has no parser.
func Serve(r io.Reader, w io.Writer) error {
	text, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	var a yamltree.Answer
	a.Root, err = Parse(text)
	if err != nil && !errors.Is(err, io.EOF) {
		a.Error = err.Error()
	}
	return json.NewEncoder(w).Encode(a)
}
