package define

import "strings"

// split splits at spaces that are not quoted. Quotes and backslashes stay: expand takes them off.
func split(line int, text string) (words []string, err error) {
	var word strings.Builder
	has := false
	quote := byte(0)
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case quote == 0 && (c == ' ' || c == '\t'):
			if has {
				words = append(words, word.String())
			}
			word.Reset()
			has = false
			continue
		case c == '\\' && quote != '\'' && i+1 < len(text):
			word.WriteByte(c)
			i++
			c = text[i]
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		case c == quote:
			quote = 0
		}
		has = true
		word.WriteByte(c)
	}
	if quote != 0 {
		return nil, wrong(line, "a quotation mark %c has no end", quote).WithHint("close it")
	}
	if has {
		words = append(words, word.String())
	}
	if len(words) == 0 {
		return nil, wrong(line, "there is nothing in it").WithHint("complete it, or leave it out")
	}
	return words, nil
}

// maxExpanded bounds what one word may become, and maxNested how deep ${a:-${b:-...}} goes.
const (
	maxExpanded = 64 << 10
	maxNested   = 16
)

// expand takes quotes off and puts variables in: $NAME, ${NAME}, ${NAME:-WORD} and ${NAME:+WORD}.
func (d *dockerfile) expand(line int, text string, scope map[string]string) (string, error) {
	return d.expandIn(line, text, scope, 0)
}

func (d *dockerfile) expandIn(line int, text string, scope map[string]string, depth int) (string, error) {
	if depth > maxNested {
		return "", wrong(line, "variables are nested more than %d deep", maxNested).WithHint("use fewer")
	}
	var out strings.Builder
	quote := byte(0)
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '\\' && quote != '\'' && i+1 < len(text):
			i++
			if quote == '"' && text[i] != '"' && text[i] != '\\' && text[i] != '$' {
				out.WriteByte('\\')
			}
			out.WriteByte(text[i])
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		case quote != 0 && c == quote:
			quote = 0
		case c == '$' && quote != '\'':
			value, used, err := d.variable(line, text[i+1:], scope, depth)
			if err != nil {
				return "", err
			}
			out.WriteString(value)
			i += used
		default:
			out.WriteByte(c)
		}
		if out.Len() > maxExpanded {
			return "", wrong(line, "a word becomes longer than %d bytes", maxExpanded).WithHint("use shorter values")
		}
	}
	return out.String(), nil
}

// variable is what follows a $, and how much of the text that takes.
func (d *dockerfile) variable(line int, text string, scope map[string]string, depth int) (value string, used int,
	err error) {
	if !strings.HasPrefix(text, "{") {
		n := 0
		for n < len(text) && isVariable(text[:n+1]) {
			n++
		}
		if n == 0 {
			return "$", 0, nil
		}
		value, _, err = d.lookup(text[:n], scope)
		return value, n, err
	}
	end, open := -1, 0
	for i := range len(text) {
		switch text[i] {
		case '{':
			open++
		case '}':
			open--
		}
		if open == 0 {
			end = i
			break
		}
	}
	if end < 0 {
		return "", 0, wrong(line, "${ has no end").WithHint("close it with }")
	}
	name, modifier := text[1:end], ""
	if i := strings.IndexByte(name, ':'); i >= 0 {
		name, modifier = name[:i], name[i:]
	}
	if !isVariable(name) || modifier != "" && !strings.HasPrefix(modifier, ":-") && !strings.HasPrefix(modifier, ":+") {
		return "", 0, wrong(line, "${%s} is not supported", text[1:end]).
			WithHint("use $NAME, ${NAME}, ${NAME:-WORD} or ${NAME:+WORD}")
	}
	value, _, err = d.lookup(name, scope)
	if err == nil && modifier != "" && (value == "") == (modifier[1] == '-') {
		value, err = d.expandIn(line, modifier[2:], scope, depth+1)
	} else if err == nil && modifier != "" && modifier[1] == '+' {
		value = ""
	}
	return value, end + 1, err
}
