package testenv

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"
)

// Golden reads a file that a build before has written into a value, writes that again, and fails where something of the
// file is lost or has changed: what a daemon writes, the next one reads, whichever build it is of. Members may be
// added.
func Golden[T any](t *testing.T, file string) T {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var v T
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	again, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	for _, lost := range Lost(data, again) {
		t.Errorf("%s: %s", file, lost)
	}
	return v
}

// Lost lists what one JSON document says and another does not.
func Lost(before, after []byte) []string {
	var old, now any
	for data, into := range map[*any][]byte{&old: before, &now: after} {
		d := json.NewDecoder(bytes.NewReader(into))
		d.UseNumber()
		if err := d.Decode(data); err != nil {
			return []string{err.Error()}
		}
	}
	return lost("", old, now)
}

func lost(at string, old, now any) (all []string) {
	switch o := old.(type) {
	case map[string]any:
		n, ok := now.(map[string]any)
		if !ok && len(o) > 0 {
			return []string{fmt.Sprintf("%s was %v, is %v", at, old, now)}
		}
		for name, v := range o {
			if n[name] == nil && v != nil {
				all = append(all, fmt.Sprintf("%s.%s is lost, which was %v", at, name, v))
			} else {
				all = append(all, lost(at+"."+name, v, n[name])...)
			}
		}
		slices.Sort(all)
	case []any:
		n, _ := now.([]any)
		if len(n) != len(o) {
			return []string{fmt.Sprintf("%s has %d, had %d", at, len(n), len(o))}
		}
		for i := range o {
			all = append(all, lost(fmt.Sprintf("%s[%d]", at, i), o[i], n[i])...)
		}
	default:
		if old != now && old != nil {
			all = append(all, fmt.Sprintf("%s was %v, is %v", at, old, now))
		}
	}
	return all
}
