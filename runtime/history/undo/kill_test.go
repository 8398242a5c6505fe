package undo

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/testenv"
)

const (
	killRounds   = 40
	restoreEvery = 5 // checkpoints
	killTree     = "HUTCH_TEST_UNDO_TREE"
)

// TestKill: a process that makes checkpoints and restores them is killed at any moment. What it has said that there is
// is there, each checkpoint whole and of one time, and nothing else is left.
func TestKill(t *testing.T) {
	if tree := os.Getenv(killTree); tree != "" {
		saveForEver(t, tree)
	}
	base := t.TempDir()
	tree := filepath.Join(base, "tree")
	must(t, os.Mkdir(tree, 0o755))
	rounds := killRounds
	if testing.Short() {
		rounds = 5
	}
	for round := range rounds {
		cmd := exec.Command(os.Args[0], "-test.run=^TestKill$")
		cmd.Env = append(os.Environ(), killTree+"="+tree)
		out, err := cmd.StdoutPipe()
		must(t, err, cmd.Start())
		s := bufio.NewScanner(out)
		last := ""
		for i := range 1 + round%2*restoreEvery { // killed in what it does first, or about the time of a restore
			if !s.Scan() || (s.Text() == "begins") != (i == 0) {
				t.Fatalf("round %d: %q, %v", round, s.Text(), s.Err())
			}
			last = s.Text()
		}
		lines := make(chan string, 1)
		go func() {
			last := last
			for s.Scan() {
				last = s.Text()
			}
			lines <- last
		}()
		testenv.RandomMoment(100 * time.Millisecond)
		must(t, cmd.Process.Kill())
		last = <-lines
		_ = cmd.Wait()
		killed := store(t, filepath.Join(base, "undo"))
		list, _, total := killed.List()
		if len(list) == 0 {
			continue
		}
		if word, call, _ := strings.Cut(last, " "); word == "saved" {
			if _, ok := killed.Find(call); !ok {
				t.Fatalf("round %d: %s is gone", round, call)
			}
		}
		for range 3 {
			c := list[rand.IntN(len(list))]
			to := t.TempDir()
			_, err := killed.Rebuild(t.Context(), c, to)
			must(t, err)
			if text := killedFiles(t, filepath.Join(to, "upper")); strings.Count(text, "\n") > 1 ||
				!strings.HasPrefix(c.Call, strings.TrimSpace(text)) {
				t.Fatalf("round %d: %s holds %q", round, c.Call, text)
			}
		}
		files, err := filepath.Glob(filepath.Join(base, "undo", "*", "*"))
		if must(t, err); int64(len(files)) != total.Inodes {
			t.Fatalf("round %d: %d files, %+v", round, len(files), total)
		}
	}
}

// killedFiles are the different contents of the files in a tree, a line each.
func killedFiles(t testing.TB, dir string) string {
	seen := map[string]bool{}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	must(t, err)
	var text strings.Builder
	for _, f := range files {
		data, err := os.ReadFile(f)
		if must(t, err); !seen[string(data)] {
			seen[string(data)] = true
			fmt.Fprintln(&text, string(data))
		}
	}
	return text.String()
}

// saveForEver writes the same to all files, and then makes a checkpoint whose call begins with that.
func saveForEver(t *testing.T, tree string) {
	base := filepath.Dir(tree)
	fmt.Println("begins") // with what the kill before it has left
	s := store(t, filepath.Join(base, "undo"))
	for i := 0; ; i++ {
		text := fmt.Sprintf("c%d-%d", os.Getpid(), i)
		for k := range 8 {
			must(t, os.WriteFile(filepath.Join(tree, fmt.Sprint(k)), []byte(text), 0o644))
		}
		save(t, s, tree, text)
		fmt.Println("saved", text)
		if i%restoreEvery != restoreEvery-1 {
			continue
		}
		list, _, _ := s.List()
		c := list[rand.IntN(len(list))]
		next := filepath.Join(base, "next")
		must(t, os.RemoveAll(next), os.Mkdir(next, 0o700))
		restored, err := s.Rebuild(t.Context(), c, next)
		must(t, err, unix.Renameat2(unix.AT_FDCWD, filepath.Join(next, "upper"), unix.AT_FDCWD, tree,
			unix.RENAME_EXCHANGE))
		must(t, restored())
	}
}
