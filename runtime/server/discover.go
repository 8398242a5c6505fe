package server

import (
	"bytes"
	"compress/gzip"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"

	"github.com/hutch-sh/hutch/internal/version"
	"github.com/hutch-sh/hutch/runtime/api"
)

// document is what rpc.discover answers, without the version: internal/build/rpc makes it of runtime/api. It lies in
// the file of the program until somebody asks.
//
//go:embed openrpc.json.gz
var document []byte

func discover(context.Context, api.Empty) (map[string]any, error) {
	z, err := gzip.NewReader(bytes.NewReader(document))
	if err != nil {
		return nil, fmt.Errorf("unpack the document: %w", err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		return nil, fmt.Errorf("unpack the document: %w", err)
	}
	var doc map[string]any
	if err := json.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("read the document: %w", err)
	}
	if info, ok := doc["info"].(map[string]any); ok {
		info["description"] = fmt.Sprintf("%v Version %s.", info["description"], version.Version)
	}
	return doc, nil
}
