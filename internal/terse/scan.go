package terse

import "encoding/json"

// member is one of an object's.
type member struct{ name, value []byte }

// members appends those of an object, which is valid JSON and begins with its brace.
func members(to []member, object []byte) []member {
	at := space(object, 1)
	for object[at] != '}' {
		if object[at] == ',' {
			at = space(object, at+1)
		}
		end := text(object, at)
		name := unquoted(object[at:end])
		at = space(object, space(object, end)+1) // behind the colon
		end = value(object, at)
		to = append(to, member{name, object[at:end]})
		at = space(object, end)
	}
	return to
}

// unquoted is a text without its quotes.
func unquoted(quoted []byte) []byte {
	for _, b := range quoted {
		if b == '\\' {
			var s string
			_ = json.Unmarshal(quoted, &s) // it is valid
			return []byte(s)
		}
	}
	return quoted[1 : len(quoted)-1]
}

// The following return the end of what is at a place of valid JSON.

func space(data []byte, at int) int {
	for at < len(data) && (data[at] == ' ' || data[at] == '\n' || data[at] == '\t' || data[at] == '\r') {
		at++
	}
	return at
}

func text(data []byte, at int) int {
	for at++; data[at] != '"'; at++ {
		if data[at] == '\\' {
			at++
		}
	}
	return at + 1
}

func value(data []byte, at int) int {
	switch data[at] {
	case '"':
		return text(data, at)
	case '{', '[':
		depth := 0
		for {
			switch data[at] {
			case '"':
				at = text(data, at)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				depth--
			}
			if at++; depth == 0 {
				return at
			}
		}
	}
	for at < len(data) && data[at] != ',' && data[at] != '}' && data[at] != ']' && data[at] != ' ' &&
		data[at] != '\n' && data[at] != '\t' && data[at] != '\r' {
		at++
	}
	return at
}
