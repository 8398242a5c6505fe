package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// install installs what the suites need: of JavaScript as their lock files say, in the checkouts, without running the
// packages' scripts; of Python what their projects ask for, in an environment of its own.
func install(ctx context.Context, cache, e2b, code string) error {
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return err
	}
	manager, err := packageManager(e2b)
	if err != nil {
		return err
	}
	python := filepath.Join(e2b, "packages/python-sdk")
	pip := filepath.Join(cache, "python/bin/pip")
	steps := [][]string{
		{"npm", "install", "--silent", "--no-fund", "--no-audit", "--prefix", cache, manager},
		pnpm(cache, e2b, "e2b"),
		{"python3", "-m", "venv", filepath.Join(cache, "python")},
		{pip, "install", "--quiet", "--upgrade", "pip"},
		{pip, "install", "--quiet", python, "--group", filepath.Join(python, "pyproject.toml") + ":dev"},
	}
	if code != "" {
		steps = append(steps, pnpm(cache, code, "@e2b/code-interpreter"),
			[]string{pip, "install", "--quiet", filepath.Join(code, "python"), "matplotlib"})
	}
	for _, step := range steps {
		fmt.Println("  INSTALL  ", strings.Join(step, " "))
		cmd := exec.CommandContext(ctx, step[0], step[1:]...)
		cmd.Env = append(os.Environ(), "CI=true")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", strings.Join(step, " "), err, tail(string(out), 2000))
		}
	}
	return nil
}

// pnpm installs a package of a checkout by pnpm, whatever version of Node some tool of it would rather have.
func pnpm(cache, checkout, name string) []string {
	return []string{filepath.Join(cache, "node_modules/.bin/pnpm"), "--dir", checkout, "--filter", name, "install",
		"--frozen-lockfile", "--ignore-scripts", "--config.engine-strict=false"}
}

// packageManager is the version of pnpm that a checkout wants.
func packageManager(checkout string) (string, error) {
	text, err := os.ReadFile(filepath.Join(checkout, "package.json"))
	if err != nil {
		return "", fmt.Errorf("%s is no checkout of E2B's: %w", checkout, err)
	}
	var p struct {
		PackageManager string `json:"packageManager"`
	}
	if err := json.Unmarshal(text, &p); err != nil {
		return "", fmt.Errorf("%s: %w", filepath.Join(checkout, "package.json"), err)
	}
	name, _, _ := strings.Cut(p.PackageManager, "+")
	if !strings.HasPrefix(name, "pnpm@") {
		return "", fmt.Errorf("%s: it is installed by %q, and not by pnpm", checkout, p.PackageManager)
	}
	return name, nil
}

// tail is the end of a text.
func tail(text string, n int) string { return text[max(0, len(text)-n):] }
