package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/hutch-sh/hutch/internal/config"
	"github.com/hutch-sh/hutch/internal/params"
	"github.com/hutch-sh/hutch/internal/yamltree/yamlread"
	"github.com/hutch-sh/hutch/runtime/rest"
)

// readClients reads the file of --tokens: each client by its name, with the digest of its token and its bounds. What is
// not understood is refused: a misspelt bound must not pass for one.
func readClients(path string) ([]*rest.Client, error) {
	text, err := readSecret(path)
	if err != nil {
		return nil, err
	}
	all, err := parseClients(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return all, nil
}

var errNoTokens = errors.New(
	`it has no tokens: write tokens: {NAME: {digest: "sha256:..."}}, with the digest that hutch config token NAME prints`)

func parseClients(text []byte) ([]*rest.Client, error) {
	root, err := yamlread.Parse(text)
	if errors.Is(err, io.EOF) {
		return nil, errNoTokens
	}
	if err != nil {
		return nil, err
	}
	plain, err := config.Plain("", root)
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(plain)
	if err != nil {
		return nil, err
	}
	var file struct {
		Tokens map[string]json.RawMessage `json:"tokens"`
	}
	if err := params.Decode(raw, &file); err != nil {
		return nil, err
	}
	if len(file.Tokens) == 0 {
		return nil, errNoTokens
	}
	var all []*rest.Client
	digests := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(file.Tokens)) {
		if err := config.CheckTokenName(name); err != nil {
			return nil, err
		}
		c := &rest.Client{}
		if err := params.Decode(file.Tokens[name], c); err != nil {
			return nil, fmt.Errorf("tokens.%s: %w", name, err)
		}
		if other, twice := digests[c.Digest]; twice {
			return nil, fmt.Errorf("tokens.%s and tokens.%s have the same digest: each needs a token of its own", other, name)
		}
		c.Name, digests[c.Digest] = name, name
		all = append(all, c)
	}
	return all, nil
}
