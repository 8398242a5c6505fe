package testplan

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// MemoryFile is the place of the memory below the module's root.
const MemoryFile = ".ci/unstable"

// Memory holds the tests that were unstable once, with what is known of each.
type Memory map[string]string

// ParseMemory reads a memory: a line holds a test's name as .ci/must-run spells it, and what is known. Empty lines and
// lines starting with # say nothing.
func ParseMemory(r io.Reader) (Memory, error) {
	m := Memory{}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		name, known, _ := strings.Cut(strings.TrimSpace(lines.Text()), " ")
		switch {
		case name == "" || strings.HasPrefix(name, "#"):
		case !strings.Contains(name, "."):
			return nil, fmt.Errorf("line %d: %q is no test: want FOLDER.TestName and what is known of it", n, name)
		case strings.TrimSpace(known) == "":
			return nil, fmt.Errorf("line %d: say when and how %s was unstable", n, name)
		default:
			m[name] = strings.TrimSpace(known)
		}
	}
	return m, lines.Err()
}

// ReadMemory parses MemoryFile below root; no file is an empty one.
func ReadMemory(root string) (Memory, error) {
	name := filepath.Join(root, MemoryFile)
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return Memory{}, nil
	} else if err != nil {
		return nil, err
	}
	defer f.Close()
	m, err := ParseMemory(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return m, nil
}
