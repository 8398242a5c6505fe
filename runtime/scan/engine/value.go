package engine

import (
	"encoding/base64"
	"encoding/hex"
	"strings"
)

// value is what an expression may be, as far as that can be told without running it: the dotted name of something, a
// text, a number or a list. Of several values an expression has any.
type value struct {
	path string // "" where it is none
	text *string
	num  *int
	list []value
	is   isKind
}

type isKind int

const (
	isNothing isKind = iota
	isPath
	isText
	isNumber
	isList
)

// Bounds of what is put together: no program needs more, and folding stays linear.
const (
	maxFolded = 64 << 10
	maxValues = 8
	maxFold   = 200 // depth
)

func pathOf(p string) value    { return value{path: p, is: isPath} }
func textOf(s string) value    { return value{text: &s, is: isText} }
func numOf(n int) value        { return value{num: &n, is: isNumber} }
func listOf(all []value) value { return value{list: all, is: isList} }
func one(v value) []value      { return []value{v} }
func union(a, b []value) []value {
	return append(append([]value{}, a...), b...)[:min(len(a)+len(b), maxValues)]
}
func only(all []value) value { // the only value, or nothing
	if len(all) == 1 {
		return all[0]
	}
	return value{}
}

// onlyText is the text that an expression is, if it can be nothing else.
func onlyText(all []value) (string, bool) {
	if v := only(all); v.is == isText {
		return *v.text, true
	}
	return "", false
}

// join puts texts together.
func join(sep string, all []value) (value, bool) {
	var b strings.Builder
	for i, v := range all {
		if v.is != isText || b.Len() > maxFolded {
			return value{}, false
		}
		if i > 0 {
			b.WriteString(sep)
		}
		b.WriteString(*v.text)
	}
	return textOf(b.String()), b.Len() <= maxFolded
}

// reversed is a text or a list backwards.
func reversed(v value) value {
	switch v.is {
	case isText:
		r := []rune(*v.text)
		for i, j := 0, len(r)-1; i < j; i, j = i+1, j-1 {
			r[i], r[j] = r[j], r[i]
		}
		return textOf(string(r))
	case isList:
		out := make([]value, len(v.list))
		for i, e := range v.list {
			out[len(out)-1-i] = e
		}
		return listOf(out)
	}
	return value{}
}

// characters are the parts that a program gets of a text or a list.
func characters(v value) ([]value, bool) {
	switch {
	case v.is == isList:
		return v.list, true
	case v.is == isText && len(*v.text) <= 4096:
		var all []value
		for _, r := range *v.text {
			all = append(all, textOf(string(r)))
		}
		return all, true
	}
	return nil, false
}

// charCode is the text of a character's number.
func charCode(v value) (value, bool) {
	if v.is != isNumber || *v.num < 0 || *v.num > 0x10ffff {
		return value{}, false
	}
	return textOf(string(rune(*v.num))), true
}

// charCodes are the text of several.
func charCodes(all []value) (value, bool) {
	texts := make([]value, len(all))
	for i, v := range all {
		var ok bool
		if texts[i], ok = charCode(v); !ok {
			return value{}, false
		}
	}
	return join("", texts)
}

// unbase64 decodes, of any alphabet, with padding or without.
func unbase64(s string) (value, bool) {
	s = strings.NewReplacer("-", "+", "_", "/", "\n", "", " ", "").Replace(s)
	data, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(s, "="))
	return textOf(string(data)), err == nil
}

func unhex(s string) (value, bool) {
	data, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	return textOf(string(data)), err == nil
}

// rot13 is the codec of that name.
func rot13(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return 'a' + (r-'a'+13)%26
		case r >= 'A' && r <= 'Z':
			return 'A' + (r-'A'+13)%26
		}
		return r
	}, s)
}

// element is one of a text or a list.
func element(v value, i int) (value, bool) {
	all, ok := characters(v)
	if !ok {
		return value{}, false
	}
	if i < 0 {
		i += len(all)
	}
	if i < 0 || i >= len(all) {
		return value{}, false
	}
	return all[i], true
}

// escapes reads the body of a text of Python's or JavaScript's. plain says that letters that could stand there are
// written as escapes.
func escapes(s string) (out string, plain bool) {
	if !strings.Contains(s, `\`) {
		return s, false
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		r, used := escape(s[i:])
		switch {
		case used > 1 && r < 0x7f && r > 0x20:
			plain = true
			fallthrough
		case used > 0 && r >= 0:
			b.WriteRune(r)
		case used == 0: // such as \N{BULLET}, which no ASCII letter needs
			b.WriteByte('\\')
			b.WriteByte(s[i])
			continue
		}
		i += used - 1
	}
	return b.String(), plain
}

// escape reads what is behind a backslash: the character and its length; -1 is none, as of a line that goes on.
func escape(s string) (r rune, used int) {
	switch s[0] {
	case 'x':
		return digits(s, 1, 2, 16)
	case 'u':
		if len(s) > 1 && s[1] == '{' {
			if end := strings.IndexByte(s, '}'); end > 2 && end < 10 {
				r, n := digits(s, 2, end-2, 16)
				if n > 0 {
					return r, end + 1
				}
			}
			return 0, 0
		}
		return digits(s, 1, 4, 16)
	case 'U':
		return digits(s, 1, 8, 16)
	case '\n':
		return -1, 1
	case 'n':
		return '\n', 1
	case 't':
		return '\t', 1
	case 'r':
		return '\r', 1
	case '\\', '\'', '"', '`', '$':
		return rune(s[0]), 1
	}
	if s[0] >= '0' && s[0] <= '7' {
		n := 1
		for n < 3 && n < len(s) && s[n] >= '0' && s[n] <= '7' {
			n++
		}
		return digits(s, 0, n, 8)
	}
	return 0, 0
}

func digits(s string, from, n, base int) (rune, int) {
	if len(s) < from+n {
		return 0, 0
	}
	v := 0
	for _, c := range []byte(strings.ToLower(s[from : from+n])) {
		d := strings.IndexByte("0123456789abcdef", c)
		if d < 0 || d >= base {
			return 0, 0
		}
		v = v*base + d
	}
	if v > 0x10ffff {
		return 0, 0
	}
	return rune(v), from + n
}
