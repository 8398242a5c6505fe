package audit

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// minSecret is the least length of the value of a variable that is taken for a secret:
// shorter ones are in every other word.
const minSecret = 8

const maxPiece = 256

const redacted = "[redacted]"

// patterns are what secrets look like. A group is what is left out, else all that matches.
var patterns = []string{
	`(?i)\b(?:bearer|basic)\s+([a-z0-9._~+/=-]{8,})`,
	`(?i)(?:passw(?:or)?d|passphrase|secret|token|api[_-]?key|access[_-]?key)["']?\s*[=:]\s*["']?([^\s"'&,;]+)`,
	`://[^/\s:@]*:([^@\s/]+)@`,
	`\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}|xox[abprs]-[A-Za-z0-9-]{10,}|A[KS]IA[0-9A-Z]{16}|sk-[A-Za-z0-9_-]{16,})`,
	`-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]*(?:-----END [A-Z ]*PRIVATE KEY-----)?`,
}

// secretFlag is an argument whose next one is a secret. The command line links this package
// and mostly does without: nothing is compiled when a process starts.
var secretFlag = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)^--?[a-z0-9-]*(?:passw(?:or)?d|passphrase|secret|token|api-?key)$`)
})

// redactor takes secrets out of records.
type redactor struct{ patterns []*regexp.Regexp }

func newRedactor(own []string) (*redactor, error) {
	r := &redactor{}
	for _, p := range append(slices.Clone(patterns), own...) {
		re, err := regexp.Compile(p)
		if err != nil {
			return nil, fmt.Errorf("audit.redact: %w", err)
		}
		r.patterns = append(r.patterns, re)
	}
	return r, nil
}

// clean encodes data without secrets: every string in it, wherever it is.
func (r *redactor) clean(data any, secrets []map[string]string) (json.RawMessage, error) {
	text, err := json.Marshal(data)
	if err != nil {
		return nil, fmt.Errorf("encode a record: %w", err)
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, fmt.Errorf("encode a record: %w", err)
	}
	if text, err = json.Marshal(r.walk(v, replacer(secrets))); err != nil {
		return nil, fmt.Errorf("encode a record: %w", err)
	}
	return text, nil
}

// replacer puts the names of variables in the place of their values, of the longest first.
func replacer(secrets []map[string]string) *strings.Replacer {
	type pair struct{ value, name string }
	var list []pair
	for _, env := range secrets {
		for name, value := range env {
			// In pieces: the time to look for one grows with its length, at each byte.
			for ; len(value) >= minSecret; value = value[min(len(value), maxPiece):] {
				list = append(list, pair{value[:min(len(value), maxPiece)], name})
			}
		}
	}
	if len(list) == 0 {
		return nil
	}
	slices.SortFunc(list, func(a, b pair) int {
		return cmp.Or(cmp.Compare(len(b.value), len(a.value)), cmp.Compare(a.name, b.name))
	})
	args := make([]string, 0, 2*len(list))
	for _, p := range list {
		args = append(args, p.value, "[env "+p.name+"]")
	}
	return strings.NewReplacer(args...)
}

func (r *redactor) walk(v any, env *strings.Replacer) any {
	switch v := v.(type) {
	case string:
		return r.text(v, env)
	case []any:
		hide := false
		for i := range v {
			s, isText := v[i].(string)
			if v[i] = r.walk(v[i], env); hide && isText {
				v[i] = redacted
			}
			hide = isText && secretFlag().MatchString(s)
		}
	case map[string]any:
		for name := range v {
			v[name] = r.walk(v[name], env)
		}
	}
	return v
}

func (r *redactor) text(s string, env *strings.Replacer) string {
	more := 0
	if most := maxString + 4096; len(s) > most { // so much of it that no secret is cut where the record ends
		s, more = s[:most], len(s)-most
	}
	if env != nil {
		s = env.Replace(s)
	}
	for _, p := range r.patterns {
		s = replace(p, s)
	}
	if len(s) > maxString {
		s = fmt.Sprintf("%s[and %d bytes more]", trimRune([]byte(s[:maxString])), len(s)-maxString+more)
	}
	return s
}

// replace leaves out the first group of each match, or the match where there is none.
func replace(p *regexp.Regexp, s string) string {
	var b strings.Builder
	done := 0
	for _, m := range p.FindAllStringSubmatchIndex(s, -1) {
		from, to := m[0], m[1]
		if len(m) > 2 && m[2] >= 0 {
			from, to = m[2], m[3]
		}
		if from == to || strings.HasPrefix(s[from:to], "[env ") {
			continue
		}
		b.WriteString(s[done:from])
		b.WriteString(redacted)
		done = to
	}
	if done == 0 {
		return s
	}
	b.WriteString(s[done:])
	return b.String()
}
