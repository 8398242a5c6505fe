package config

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/hutch-sh/hutch/runtime/api"
)

func TestLoad(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       Config // zero: refused
	}{
		{"empty", "", Config{"host", Exec{180, 1800}}},
		{"all", "image: a\nexec:\n  timeout_s: 5\n  max_timeout_s: 60\n", Config{"a", Exec{5, 60}}},
		{"the default follows a small maximum", "exec: {max_timeout_s: 60}\n", Config{"host", Exec{60, 60}}},
		{"the maximum follows a large default", "exec: {timeout_s: 7200}\n", Config{"host", Exec{7200, 7200}}},
		{"unknown field", "exec: {max_timeout: 60}\n", Config{}},
		{"a section of another build", "other: 1\n", Config{"host", Exec{180, 1800}}},
		{"more than the maximum", "exec: {timeout_s: 61, max_timeout_s: 60}\n", Config{}},
		{"negative", "exec: {timeout_s: -1}\n", Config{}},
		{"no number", "exec: {timeout_s: .nan}\n", Config{}},
		{"no yaml", "{", Config{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "config.yaml")
			if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := Load(path)
			if tt.want == (Config{}) {
				if !errors.Is(err, &api.Error{Code: api.InvalidArgument}) {
					t.Errorf("%+v, %v", got, err)
				}
			} else if got != tt.want || err != nil {
				t.Errorf("%+v, %v, want %+v", got, err, tt.want)
			}
		})
	}
	if got, err := Load(filepath.Join(t.TempDir(), "none")); err != nil || got != (Config{"host", Exec{180, 1800}}) {
		t.Errorf("without a file: %+v, %v", got, err)
	}
	if _, err := Load(t.TempDir()); err == nil {
		t.Error("a folder was read")
	}
}
