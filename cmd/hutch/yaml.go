package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"

	"github.com/hutch-sh/hutch/internal/paths"
	"github.com/hutch-sh/hutch/internal/yamltree"
)

// parseYAML has hutchd, which has a parser, read a text: every start of hutch would pay for one, see yamltree.
func parseYAML(text []byte) (*yamltree.Node, error) {
	hutchd, err := paths.Sibling("hutchd")
	if err != nil {
		return nil, err
	}
	var said bytes.Buffer
	cmd := exec.Command(hutchd, yamltree.Role)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(text), &said
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", hutchd, yamltree.Role, err, bytes.TrimSpace(said.Bytes()))
	}
	var a yamltree.Answer
	switch err := json.Unmarshal(out, &a); {
	case err != nil:
		return nil, fmt.Errorf("%s %s: %w", hutchd, yamltree.Role, err)
	case a.Error != "":
		return nil, errors.New(a.Error)
	case a.Root == nil:
		return nil, io.EOF
	}
	return a.Root, nil
}
