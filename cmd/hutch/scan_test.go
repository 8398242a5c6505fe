package main

import (
	"bytes"
	"testing"

	"github.com/hutch-sh/hutch/runtime/api"
)

func TestScanLanguage(t *testing.T) {
	for _, tt := range []struct{ name, code, want string }{
		{"a.py", "", "python"}, {"b/a.mjs", "", "javascript"}, {"a.bash", "#!/usr/bin/python", "shell"},
		{"-", "#!/usr/bin/env python3.12\nx", "python"}, {"a", "#!/usr/bin/env -S node --x", "javascript"}, {"a", "#! /bin/sh -e\n", "shell"},
		{"a", "x = 1", ""}, {"a", "#!/usr/bin/perl\n# python", ""}, {"a.txt", "#!/usr/bin/env -S a b python", ""},
	} {
		if got, err := scanLanguage(tt.name, tt.code); got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%s %q: %q, %v, want %q", tt.name, tt.code, got, err, tt.want)
		}
	}
}

// TestPrintFindings: what code says of itself can not write over a terminal.
func TestPrintFindings(t *testing.T) {
	var b bytes.Buffer
	res := api.ScanResult{Truncated: true, Findings: []api.Finding{{Rule: "r", Severity: "high", Line: 2, Column: 3, Text: "a\x1b[2J", Why: "why"}}}
	if err := printFindings(&b, "f.py", &res); err != nil || bytes.ContainsRune(b.Bytes(), 0x1b) || !bytes.HasPrefix(b.Bytes(), []byte("f.py:2:3: high: why: a")) {
		t.Errorf("%q, %v", b.String(), err)
	}
}
