package main

import "testing"

func TestVersions(t *testing.T) {
	for text, want := range map[string]string{
		"Python 3.11.2\n": "3.11.2",
		"v20.19.2\n":      "20.19.2",
		"GNU bash, version 5.2.15(1)-release (x86_64-pc-linux-gnu)\nCopyright (C) 2022": "5.2.15",
		"go version go1.26.1 linux/amd64\n":                                             "1.26.1",
		"rustc 1.88.0 (6b00bc388 2025-06-23)\n":                                         "1.88.0",
		"ruby 3.1.2p20 (2022-04-12 revision 4491bb740a) [x86_64-linux-gnu]\n":           "3.1.2",
		"no version\n1.2.3\n":                                                           "",
		"":                                                                              "",
	} {
		if got := versionOf([]byte(text)); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	for _, tt := range []struct {
		want, have string
		is         bool
	}{
		{"3.12", "3.12.1", true}, {"3", "3.12.1", true}, {"3.12.1", "3.12.1", true},
		{"3.1", "3.12.1", false}, {"3.12.1", "3.12", false}, {"3.12-bookworm", "3.12.1", false}, {"3.12", "", false},
		{"", "3.12", false},
	} {
		if isVersionOf(tt.want, tt.have) != tt.is {
			t.Errorf("%s of %s: not %v", tt.want, tt.have, tt.is)
		}
	}
}
