package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"
)

// maxEnvLine bounds one line of an env file, in bytes: execve(2) refuses a
// longer string (MAX_ARG_STRLEN, 32 pages).
const maxEnvLine = 128 << 10

// Env collects --env-file and --env, in this order: later values win. A name
// without "=" takes the caller's own value, and is left out when there is none.
func Env(files, values []string) (map[string]string, error) {
	env := make(map[string]string)
	for _, name := range files {
		if err := addEnvFile(env, name); err != nil {
			return nil, err
		}
	}
	for _, v := range values {
		if err := addEnv(env, v, os.LookupEnv); err != nil {
			return nil, err
		}
	}
	return env, nil
}

func addEnvFile(env map[string]string, name string) error {
	f, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("--env-file: %w", err)
	}
	defer f.Close()
	if err := parseEnvFile(env, f, os.LookupEnv); err != nil {
		return fmt.Errorf("--env-file %s: %w", name, err)
	}
	return nil
}

// parseEnvFile reads docker's format: one NAME=VALUE or NAME a line, the value
// taken as it stands, without quotes or expansion; empty lines and lines that
// start with # are skipped.
func parseEnvFile(env map[string]string, r io.Reader, lookup func(string) (string, bool)) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxEnvLine)
	n := 0
	for lines.Scan() {
		n++
		line := strings.TrimLeftFunc(lines.Text(), unicode.IsSpace)
		if n == 1 {
			line = strings.TrimPrefix(line, "\ufeff") // editors on other systems leave a byte order mark
		}
		if line == "" || line[0] == '#' {
			continue
		}
		if err := addEnv(env, line, lookup); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return fmt.Errorf("line %d is longer than %d bytes", n+1, maxEnvLine)
	}
	return lines.Err()
}

// addEnv adds one NAME=VALUE or NAME.
func addEnv(env map[string]string, s string, lookup func(string) (string, bool)) error {
	name, value, given := strings.Cut(s, "=")
	if name == "" || strings.ContainsFunc(name, unicode.IsSpace) {
		return fmt.Errorf("%q is not NAME=VALUE or NAME", s)
	}
	if strings.ContainsRune(s, 0) {
		return fmt.Errorf("variable %q holds a NUL byte", name)
	}
	if !given {
		if value, given = lookup(name); !given {
			return nil
		}
	}
	env[name] = value
	return nil
}
