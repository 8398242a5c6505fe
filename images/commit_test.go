package images

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	it "github.com/hutch-sh/hutch/images/imagetest"
	"github.com/hutch-sh/hutch/images/unpack"
	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// importBase makes the image that commits start from.
func importBase(t *testing.T, s *Store) *Image {
	t.Helper()
	file := filepath.Join(t.TempDir(), "base.tar")
	must(t, os.WriteFile(file, it.Tar(it.Dir("./"), it.Dir("etc/"), it.Text("etc/a", "a"), it.Text("b", "b")), 0o600))
	f, err := os.Open(file)
	must(t, err)
	defer f.Close()
	img, err := s.Import(t.Context(), f, "base:1",
		ImportOptions{Format: api.FormatRootfs, Changes: &api.ConfigChanges{Cmd: []string{"/b"}}})
	must(t, err)
	return img
}

func commitTo(t *testing.T, s *Store, base *Image, folder, name string) (*Image, error) {
	img, _, err := s.Commit(t.Context(), name, CommitOptions{
		Folders: []string{folder}, Base: Base{Ref: base.Ref, Config: base.Config, Lower: base.Rootfs().Lower},
		Message: "m",
	})
	return img, err
}

// TestCommitOver: what a base is known by, and what is known of it.
func TestCommitOver(t *testing.T) {
	testenv.Axes(t, testenv.User)
	testenv.Require(t, probe.UserNamespaces(t.Context()))
	s := openStore(t, Options{SingleUID: os.Geteuid() != 0})
	base := importBase(t, s)
	folder := t.TempDir()
	must(t, os.WriteFile(filepath.Join(folder, "new"), []byte("new"), 0o600))
	img, err := commitTo(t, s, base, folder, "made:1")
	must(t, err)
	if len(img.Layers) != 2 || img.Layers[0] != base.Layers[0] || img.Config.Cmd[0] != "/b" {
		t.Errorf("made %+v", img)
	}
	rec, err := s.readRecord("made:1")
	must(t, err)
	if got := strings.Count(string(rec.RawConfig), `"created_by"`); got != 2 || rec.Origin != originLocal {
		t.Errorf("%d steps of history in %s", got, rec.RawConfig)
	}
	// The name means another image now: what the sandbox knew of its own is enough.
	must(t, s.Remove("base:1", nil))
	again, err := commitTo(t, s, base, folder, "made:2")
	must(t, err)
	if fmt.Sprint(again.Layers) != fmt.Sprint(img.Layers) || again.Config.Cmd[0] != "/b" {
		t.Errorf("made %+v", again)
	}
	must(t, s.Remove("made:1", nil))
	lease, err := s.Lease(base.Layers) // as a sandbox has
	must(t, err)
	must(t, s.Remove("made:2", nil))
	if again, err = commitTo(t, s, base, folder, "made:3"); err != nil || len(again.Layers) != 2 {
		t.Errorf("over layers that no image has: %+v, %v", again, err)
	}
	must(t, s.Remove("made:3", nil))
	lease.Release()
	if _, err := s.GC(nil); err != nil {
		t.Fatal(err)
	}
	if _, err := commitTo(t, s, base, folder, "made:3"); api.ErrorCode(err) != api.NotFound {
		t.Errorf("without its layers: %v", err)
	}
}

// TestCrashInTheCommit: whenever a commit is killed, what the store shows is whole.
func TestCrashInTheCommit(t *testing.T) {
	single := os.Geteuid() != 0
	if dir := os.Getenv(crashVar); dir != "" {
		s, err := Open(dir, Options{SingleUID: single})
		must(t, err)
		base, err := s.Get("base:1")
		must(t, err)
		fmt.Println("ready")
		for i := 0; ; i++ {
			folder := t.TempDir()
			for j := range 50 {
				must(t, os.WriteFile(filepath.Join(folder, fmt.Sprint(j)),
					fmt.Appendf(nil, "%d %d %d", os.Getpid(), i, j), 0o600))
			}
			_, err := commitTo(t, s, base, folder, fmt.Sprintf("made:%d", i))
			must(t, err)
			fmt.Println("made")
		}
	}
	testenv.Require(t, probe.UserNamespaces(t.Context()))
	dir := filepath.Join(t.TempDir(), "images")
	s, err := Open(dir, Options{SingleUID: single})
	must(t, err)
	defer s.Close()
	importBase(t, s)
	images := 0
	for i := range 20 {
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestCrashInTheCommit$")
		cmd.Env = append(os.Environ(), crashVar+"="+dir, "TMPDIR="+t.TempDir()) // its own is removed by nobody
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		lines := bufio.NewReader(out)
		want := []string{"ready\n"}
		if i == 0 { // at least one comes to its end, also where that takes long
			want = append(want, "made\n")
		}
		for _, want := range want {
			if line, err := lines.ReadString('\n'); line != want {
				t.Fatalf("%q, %v", line, err)
			}
		}
		testenv.RandomMoment(400 * time.Millisecond)
		must(t, cmd.Process.Kill())
		_ = cmd.Wait()
		all, err := s.List()
		must(t, err)
		images += len(all) - 1
		checks, err := s.Verify(t.Context(), "", VerifyOptions{})
		must(t, err)
		for _, c := range checks {
			if c.Status != api.LayerGood {
				t.Fatalf("%+v", c)
			}
		}
		for _, img := range all {
			if img.Ref != "docker.io/library/base:1" && len(img.Layers) != 2 {
				t.Fatalf("half an image: %+v", img)
			}
		}
	}
	if images == 0 {
		t.Error("no commit came to its end: it tests nothing")
	}
	left, _ := filepath.Glob(filepath.Join(dir, tmpDir, "*"))
	for _, p := range left { // a worker may have the folder a moment longer
		if d, err := openDir(p); err == nil {
			must(t, flockWait(d))
			must(t, d.Close())
		}
	}
	must(t, s.sweep())
	if left, _ := filepath.Glob(filepath.Join(dir, tmpDir, "*")); len(left) != 0 {
		t.Errorf("not swept: %v", left)
	}
}

// TestCommitLimits: a sandbox's files are bound as a layer's are.
func TestCommitLimits(t *testing.T) {
	testenv.Require(t, probe.UserNamespaces(t.Context()))
	s := openStore(t, Options{SingleUID: os.Geteuid() != 0,
		Limits: unpack.Limits{MaxEntries: 20, MaxFileBytes: 1 << 20}})
	base := importBase(t, s)
	many, large := t.TempDir(), t.TempDir()
	for i := range 30 {
		must(t, os.Mkdir(filepath.Join(many, fmt.Sprint(i)), 0o700))
	}
	must(t, os.WriteFile(filepath.Join(large, "hole"), nil, 0o600))
	must(t, os.Truncate(filepath.Join(large, "hole"), 1<<40))
	for folder, words := range map[string]string{many: "limit of", large: "hole"} {
		if _, err := commitTo(t, s, base, folder, "x:1"); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%v", err)
		}
	}
	if all, err := s.List(); err != nil || len(all) != 1 {
		t.Errorf("in the store: %v, %v", all, err)
	}
}
