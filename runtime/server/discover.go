package server

import (
	"bytes"
	"compress/gzip"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"reflect"

	"github.com/hutch-sh/hutch/internal/params"
	"github.com/hutch-sh/hutch/internal/version"
	"github.com/hutch-sh/hutch/runtime/api"
)

// document is what rpc.discover answers, but for the version: internal/build/rpc makes it of runtime/api. It lies in
// the file of the program until somebody asks.
//
//go:embed openrpc.json.gz
var document []byte

// discover is the handler of rpc.discover. The document goes out as it is: its objects would take megabytes.
var discover = handler{
	params: reflect.TypeFor[api.Empty](), result: reflect.TypeFor[map[string]any](),
	run: func(_ context.Context, _ *Call, raw json.RawMessage) (any, error) {
		if err := params.Decode(raw, new(api.Empty)); err != nil {
			return nil, err
		}
		z, err := gzip.NewReader(bytes.NewReader(document))
		if err != nil {
			return nil, fmt.Errorf("unpack the document: %w", err)
		}
		text, err := io.ReadAll(z)
		if err != nil {
			return nil, fmt.Errorf("unpack the document: %w", err)
		}
		own, err := json.Marshal(version.Version)
		if err != nil {
			return nil, err
		}
		return json.RawMessage(bytes.Replace(text, []byte("VERSION"), own[1:len(own)-1], 1)), nil
	},
}
