package cli

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/internal/testenv/cost"
)

func TestParseEnvFile(t *testing.T) {
	lookup := func(name string) (string, bool) {
		v, ok := map[string]string{"HOST": "from host", "EMPTY": ""}[name]
		return v, ok
	}
	for _, tt := range []struct {
		name, text string
		want       map[string]string
		err        string
	}{
		{"empty", "", map[string]string{}, ""},
		{"plain", "A=1\nB=two words\n", map[string]string{"A": "1", "B": "two words"}, ""},
		{"comments and blanks", "# c\n\n  # d\n\t\nA=1", map[string]string{"A": "1"}, ""},
		{"quotes are kept", `A="x" # y`, map[string]string{"A": `"x" # y`}, ""},
		{"leading space", "  A=1 ", map[string]string{"A": "1 "}, ""},
		{"equals in the value", "A=b=c", map[string]string{"A": "b=c"}, ""},
		{"empty value", "A=", map[string]string{"A": ""}, ""},
		{"from the host", "HOST\nEMPTY\nUNSET\n", map[string]string{"HOST": "from host", "EMPTY": ""}, ""},
		{"the last one counts", "A=1\nA=2", map[string]string{"A": "2"}, ""},
		{"carriage returns", "A=1\r\nB=2\r\n", map[string]string{"A": "1", "B": "2"}, ""},
		{"byte order mark", "\ufeffA=1", map[string]string{"A": "1"}, ""},
		{"no name", "A=1\n=x", nil, "line 2"},
		{"space in the name", "A B=1", nil, "line 1"},
		{"NUL", "A=\x00", nil, "NUL"},
		{"long line", "A=1\nB=" + strings.Repeat("x", maxEnvLine), nil, "line 2 is longer"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			env := map[string]string{}
			err := parseEnvFile(env, strings.NewReader(tt.text), lookup)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("got %v, want an error with %q", err, tt.err)
				}
				return
			}
			if err != nil || !reflect.DeepEqual(env, tt.want) {
				t.Errorf("got %q, %v, want %q", env, err, tt.want)
			}
		})
	}
}

func FuzzParseEnvFile(f *testing.F) {
	for _, s := range []string{"A=1\n", "# x\nB", "\ufeffC=\r\n", "=", "A B=1", "A=\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var env map[string]string
		var err error
		cost.Input(t, text, func(text string) {
			env = map[string]string{}
			err = parseEnvFile(env, strings.NewReader(text), os.LookupEnv)
		})
		if err != nil {
			return
		}
		for name, value := range env {
			if name == "" || strings.ContainsAny(name, "=\x00\n ") || strings.ContainsAny(value, "\x00\n") {
				t.Errorf("%q gave %q=%q", text, name, value)
			}
		}
	})
}

func TestEnvPrecedence(t *testing.T) {
	file := filepath.Join(t.TempDir(), "env")
	if err := os.WriteFile(file, []byte("A=file\nB=file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HUTCH_TEST_C", "host")
	got, err := Env([]string{file}, []string{"A=flag", "HUTCH_TEST_C", "HUTCH_TEST_UNSET"})
	want := map[string]string{"A": "flag", "B": "file", "HUTCH_TEST_C": "host"}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	if _, err := Env([]string{file + ".none"}, nil); err == nil || !strings.Contains(err.Error(), file+".none") {
		t.Errorf("missing file: %v", err)
	}
}
