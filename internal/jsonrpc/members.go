package jsonrpc

import (
	"bytes"
	"encoding/json"
)

// Members splits an object of valid JSON into its members, which lie in it; of those with the same name it has the
// last, as encoding/json does. It does not look into the members, and so is many times faster where they are large. ok
// is false for what is no object. Of what is no JSON it says anything, and nothing breaks.
func Members(object []byte) (members map[string]json.RawMessage, ok bool) {
	rest, ok := bytes.CutPrefix(space(object), []byte("{"))
	if !ok {
		return nil, false
	}
	members = make(map[string]json.RawMessage)
	if rest = space(rest); len(rest) > 0 && rest[0] == '}' {
		return members, len(space(rest[1:])) == 0
	}
	for {
		key, after := value(space(rest))
		name, ok := unquote(key)
		if rest = space(after); !ok || len(rest) == 0 || rest[0] != ':' {
			return nil, false
		}
		member, after := value(space(rest[1:]))
		if rest = space(after); len(member) == 0 || len(rest) == 0 {
			return nil, false
		}
		members[name] = member
		switch rest[0] {
		case ',':
			rest = rest[1:]
		case '}':
			return members, len(space(rest[1:])) == 0
		default:
			return nil, false
		}
	}
}

// value cuts the value off with which b begins.
func value(b []byte) (value, rest []byte) {
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			i += len(text(b[i:])) - 1
			if depth == 0 {
				return b[:i+1], b[i+1:]
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return b[:i], b[i:]
			}
			if depth--; depth == 0 {
				return b[:i+1], b[i+1:]
			}
		case ',', ':', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return b[:i], b[i:]
			}
		}
	}
	return b, nil
}

// text is the string with which b begins, to the quote that no backslash stands before.
func text(b []byte) []byte {
	for end := 1; ; end++ {
		quote := bytes.IndexByte(b[end:], '"')
		if quote < 0 {
			return b
		}
		end += quote
		slashes := 0
		for b[end-1-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return b[:end+1]
		}
	}
}

// unquote is what a string says.
func unquote(quoted []byte) (s string, ok bool) {
	if len(quoted) < 2 || quoted[0] != '"' {
		return "", false
	}
	for _, c := range quoted {
		if c == '\\' || c >= 0x80 {
			return s, json.Unmarshal(quoted, &s) == nil
		}
	}
	return string(quoted[1 : len(quoted)-1]), true
}

// space is b without the space before it.
func space(b []byte) []byte { return bytes.TrimLeft(b, " \t\r\n") }
