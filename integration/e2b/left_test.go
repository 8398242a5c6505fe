package e2b_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// TestKilled: what a server leaves that is killed with watchers and ports, the next one ends; and it touches nothing of
// a server that lives.
func TestKilled(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	world.NeedsPython(t)
	w := world.New(t)
	killed, lives := serve(t, w), serve(t, w)
	b := killed.made(t)
	w.StartServer(t, b.SandboxID, "/usr/bin/python3", "-u", "-c", echoServer, "8000")
	use := func(s *server) {
		t.Helper()
		status, text := s.ask(t, "POST", "/filesystem.Filesystem/CreateWatcher", `{"path": "/tmp"}`, b.to()...)
		if status != http.StatusOK {
			t.Fatalf("%d: %s", status, text)
		}
		if status, text = s.ask(t, "GET", "/", "", "Host", "8000-"+b.SandboxID+".localhost", "E2B-Traffic-Access-Token",
			b.TrafficAccessToken); status != http.StatusOK {
			t.Fatalf("%d: %s", status, text)
		}
	}
	use(killed)
	use(lives)
	seen := map[string]bool{} // folders of sockets
	left := func() (folders, watchers, ports int) {
		t.Helper()
		var execs struct {
			Execs []struct {
				State string
				Argv  []string
			}
		}
		text := w.OK(t, "rpc", "exec.list", `{"sandbox": "`+b.SandboxID+`"}`)
		if err := json.Unmarshal([]byte(text), &execs); err != nil {
			t.Fatal(err)
		}
		for _, e := range execs.Execs {
			if e.State == "running" && strings.Contains(strings.Join(e.Argv, " "), "inotify") {
				watchers++
			}
		}
		var open struct{ Ports []struct{ Address string } }
		if err := json.Unmarshal([]byte(w.OK(t, "rpc", "port.list", "{}")), &open); err != nil {
			t.Fatal(err)
		}
		for _, p := range open.Ports {
			seen[filepath.Dir(p.Address)] = true
		}
		for path := range seen {
			if _, err := os.Stat(path); err == nil {
				folders++
			}
		}
		return folders, watchers, len(open.Ports)
	}
	if f, n, p := left(); f != 2 || n != 2 || p != 2 {
		t.Fatalf("%d folders, %d watchers, %d ports", f, n, p)
	}
	if err := killed.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = killed.cmd.Wait()
	next := serve(t, w)
	if f, n, p := left(); f != 1 || n != 1 || p != 1 {
		t.Errorf("after the next server: %d folders, %d watchers, %d ports", f, n, p)
	}
	use(next)
	use(lives)
	next.end(t)
	lives.end(t)
	if f, n, p := left(); f != 0 || n != 0 || p != 0 {
		t.Errorf("in the end: %d folders, %d watchers, %d ports", f, n, p)
	}
}

// TestOnce: a creation of a snapshot with an Idempotency-Key makes one sandbox, however often it is sent.
func TestOnce(t *testing.T) {
	testenv.Axes(t)
	t.Parallel()
	w := world.New(t)
	s := serve(t, w)
	b := s.made(t)
	key := []string{"X-API-KEY", token}
	status, text := s.ask(t, "POST", "/sandboxes/"+b.SandboxID+"/snapshots", "{}", key...)
	var snapshot struct{ SnapshotID string }
	if err := json.Unmarshal([]byte(text), &snapshot); err != nil || status != http.StatusCreated {
		t.Fatalf("%d, %v: %s", status, err, text)
	}
	body := `{"templateID": "` + snapshot.SnapshotID + `", "timeout": 300}`
	ids := map[string]bool{}
	for range 3 {
		var made box
		status, text := s.ask(t, "POST", "/v2/sandboxes", body, append(key, "Idempotency-Key", "k")...)
		if err := json.Unmarshal([]byte(text), &made); err != nil || status != http.StatusCreated {
			t.Fatalf("%d, %v: %s", status, err, text)
		}
		ids[made.SandboxID] = true
	}
	if len(ids) != 1 {
		t.Errorf("%d were made", len(ids))
	}
	if status, text = s.ask(t, "POST", "/v2/sandboxes", `{"templateID": "`+snapshot.SnapshotID+`", "timeout": 300,
		"metadata": {"other": "1"}}`, append(key, "Idempotency-Key", "k")...); status != http.StatusUnprocessableEntity {
		t.Errorf("another request with the same key: %d: %s", status, text)
	}
}

// TestPauseKeepsTime: a sandbox that is paused has no end, and one that cannot be paused keeps its own.
func TestPauseKeepsTime(t *testing.T) {
	testenv.Axes(t)
	t.Parallel()
	w := world.New(t)
	s := serve(t, w)
	b := s.made(t)
	expires := func() bool {
		return strings.Contains(w.OK(t, "rpc", "sandbox.get", `{"sandbox": "`+b.SandboxID+`"}`), `"expires"`)
	}
	key := []string{"X-API-KEY", token}
	at := "/sandboxes/" + b.SandboxID
	if !expires() {
		t.Error("it has no end")
	}
	for _, body := range []string{"{}", `{"memory": false}`} {
		if status, text := s.ask(t, "POST", at+"/pause", body, key...); status != http.StatusNoContent {
			t.Fatalf("%s: %d: %s", body, status, text)
		}
		if expires() {
			t.Errorf("%s: it has an end", body)
		}
		if status, text := s.ask(t, "POST", at+"/connect", `{"timeout": 60}`, key...); status >= 300 {
			t.Fatalf("%d: %s", status, text)
		}
		if !expires() {
			t.Errorf("%s: it has no end any more", body)
		}
	}
}
