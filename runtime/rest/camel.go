package rest

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Answers that are the daemon's own types have the names of REST: exitCode where JSON-RPC has exit_code. None of these
// types holds an object whose names are the client's.

// words are names that are not only written in another way.
var words = map[string]string{
	"exec": "processID", "sandbox": "sandboxID", "running_execs": "runningProcesses", "allow_cidrs": "allowCIDRs",
	"block_cidrs": "blockCIDRs",
}

// camel is a name of JSON-RPC as REST has it.
func camel(name string) string {
	if word, ok := words[name]; ok {
		return word
	}
	first, rest, more := strings.Cut(name, "_")
	for more && rest != "" {
		var part string
		part, rest, more = strings.Cut(rest, "_")
		if part != "" {
			first += strings.ToUpper(part[:1]) + part[1:]
		}
	}
	return first
}

// isDaemons reports whether a type is of package api, so that its members have other names here.
func isDaemons(t reflect.Type) bool {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	return t.PkgPath() == reflect.TypeFor[api.Stats]().PkgPath()
}

// encode is the JSON of an answer.
func encode(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	if r, ok := v.(Result); ok && len(r.Denials) == 0 || !ok && !isDaemons(reflect.TypeOf(v)) {
		return text, nil
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var tree any
	if err := dec.Decode(&tree); err != nil {
		return nil, err
	}
	return json.Marshal(renamed(tree))
}

func renamed(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = renamed(v[i])
		}
	case map[string]any:
		other := make(map[string]any, len(v))
		for name, value := range v {
			other[camel(name)] = renamed(value)
		}
		return other
	}
	return v
}
