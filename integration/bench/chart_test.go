package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestCharts: each names subjects that exist, and is well-formed whatever was measured.
func TestCharts(t *testing.T) {
	var r Report
	for _, s := range subjects() {
		r.Results = append(r.Results, Result{Name: s.Name, Wall: &Summary{N: 3, Min: 1, Median: 2, P90: 4}})
	}
	r.Machine.Kernel = `6.1<&">`
	for _, c := range charts {
		for _, name := range c.subjects {
			if !slices.ContainsFunc(r.Results, func(res Result) bool { return res.Name == name }) {
				t.Errorf("chart %s: no subject %s", c.file, name)
			}
		}
	}
	dir := filepath.Join(t.TempDir(), "new")
	if err := r.writeCharts(dir); err != nil {
		t.Fatal(err)
	}
	for _, c := range charts {
		text, err := os.ReadFile(filepath.Join(dir, c.file+".svg"))
		if err != nil {
			t.Fatal(err)
		}
		d := xml.NewDecoder(strings.NewReader(string(text)))
		for err == nil {
			_, err = d.Token()
		}
		if !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v\n%s", c.file, err, text)
		}
		if !strings.Contains(string(text), c.subjects[0]) {
			t.Errorf("%s does not name %s", c.file, c.subjects[0])
		}
	}
	// What was not measured is left out, and a picture of one bar says nothing.
	r.Results = r.Results[:1]
	empty := filepath.Join(t.TempDir(), "empty")
	if err := r.writeCharts(empty); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(empty); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}
