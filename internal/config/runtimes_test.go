package config

import (
	"reflect"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/internal/yamltree/yamlread"
	"github.com/hutch-sh/hutch/runtime/api"
)

func TestRuntimes(t *testing.T) {
	c, err := Parse([]byte(`
runtimes:
  python@3.12: registry.example.com/py:312
  "node@*": "registry.example.com/node:*-mine"
  tools: tools@2
  "tools@*": 127.0.0.1:5000/tools:v*
  ruby: docker.io/library/ruby:latest
`), yamlread.Parse)
	if err != nil {
		t.Fatal(err)
	}
	digest := "python@sha256:" + strings.Repeat("0", 64)
	for name, want := range map[string]string{
		"python": "registry.example.com/py:312", "python@3.12": "registry.example.com/py:312",
		"python@3.11": "docker.io/library/python:3.11-slim",
		"node":        "registry.example.com/node:20-mine", "node@22": "registry.example.com/node:22-mine",
		"bash": "docker.io/library/bash:5", "go@1.24": "docker.io/library/golang:1.24",
		"rust":  "docker.io/library/rust:1-slim",
		"tools": "127.0.0.1:5000/tools:v2", "ruby": "docker.io/library/ruby:latest",
		// What is none stays as it is.
		"host": "host", "debian:12": "debian:12", "python:latest": "python:latest", digest: digest,
		"python@": "python@", "python@a/b": "python@a/b",
		"perl@5": "perl@5", "": "",
	} {
		if got, err := c.Runtimes.Resolve(name); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", name, got, err, want)
		}
	}
	if got, err := Runtimes(nil).Resolve("python"); err != nil || got != "docker.io/library/python:3.12-slim" {
		t.Errorf("%q, %v", got, err)
	}
	for name, want := range map[string]string{
		"node@22": "", "python": "", "tools": "", "ruby": "", "host": "", "debian:12": "", digest: "", "perl@5": "",
		"python@3.11": "python 3.11", "bash": "bash 5", "go@1.24": "go 1.24", "rust@1.88.0": "rust 1.88.0",
	} {
		tool, version, ok := c.Runtimes.Tool(name)
		if got := strings.TrimSpace(tool + " " + version); got != want || ok != (want != "") {
			t.Errorf("%s: tool %q, %v, want %q", name, got, ok, want)
		}
	}
	// What Print writes means the same.
	var b strings.Builder
	if err := Print(&b, c, false); err != nil {
		t.Fatal(err)
	}
	if again, err := Parse([]byte(b.String()), yamlread.Parse); err != nil ||
		!reflect.DeepEqual(again.Runtimes, c.Runtimes) {
		t.Errorf("%v, %v", again.Runtimes, err)
	}
	for text, words := range map[string]string{
		"runtimes: [a]":                      "expected names",
		"runtimes: {host: x}":                "built in",
		"runtimes: {host@1: x}":              "built in",
		"runtimes: {a/b: x}":                 "a/b",
		"runtimes: {a: ''}":                  "no image",
		"runtimes: {a: 'b c'}":               "no image",
		"runtimes: {a: 'b:*'}":               "stands for the version",
		"runtimes: {'a@*': 'b:*-*'}":         "stands for the version",
		"runtimes: {a: [b]}":                 "expected an image",
		"runtimes: {a: b, b: a}":             "circles",
		"runtimes: {'a@*': 'a@1*'}":          "circles",
		"runtimes:\n  a: b\n  a: c":          "a is set already",
		"runtimes: {a: b}\nruntimes: {c: d}": "set in line 1",
	} {
		if _, err := Parse([]byte(text), yamlread.Parse); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v, want %q", text, err, words)
		}
	}
	if _, err := (Runtimes{"a": "b", "b": "a"}).Resolve("a"); api.ErrorCode(err) != api.FailedPrecondition {
		t.Errorf("circle: %v", err)
	}
}
