// Package flaky has tests that fail when the runner's own tests want them to: HUTCH_FLAKY names a folder with a file for each test
// that is to fail, which holds how often.
package flaky

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/internal/testenv"
)

// failing reports whether t is to fail, and counts down.
func failing(t *testing.T) bool {
	name := filepath.Join(os.Getenv("HUTCH_FLAKY"), t.Name())
	text, err := os.ReadFile(name)
	if err != nil {
		return false
	}
	// How the next runs end: F fails, anything else passes.
	runs := strings.TrimSpace(string(text))
	if runs == "" {
		return false
	}
	if err := os.WriteFile(name, []byte(runs[1:]), 0o644); err != nil {
		t.Fatal(err)
	}
	return runs[0] == 'F'
}

// TestMain finds, when it is told to, that the tests left something behind, which none of them knows.
func TestMain(m *testing.M) {
	code := m.Run()
	if _, err := os.Stat(filepath.Join(os.Getenv("HUTCH_FLAKY"), "leak")); err == nil {
		code = max(code, 1)
	}
	os.Exit(code)
}

func TestLate(t *testing.T) {
	if failing(t) {
		testenv.Within(t, make(chan int), 1, "the wait of run "+strconv.Itoa(os.Getpid()))
	}
}

func TestLateToo(t *testing.T) {
	if failing(t) {
		testenv.Late(t, "another wait")
	}
}

func TestLeak(t *testing.T) {
	if failing(t) {
		t.Cleanup(func() { testenv.Wrong(t, "left behind: process 1") })
		testenv.Late(t, "the end of process 1: not within 20s")
	}
}

func TestWrong(t *testing.T) {
	if failing(t) {
		t.Error("one is not two")
	}
}

func TestPanic(t *testing.T) {
	if failing(t) {
		panic("oh")
	}
}
