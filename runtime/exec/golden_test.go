package exec

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/internal/diskuse"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// TestGolden: the notes that the build of 3f74611 has written of a command and its end are read whole. A build that
// changes one of them reads both.
func TestGolden(t *testing.T) {
	testenv.Golden[meta](t, "testdata/golden/exec.json")
	testenv.Golden[ending](t, "testdata/golden/execend.json")
}

// TestGoldenExec: the notes of commands have each member that a build knows, or the files do not hold what is promised.
func TestGoldenExec(t *testing.T) {
	began := meta{
		Guest: 1, Params: api.ExecParams{Sandbox: "sb_1", Argv: []string{"true"}}, Start: time.Unix(1, 0).UTC(),
		Until: time.Unix(2, 0).UTC(), Paused: 3, CPU: 4, Output: 5, FSize: true, FSizeOwn: true, FileSize: 6,
		WasOver: true,
		Group:   Group{Name: "ex_1"}, OOM: 7, PIDs: 8, Input: true, Master: true, Shell: "sh_1",
		Kept: "py", User: "1000",
	}
	end := ending{
		End: guestapi.Event{Ev: guestapi.EvExited, Exec: 1, Status: 256, Killed: []int{2}}, Verdict: api.VerdictOOM,
		Took: 1,
		CPU:  2, Memory: 3, Limit: &api.LimitHit{}, Cut: true, Disk: diskuse.Usage{Bytes: 4, Inodes: 5},
	}
	for name, v := range map[string]any{"exec": began, "execend": end} {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		old, err := os.ReadFile("testdata/golden/" + name + ".json")
		if os.Getenv("HUTCH_WRITE_GOLDEN") != "" {
			old, err = data, os.WriteFile("testdata/golden/"+name+".json", append(data, '\n'), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, lost := range testenv.Lost(old, data) {
			t.Errorf("%s: %s", name, lost)
		}
	}
}
