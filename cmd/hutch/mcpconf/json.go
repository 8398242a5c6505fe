package mcpconf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tailscale/hujson"
)

// object is a file with JSON, with comments where its program allows them. Servers are members of its member key, as
// entry describes them.
type object struct {
	key   string
	entry func(command []string) any
}

func commandAndArgs(command []string) any {
	return struct {
		Command string   `json:"command"`
		Args    []string `json:"args"`
	}{command[0], command[1:]}
}

func stdio(command []string) any {
	return struct {
		Type    string   `json:"type"`
		Command string   `json:"command"`
		Args    []string `json:"args"`
	}{"stdio", command[0], command[1:]}
}

func local(command []string) any {
	return struct {
		Type    string   `json:"type"`
		Command []string `json:"command"`
		Enabled bool     `json:"enabled"`
	}{"local", command, true}
}

func (o object) add(file []byte, name string, command []string) ([]byte, error) {
	if len(bytes.TrimSpace(file)) == 0 {
		file = []byte("{}\n")
	}
	root, whole, err := parse(file)
	if err != nil {
		return nil, err
	}
	unit := indentation(root)
	servers, err := o.servers(root, unit)
	if err != nil {
		return nil, err
	}
	entry, err := hujson.Parse(o.encode(command, unit+unit, unit))
	if err != nil {
		return nil, err
	}
	put(servers, name, entry, unit, 2)
	return whole.Pack(), nil
}

func (o object) remove(file []byte, name string) ([]byte, bool, error) {
	root, whole, err := parse(file)
	if err != nil {
		return nil, false, err
	}
	i := member(root, o.key)
	if i < 0 {
		return file, false, nil
	}
	servers, ok := root.Members[i].Value.Value.(*hujson.Object)
	if !ok || member(servers, name) < 0 {
		return file, false, nil
	}
	// It knows which comma goes with it. In a pointer only ~ and / have a meaning of their own.
	path := strings.NewReplacer("~", "~0", "/", "~1")
	patch, err := json.Marshal([]any{map[string]string{"op": "remove",
		"path": "/" + path.Replace(o.key) + "/" + path.Replace(name)}})
	if err != nil {
		return nil, false, err
	}
	if err := whole.Patch(patch); err != nil {
		return nil, false, err
	}
	return whole.Pack(), true, nil
}

func (o object) show(name string, command []string) string {
	return fmt.Sprintf("%q: {%q: %s}", o.key, name, o.encode(command, "", "  "))
}

// servers is the object that holds them, which is made where it is missing.
func (o object) servers(root *hujson.Object, unit string) (*hujson.Object, error) {
	i := member(root, o.key)
	if i < 0 {
		put(root, o.key, hujson.Value{Value: &hujson.Object{}}, unit, 1)
		i = len(root.Members) - 1
	}
	servers, ok := root.Members[i].Value.Value.(*hujson.Object)
	if !ok {
		return nil, fmt.Errorf("its member %q is no object", o.key)
	}
	return servers, nil
}

func (o object) encode(command []string, prefix, indent string) []byte {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent(prefix, indent)
	_ = e.Encode(o.entry(command)) // strings always encode
	return bytes.TrimSpace(text.Bytes())
}

// parse returns the object that a file is, which lies in whole.
func parse(file []byte) (root *hujson.Object, whole *hujson.Value, err error) {
	value, err := hujson.Parse(file)
	if err != nil {
		return nil, nil, err
	}
	root, ok := value.Value.(*hujson.Object)
	if !ok {
		return nil, nil, errors.New("it is no JSON object")
	}
	return root, &value, nil
}

// member is the index of a member, -1 where there is none. Of two with one name programs use the last.
func member(o *hujson.Object, name string) int {
	for i, m := range slices.Backward(o.Members) {
		if key, ok := m.Name.Value.(hujson.Literal); ok && key.String() == name {
			return i
		}
	}
	return -1
}

// put sets a member. A new one gets a line of its own, which is indented so often.
func put(o *hujson.Object, name string, value hujson.Value, unit string, depth int) {
	if i := member(o, name); i >= 0 {
		old := &o.Members[i].Value
		value.BeforeExtra, value.AfterExtra = old.BeforeExtra, old.AfterExtra
		*old = value
		return
	}
	// What is said after the last member stays with it.
	said := bytes.TrimRight(o.AfterExtra, " \t\r\n")
	if !bytes.Contains(o.AfterExtra[len(said):], []byte("\n")) {
		o.AfterExtra = hujson.Extra("\n" + strings.Repeat(unit, depth-1))
	} else {
		o.AfterExtra = bytes.Clone(o.AfterExtra[len(said):])
	}
	value.BeforeExtra = hujson.Extra(" ")
	o.Members = append(o.Members, hujson.ObjectMember{
		Name: hujson.Value{
			BeforeExtra: slices.Concat(said, []byte("\n"+strings.Repeat(unit, depth))), Value: hujson.String(name),
		},
		Value: value,
	})
}

// indentation is by how much the file indents; two spaces where nothing shows it.
func indentation(root *hujson.Object) string {
	if len(root.Members) > 0 {
		before := string(root.Members[0].Name.BeforeExtra)
		line := before[strings.LastIndex(before, "\n")+1:]
		if line != before && line != "" && strings.Trim(line, " \t") == "" {
			return line
		}
	}
	return "  "
}
