package tools

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// maxText bounds each text of an event, in bytes.
const maxText = 1 << 10

// contents are arguments that events leave out.
var contents = map[string]bool{"content": true, "stdin": true, "patch": true, "find": true, "replace": true}

// summary is what an event tells of a call's arguments.
func summary(arguments json.RawMessage) json.RawMessage {
	var members map[string]any
	if json.Unmarshal(arguments, &members) != nil {
		return nil
	}
	for name, v := range members {
		members[name] = shorten(name, v)
	}
	short, err := json.Marshal(members)
	if err != nil || len(short) > 8*maxText {
		return json.RawMessage(fmt.Sprintf(`"%d bytes"`, len(arguments)))
	}
	return short
}

func shorten(name string, v any) any {
	switch v := v.(type) {
	case string:
		if contents[name] {
			return fmt.Sprintf("%d bytes", len(v))
		}
		return clip(v)
	case map[string]any: // the environment: values may be secrets
		return slices.Sorted(maps.Keys(v))
	case []any:
		for i := range v {
			v[i] = shorten(name, v[i])
		}
	}
	return v
}

// clip bounds a text.
func clip(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + "…"
}

// lastLine is the last line of a text: how a command ended.
func lastLine(text string) string {
	return text[strings.LastIndexByte(strings.TrimRight(text, "\n"), '\n')+1:]
}
