package web_test

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// digest is that of a token, as hutch config token prints it.
func digest(token string) string {
	sum := sha256.Sum256([]byte(token))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// withTokens starts a server with a file of clients.
func withTokens(t testing.TB, w *world.World, file, text string) *server {
	t.Helper()
	w.OK(t, "rpc", "system.info")
	write(t, file, text)
	return start(t, w, "--listen", "127.0.0.1:0", "--tokens", file, "--max-upload", "1m")
}

func write(t testing.TB, file, text string) {
	t.Helper()
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// as is the same server for another client.
func (s *server) as(token string) *server {
	other := *s
	other.header = http.Header{"Authorization": {"Bearer " + token}}
	return &other
}

// TestClients: each client sees what it has made and nothing of the others', under ids and under names; the file is
// read again when it is another.
func TestClients(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	file := w.Path("tokens.yaml")
	const two = "tokens:\n  one: {digest: \"%1\"}\n  two: {digest: \"%2\"}\n"
	text := strings.NewReplacer("%1", digest("token-of-one"), "%2", digest("token-of-two")).Replace(two)
	s := withTokens(t, w, file, text)
	one, two1 := s.as("token-of-one"), s.as("token-of-two")
	s.as("token-of-three").ask(t, "GET", "/sandboxes", nil).fails(http.StatusUnauthorized, "unauthenticated")
	s.as(digest("token-of-one")).ask(t, "GET", "/sandboxes", nil).fails(http.StatusUnauthorized, "unauthenticated")
	events := two1.events(t, "GET", "/events", nil)
	id := one.sandbox(t, object{"name": "first", "metadata": object{"a": "b"}})
	at := "/sandboxes/" + id
	var sn struct{ SnapshotID string }
	one.ask(t, "POST", at+"/snapshots", object{"name": "kept"}).want(http.StatusCreated, &sn)
	var bg struct{ ProcessID string }
	one.ask(t, "POST", at+"/processes", object{"cmd": "sleep 100", "background": true}).want(http.StatusCreated, &bg)
	own := two1.sandbox(t, object{})
	for _, path := range []string{at, "/sandboxes/first", at + "/processes", at + "/processes/" + bg.ProcessID,
		"/sandboxes/" + own + "/processes/" + bg.ProcessID, at + "/files?path=/etc/hosts", at + "/metrics",
		at + "/ports",
		"/snapshots?sandbox=first", "/events?sandbox=first"} {
		two1.ask(t, "GET", path, nil).fails(http.StatusNotFound, "not_found")
	}
	for _, path := range []string{at + "/fork", at + "/pause", at + "/snapshots",
		"/snapshots/" + sn.SnapshotID + "/fork",
		"/snapshots/kept/fork", "/snapshots/kept/restore"} {
		two1.ask(t, "POST", path, nil).fails(http.StatusNotFound, "not_found")
	}
	two1.ask(t, "DELETE", at, nil).fails(http.StatusNotFound, "not_found")
	var list struct {
		Sandboxes []struct {
			SandboxID string
			Metadata  map[string]string
		}
		Snapshots []object
	}
	for _, c := range []struct {
		s         *server
		id        string
		snapshots int
	}{{one, id, 1}, {two1, own, 0}} {
		c.s.ask(t, "GET", "/sandboxes", nil).want(http.StatusOK, &list)
		c.s.ask(t, "GET", "/snapshots", nil).want(http.StatusOK, &list)
		if len(list.Sandboxes) != 1 || list.Sandboxes[0].SandboxID != c.id || len(list.Snapshots) != c.snapshots {
			t.Errorf("%+v", list)
		}
	}
	// Of events the first that is seen is of its own, and a key is its client's.
	var e struct{ SandboxID string }
	if ev, err := events.next(); err != nil {
		t.Fatal(err)
	} else if ev.into(t, &e); e.SandboxID != own {
		t.Errorf("%s %s", ev.name, ev.data)
	}
	var made [2]struct{ SandboxID string }
	for i, c := range []*server{one, two1} {
		c.ask(t, "POST", "/sandboxes", object{}, "Idempotency-Key", "k").want(http.StatusCreated, &made[i])
	}
	scope := object{"scope": object{"kind": "session", "key": "s"}}
	if made[0] == made[1] || one.sandbox(t, scope) == two1.sandbox(t, scope) {
		t.Errorf("%+v", made)
	}
	write(t, file, strings.Split(text, "  two")[0]) // the token of two is taken away
	two1.ask(t, "GET", "/sandboxes", nil).fails(http.StatusUnauthorized, "unauthenticated")
	write(t, file, "tokens: [nonsense]") // which changes nothing
	one.ask(t, "GET", at, nil).want(http.StatusOK)
	write(t, file, text)
	two1.ask(t, "GET", "/sandboxes/"+own, nil).want(http.StatusOK)
}

// TestBounds: what a client may not have is refused for good, or for as long as others of its sandboxes live.
func TestBounds(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	s := withTokens(t, w, w.Path("tokens.yaml"), `tokens:
  bound:
    digest: "`+digest("token-of-bound")+`"
    images: [host]
    sandboxes: 2
    snapshots: 1
    timeout: 600
    limits: {pids: 100, bestEffort: true}
  grant:
    digest: "`+digest("token-of-grant")+`"
    grant: [host-ports]
`).as("token-of-bound")
	forbidden := func(a *answer, parts ...string) {
		t.Helper()
		a.fails(http.StatusForbidden, "permission_denied", parts...)
	}
	forbidden(s.ask(t, "POST", "/sandboxes", object{"image": "python:3.12"}), "image", "bound")
	forbidden(s.ask(t, "POST", "/sandboxes", object{"templateID": "any"}), "template")
	forbidden(s.ask(t, "POST", "/sandboxes", object{"timeout": 601}), "600")
	forbidden(s.ask(t, "POST", "/sandboxes", object{"timeout": 0}), "600")
	forbidden(s.ask(t, "POST", "/sandboxes", object{"limits": object{"pids": 101}}), "limits.pids")
	forbidden(s.ask(t, "POST", "/sandboxes", object{"limits": object{"pids": -1}}), "limits.pids")
	forbidden(s.ask(t, "POST", "/sandboxes", object{"network": object{"allow": []string{"host:80"}}}), "host-ports")
	s.as("token-of-grant").sandbox(t, object{"network": object{"allow": []string{"host:80"}}})
	var sb struct {
		SandboxID string
		Limits    struct{ PIDs int }
		Notes     []string
	}
	// Of eight at once two are made; the others hear when the first of these ends.
	var wg sync.WaitGroup
	answers := make([]*answer, 8)
	for i := range answers {
		wg.Go(func() { answers[i] = s.ask(t, "POST", "/sandboxes", object{"timeout": 500}) })
	}
	wg.Wait()
	made := 0
	for _, a := range answers {
		if a.status == http.StatusCreated {
			made++
			a.want(http.StatusCreated, &sb)
			continue
		}
		a.fails(http.StatusTooManyRequests, "resource_exhausted", "bound")
		if wait, err := strconv.Atoi(a.header.Get("Retry-After")); a.header.Get("Retry-After") != "" &&
			(err != nil || wait < 1 || wait > 500) {
			t.Errorf("Retry-After: %v", a.header["Retry-After"])
		}
	}
	if made != 2 || sb.Limits.PIDs != 100 && len(sb.Notes) == 0 {
		t.Errorf("%d were made; %+v", made, sb)
	}
	a := s.ask(t, "POST", "/sandboxes", object{})
	a.fails(http.StatusTooManyRequests, "resource_exhausted")
	if wait, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || wait < 400 || wait > 500 {
		t.Errorf("Retry-After: %v", a.header["Retry-After"])
	}
	at := "/sandboxes/" + sb.SandboxID
	s.ask(t, "POST", at+"/fork", object{}).fails(http.StatusTooManyRequests, "resource_exhausted")
	forbidden(s.ask(t, "POST", at+"/fork", object{"count": 3}), "never 3")
	forbidden(s.ask(t, "PATCH", at, object{"timeout": 0}), "600")
	forbidden(s.ask(t, "PATCH", at, object{"limits": object{"pids": 1000}}), "limits.pids")
	s.ask(t, "PATCH", at, object{"timeout": 600}).want(http.StatusOK)
	s.ask(t, "POST", at+"/snapshots", object{}).want(http.StatusCreated)
	a = s.ask(t, "POST", at+"/snapshots", object{})
	if a.fails(http.StatusTooManyRequests, "resource_exhausted"); a.header.Get("Retry-After") != "" {
		t.Errorf("waiting does not help: %v", a.header)
	}
	s.ask(t, "DELETE", at, nil).want(http.StatusNoContent)
	s.sandbox(t, object{})
}

// TestBadTokens: a file of clients that is not the user's alone, or not understood, is refused with the reason.
func TestBadTokens(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.OK(t, "rpc", "system.info")
	file := w.Path("tokens.yaml")
	for text, says := range map[string]string{
		"":                              "no tokens",
		"tokens: {}":                    "no tokens",
		"tokens: {a: {digest: secret}}": "digest",
		"tokens: {a: {digest: \"" + digest("x") + "\", sandbox: 5}}":                           "sandbox",
		"tokens: {a: {digest: \"" + digest("x") + "\"}, b: {digest: \"" + digest("x") + "\"}}": "same digest",
		"tokens: {a: {digest: \"" + digest("x") + "\", grant: [root]}}":                        "grant",
		"tokens: {a: {digest: \"" + digest("x") + "\", sandboxes: -1}}":                        "sandboxes",
		"tokens: {\"a b\": {digest: \"" + digest("x") + "\"}}":                                 "no name",
	} {
		write(t, file, text)
		w.Run(t, "web", "--listen", "127.0.0.1:0", "--tokens", file).Want(t, 1).Says(t, says)
	}
	write(t, file, "tokens: {a: {digest: \""+digest("x")+"\"}}")
	if err := os.Chmod(file, 0o640); err != nil {
		t.Fatal(err)
	}
	w.Run(t, "web", "--listen", "127.0.0.1:0", "--tokens", file).Want(t, 1).Says(t, "can be read by others")
	w.Run(t, "web", "--listen", "127.0.0.1:0", "--tokens", w.Path("none")).Want(t, 1).Says(t, "none")
	w.Run(t, "web", "--tokens", file, "--token-file", file).Want(t, 125).Says(t, "--token-file")
	w.Run(t, "web", "--tokens", file, "--grant", "sandboxes").Want(t, 125).Says(t, "--grant")
	w.Run(t, "web", "--tokens", file, "--listen", w.Path("sock2")).Want(t, 125).Says(t, "Unix socket")
}
