package main

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strings"
	"sync"

	"github.com/hutch-sh/hutch/internal/cli"
)

// placeholder is what a format can have: {{.Field}}, {{.Field.Below}} and {{json .Field}}. Go's templates would be more
// than people use, and make each start of the program slower.
var placeholder = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\{\{\s*(json\s+)?\.([A-Za-z0-9_.]*)\s*\}\}`) })

// formatter writes records as --format says.
type formatter struct {
	table  bool
	format string
}

// parseFormat checks the value of --format.
func parseFormat(text string) (*formatter, error) {
	f := &formatter{format: text}
	f.format, f.table = strings.CutPrefix(text, "table ")
	f.format = strings.NewReplacer(`\t`, "\t", `\n`, "\n").Replace(f.format)
	if text == "json" {
		f.format = "{{json .}}"
	}
	if rest := placeholder().ReplaceAllString(f.format, ""); strings.Contains(rest, "{{") {
		return nil, fmt.Errorf("--format %q: it takes {{.FIELD}}, {{json .FIELD}}, json and table", text)
	}
	return f, nil
}

// print writes a line for each record.
func (f *formatter) print(w io.Writer, list ...any) error {
	if !f.table {
		for _, r := range list {
			line, err := f.line(r)
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintln(w, line); err != nil {
				return err
			}
		}
		return nil
	}
	t := cli.Table{}
	for _, field := range placeholder().FindAllStringSubmatch(f.format, -1) {
		t.Header = append(t.Header, strings.ToUpper(field[2]))
	}
	for _, r := range list {
		line, err := f.line(r)
		if err != nil {
			return err
		}
		t.Row(strings.Split(line, "\t")...)
	}
	t.Print(w, "", nil)
	return nil
}

// line is the text for a record.
func (f *formatter) line(r any) (string, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return "", err
	}
	var record any
	if err := json.Unmarshal(text, &record); err != nil {
		return "", err
	}
	var bad error
	line := placeholder().ReplaceAllStringFunc(f.format, func(m string) string {
		parts := placeholder().FindStringSubmatch(m)
		v, err := fieldOf(record, reflect.TypeOf(r), parts[2])
		if err != nil {
			bad = err
			return ""
		}
		if s, ok := v.(string); ok && parts[1] == "" {
			return plain(s)
		}
		if v == nil && parts[1] == "" {
			return ""
		}
		text, _ := json.Marshal(v) // it was JSON
		return string(text)
	})
	return line, bad
}

// fieldAliases are docker's names of fields.
var fieldAliases = map[string]string{"names": "name", "status": "state", "createdat": "created",
	"config.image": "image", "state.status": "state", "state.pid": "pid"}

// fieldOf finds a field of a record, by its name in JSON, or as Go and docker write it: NetworkMode is network_mode.
// One that is left out is nil.
func fieldOf(record any, of reflect.Type, name string) (any, error) {
	if name == "" {
		return record, nil
	}
	if alias, ok := fieldAliases[strings.ToLower(name)]; ok {
		name = alias
	}
	v := record
	for part := range strings.SplitSeq(name, ".") {
		m, _ := v.(map[string]any)
		v = nil
		for key, value := range m {
			if sameName(key, part) {
				v = value
			}
		}
		var ok bool
		if of, ok = fieldType(of, part); !ok {
			return nil, fmt.Errorf("--format: there is no field .%s; --json shows all", name)
		}
	}
	return v, nil
}

func sameName(a, b string) bool {
	return strings.EqualFold(strings.ReplaceAll(a, "_", ""), strings.ReplaceAll(b, "_", ""))
}

// fieldType is the type of a field that a type has in JSON. What is no struct may have any.
func fieldType(of reflect.Type, name string) (reflect.Type, bool) {
	for of != nil && of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	if of == nil || of.Kind() != reflect.Struct {
		return nil, of == nil || of.Kind() == reflect.Map || of.Kind() == reflect.Interface
	}
	for i := range of.NumField() {
		f := of.Field(i)
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && tag == "" {
			if t, ok := fieldType(f.Type, name); ok {
				return t, true
			}
		}
		if tag != "" && tag != "-" && sameName(tag, name) {
			return f.Type, true
		}
	}
	return nil, false
}
