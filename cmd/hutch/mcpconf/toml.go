package mcpconf

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/BurntSushi/toml"
)

// table is a file with TOML, in which servers are tables below this one: [mcp_servers.NAME]. No library edits TOML and
// keeps its comments. So lines are cut and appended, and what comes of that is read again: it must say what was meant,
// and nothing else may differ, or the user is told to do it.
type table string

var errByHand = errors.New("it is written in a way that this cannot edit")

func (t table) add(file []byte, name string, command []string) ([]byte, error) {
	before, err := t.read(file)
	if err != nil {
		return nil, err
	}
	changed := t.without(file, name)
	if len(bytes.TrimSpace(changed)) > 0 {
		changed = append(bytes.TrimRight(changed, "\n"), "\n\n"...)
	}
	changed = append(changed, t.show(name, command)+"\n"...)
	args := make([]any, 0, len(command))
	for _, arg := range command[1:] {
		args = append(args, arg)
	}
	return changed, t.check(before, changed, name, map[string]any{"command": command[0], "args": args})
}

func (t table) remove(file []byte, name string) ([]byte, bool, error) {
	before, err := t.read(file)
	if err != nil {
		return nil, false, err
	}
	if servers, _ := before[string(t)].(map[string]any); servers[name] == nil {
		return file, false, nil
	}
	changed := t.without(file, name)
	return changed, true, t.check(before, changed, name, nil)
}

func (t table) show(name string, command []string) string {
	var args []string
	for _, arg := range command[1:] {
		args = append(args, quote(arg))
	}
	return fmt.Sprintf("[%s.%s]\ncommand = %s\nargs = [%s]", t, name, quote(command[0]), strings.Join(args, ", "))
}

// quote is a basic string of TOML.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteRune('\\')
			b.WriteRune(r)
		case r < ' ' || r == 0x7f:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

func (t table) read(file []byte) (map[string]any, error) {
	all := make(map[string]any)
	if err := toml.Unmarshal(file, &all); err != nil {
		return nil, err
	}
	return all, nil
}

// without is file without the lines of a server's table and those below it.
func (t table) without(file []byte, name string) []byte {
	own := string(t) + "." + name
	var kept []string
	skip := false
	for line := range strings.Lines(string(file)) {
		if header, ok := strings.CutPrefix(strings.TrimSpace(line), "["); ok {
			header, _, _ = strings.Cut(header, "]")
			header = strings.NewReplacer(" ", "", `"`, "", "'", "").Replace(header)
			skip = header == own || strings.HasPrefix(header, own+".")
		}
		if !skip {
			kept = append(kept, line)
		}
	}
	return []byte(strings.Join(kept, ""))
}

// check fails unless changed is what before is, with this server, or without it.
func (t table) check(before map[string]any, changed []byte, name string, server map[string]any) error {
	after, err := t.read(changed)
	if err != nil {
		return errByHand
	}
	servers := func(all map[string]any) map[string]any { m, _ := all[string(t)].(map[string]any); return m }
	got := servers(after)[name]
	for _, all := range []map[string]any{before, after} {
		delete(servers(all), name)
		if len(servers(all)) == 0 {
			delete(all, string(t))
		}
	}
	want := any(server)
	if server == nil {
		want = nil
	}
	if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(before, after) {
		return errByHand
	}
	return nil
}
