package state_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// TestToolsMany: ten million matches, and a hundred thousand files with names of an enemy's, are answered in bounds
// that a model can read, and page after page, in time.
func TestToolsMany(t *testing.T) {
	testenv.Suite(t, "many")
	t.Parallel()
	world.NeedsPython(t)
	w := world.New(t)
	b := toolsIn(t, w, "-w", "/srv", "host")
	bounded := func(name, arguments string, into any) {
		t.Helper()
		r := b.call(t, name, arguments)
		whole, err := json.Marshal(r)
		if err != nil || r.IsError {
			t.Fatalf("%s: %v, %+v", name, err, r.Error)
		}
		if text := r.Content[0].Text; len(whole) > 512<<10 || !utf8.ValidString(text) ||
			strings.ContainsFunc(text, func(c rune) bool {
				return unicode.IsControl(c) && c != '\n' && c != '\t' ||
					c == 0x202e
			}) {
			t.Errorf("%s: %d bytes, %.300q", name, len(whole), text)
		}
		if err := json.Unmarshal(r.Structured, into); err != nil {
			t.Fatal(err)
		}
	}

	w.OK(t, "exec", b.sandbox, "sh", "-c", "mkdir lines && yes | head -c 20000000 >lines/y")
	var grep api.ToolGrepResult
	bounded(api.ToolNameGrepFiles, `{"path":"lines","pattern":"y"}`, &grep)
	if len(grep.Matches) != 100 || !grep.Truncated || grep.NextOffset != 100 {
		t.Errorf("%d, %v, %d", len(grep.Matches), grep.Truncated, grep.NextOffset)
	}
	bounded(api.ToolNameGrepFiles, `{"path":"lines","pattern":"y","offset":1000000,"max_matches":1000}`, &grep)
	if n := len(grep.Matches); n != 1000 || !grep.Truncated || grep.Matches[n-1].Line != 1_001_000 {
		t.Errorf("%d, %v", n, grep.Truncated)
	}
	b.bad(t, api.ToolNameGrepFiles, `{"path":"lines","pattern":"y","offset":1000001}`, api.InvalidArgument,
		"narrow the search down")
	bounded(api.ToolNameGrepFiles, `{"path":"lines","pattern":"n"}`, &grep) // to the end
	if len(grep.Matches) > 0 || grep.Truncated {
		t.Errorf("%+v", grep)
	}

	folders := 100
	if os.Getuid() != 0 { // the files are the same for everybody
		folders = 10
	}
	make, err := json.Marshal(world.Args{"timeout_s": 300, "argv": []string{"/usr/bin/python3", "-c", strings.ReplaceAll(`
import os
odd = [b"\n", b"\x1b[31m", b"\xff\xfe", b"'\"$(id)", b"-rf", b"\t", b"\xe2\x80\xae", b"*?[", b"\\"]
for d in range(FOLDERS):
    dir = b"many/%02d%s" % (d, odd[d % 9])
    os.makedirs(dir)
    for i in range(1000):
        fd = os.open(dir + b"/%s%d" % (odd[i % 9], i), os.O_CREAT | os.O_WRONLY)
        if i % 90 == 9:
            os.write(fd, b"needle\n" if i == 999 else b"hay\n")
        os.close(fd)
`, "FOLDERS", strconv.Itoa(folders))}})
	if err != nil {
		t.Fatal(err)
	}
	b.good(t, api.ToolNameRunCommand, string(make), nil)
	files := map[string]bool{}
	for next, calls := 0, 0; calls == 0 || next > 0; calls++ {
		bounded(api.ToolNameGrepFiles,
			fmt.Sprintf(`{"path":"many","pattern":"needle","files_only":true,"max_matches":40,"offset":%d}`,
				next), &grep)
		for _, f := range grep.Files {
			files[f] = true
		}
		if next = grep.NextOffset; calls > 3 {
			t.Fatal("no end")
		}
	}
	if len(files) != folders {
		t.Errorf("%d files", len(files))
	}
	bounded(api.ToolNameGrepFiles, `{"path":"many","pattern":"hay","max_matches":90}`, &grep)
	if len(grep.Matches) != 90 || !grep.Truncated {
		t.Errorf("%d, %v", len(grep.Matches), grep.Truncated)
	}
	var found api.ToolFindResult
	bounded(api.ToolNameFindFiles, `{"path":"many","query":"09 id 993","limit":1000}`, &found)
	if len(found.Found) == 0 {
		t.Errorf("%+v", found)
	}
	bounded(api.ToolNameFindFiles, `{"path":"many","limit":1000}`, &found)
	if len(found.Found) != 1000 || !found.Truncated {
		t.Errorf("%d, %v", len(found.Found), found.Truncated)
	}
	var d api.ToolDirectory
	bounded(api.ToolNameListDirectory, fmt.Sprintf(`{"path":"many","recursive":true,"offset":%d,"limit":5000}`,
		1000*folders), &d)
	if len(d.Entries) != folders || d.NextOffset != 0 {
		t.Errorf("%d, %d", len(d.Entries), d.NextOffset)
	}
}

// TestToolsState: of a sandbox that is paused, or has ended, a model learns what to do.
func TestToolsState(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	b := toolsIn(t, w, "host")
	calls := map[string]string{
		api.ToolNameRunCommand: `{"command":"true"}`, api.ToolNameReadFile: `{"path":"/etc/hostname"}`,
		api.ToolNameWriteFile: `{"path":"/tmp/x","content":"x"}`,
		api.ToolNameGrepFiles: `{"path":"/etc/hostname","pattern":"x"}`, api.ToolNameFindFiles: `{"path":"/etc"}`,
	}
	w.OK(t, "pause", b.sandbox)
	for name, arguments := range calls {
		b.good(t, name, arguments, nil) // which resumes it
		w.OK(t, "pause", b.sandbox)
	}
	w.OK(t, "kill", b.sandbox)
	for name, arguments := range calls {
		b.bad(t, name, arguments, api.FailedPrecondition, b.sandbox)
	}
}
