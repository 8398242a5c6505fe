package web_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// TestGuard: without the token, for another host or from a page of another origin nobody gets in; each refusal has a
// twin that passes.
func TestGuard(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	s := serve(t, w, "--host", "hutch.example")
	host := strings.TrimPrefix(s.url, "http://")
	for _, tt := range []struct {
		name   string
		header []string
		status int
	}{
		{"token", nil, http.StatusOK},
		{"scheme in another case", []string{"Authorization", "bearer " + token}, http.StatusOK},
		{"key", []string{"Authorization", "", "X-API-Key", token}, http.StatusOK},
		{"no token", []string{"Authorization", ""}, http.StatusUnauthorized},
		{"wrong token", []string{"Authorization", "Bearer " + token[1:] + "0"}, http.StatusUnauthorized},
		{"beginning of the token", []string{"Authorization", "Bearer " + token[:16]}, http.StatusUnauthorized},
		{"basic", []string{"Authorization", "Basic " + token}, http.StatusUnauthorized},
		{"wrong key", []string{"Authorization", "", "X-API-Key", "e2b_" + token}, http.StatusUnauthorized},
		{"localhost", []string{"Host", "localhost:1"}, http.StatusOK},
		{"IPv6 loopback", []string{"Host", "[::1]:7070"}, http.StatusOK},
		{"name that was given", []string{"Host", "HUTCH.example"}, http.StatusOK},
		{"name of somebody else", []string{"Host", "attacker.example"}, http.StatusForbidden},
		{"address of somebody else", []string{"Host", "192.0.2.1:7070"}, http.StatusForbidden},
		{"own origin", []string{"Origin", s.url}, http.StatusOK},
		{"other origin", []string{"Origin", "https://attacker.example"}, http.StatusForbidden},
		{"other port", []string{"Origin", "http://127.0.0.1:1"}, http.StatusForbidden},
		{"no origin", []string{"Origin", "null"}, http.StatusForbidden},
		{"page of another site", []string{"Sec-Fetch-Site", "cross-site"}, http.StatusForbidden},
		{"page of its own", []string{"Sec-Fetch-Site", "same-origin"}, http.StatusOK},
	} {
		if a := s.ask(t, "GET", "/sandboxes", nil, tt.header...); a.status != tt.status {
			t.Errorf("%s: %d, want %d: %s", tt.name, a.status, tt.status, a.body)
		} else if a.header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: %v", tt.name, a.header)
		}
	}
	s.ask(t, "GET", "/health", nil, "Authorization", "").want(http.StatusOK)
	s.ask(t, "GET", "/health", nil, "Authorization", "", "Host", "attacker.example").fails(http.StatusForbidden,
		"permission_denied", "attacker.example")
	s.ask(t, "GET", "/nowhere", nil).fails(http.StatusNotFound, "not_found", "openapi")
	a := s.ask(t, "PUT", "/sandboxes", nil)
	if a.fails(http.StatusMethodNotAllowed, "method_not_allowed"); a.header.Get("Allow") != "GET, POST" {
		t.Errorf("%v", a.header)
	}
	if host == "" {
		t.Error("no address")
	}
	w.Run(t, "web", "--listen", "nonsense:x").Want(t, 125).Says(t, "--listen")
	w.Run(t, "web", "--grant", "everything").Want(t, 125).Says(t, "host-ports")
	open := w.Path("open")
	if err := os.WriteFile(open, []byte(token), 0o644); err != nil {
		t.Fatal(err)
	}
	w.Run(t, "web", "--listen", "127.0.0.1:0", "--token-file", open).Want(t, 1).Says(t, "can be read by others")
}

// TestOwnToken: a token that is made is in a file of the user's alone, which goes with the server.
func TestOwnToken(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	w.OK(t, "rpc", "system.info")
	s := start(t, w, "--listen", "127.0.0.1:0")
	s.ask(t, "GET", "/sandboxes", nil).want(http.StatusOK)
	made := s.header.Get("Authorization")
	if len(made) != len("Bearer ")+64 {
		t.Errorf("%q", made)
	}
	s.ask(t, "GET", "/sandboxes", nil, "Authorization", "Bearer "+strings.Repeat("0", 64)).
		fails(http.StatusUnauthorized, "unauthenticated")
}

// TestUnix: a socket is for processes of the user, who need no token.
func TestUnix(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	w.OK(t, "rpc", "system.info")
	path := w.Path("web.sock")
	s := start(t, w, "--listen", path)
	s.ask(t, "GET", "/sandboxes", nil).want(http.StatusOK)
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
	s.end(t)
	if _, err := os.Stat(path); err == nil {
		t.Error("the socket is left")
	}
}

// TestBadRequests: what is no request of ours is a problem that says why, and nothing happens.
func TestBadRequests(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	s := serve(t, w)
	at := "/sandboxes/" + s.sandbox(t, object{})
	raw := func(path, body, contentType string) *answer {
		return s.ask(t, "POST", path, strings.NewReader(body), "Content-Type", contentType)
	}
	raw("/sandboxes", `{"image": "host", "colour": "red"}`, "application/json").
		fails(http.StatusBadRequest, "invalid_argument", "colour", "templateID")
	raw("/sandboxes", `{"image": 5}`, "application/json").fails(http.StatusBadRequest, "invalid_argument", "image")
	raw("/sandboxes", `image=host`, "text/plain").
		fails(http.StatusUnsupportedMediaType, "invalid_argument", "application/json")
	raw("/sandboxes", `image=host`, "application/x-www-form-urlencoded").
		fails(http.StatusBadRequest, "invalid_argument")
	raw(at+"/processes", `{"cmd": "true"}`, "application/x-www-form-urlencoded").want(http.StatusOK) // curl -d
	s.ask(t, "GET", "/sandboxes?stat=running", nil).fails(http.StatusBadRequest, "invalid_argument", "stat", "metadata")
	s.ask(t, "GET", "/sandboxes?state=sleeping", nil).fails(http.StatusBadRequest, "invalid_argument", "sleeping")
	s.ask(t, "GET", "/snapshots?sandbox=nobody", nil).fails(http.StatusNotFound, "not_found")
	s.ask(t, "POST", at+"/processes", object{"cmd": "none-such", "args": []string{"x"}, "background": true}).
		fails(http.StatusUnprocessableEntity, "failed_precondition", "none-such")
	var res struct {
		ExitCode int
		Verdict  string
	}
	s.events(t, "POST", at+"/processes", object{"cmd": "none-such", "args": []string{"x"}}).want("end").into(t, &res)
	if res.ExitCode != 127 || res.Verdict != "not_run" {
		t.Errorf("%+v", res)
	}
	raw("/sandboxes", strings.Repeat("[", 10_000), "application/json").fails(http.StatusBadRequest, "invalid_argument")
	raw("/sandboxes", `{"metadata": {"a": `+strings.Repeat(`[`, 10_000)+strings.Repeat(`]`, 10_000)+`}}`,
		"application/json").
		fails(http.StatusBadRequest, "invalid_argument")
	raw("/sandboxes", `{"image": "host", "metadata": {"x": "`+strings.Repeat("x", 5<<20)+`"}}`, "application/json").
		fails(http.StatusRequestEntityTooLarge, "too_large")
	raw("/sandboxes", `{"timeout": -1}`, "application/json").fails(http.StatusBadRequest, "invalid_argument", "timeout")
	raw("/sandboxes", `{"templateID": "none-such"}`, "application/json").
		fails(http.StatusNotFound, "not_found", "none-such")
	raw("/sandboxes", `{"metadata": {"hutch.rest.key": "x"}}`, "application/json").
		fails(http.StatusBadRequest, "invalid_argument")
	raw(at+"/processes", `{}`, "application/json").fails(http.StatusBadRequest, "invalid_argument", "cmd")
	s.ask(t, "POST", at+"/processes", object{"cmd": "true", "background": true}, "Accept", "text/event-stream").
		fails(http.StatusBadRequest, "invalid_argument", "background")
	s.ask(t, "GET", at+"/processes/ex_nonsense", nil).fails(http.StatusNotFound, "not_found")
	s.ask(t, "DELETE", at+"/ports/http", nil).fails(http.StatusBadRequest, "invalid_argument")
	raw("/sandboxes", `{"network": {"allow": ["host:1234"]}}`, "application/json").
		fails(http.StatusForbidden, "permission_denied", "--grant host-ports")
	raw("/sandboxes", `{"network": {"allow": ["host.hutch.internal:1234"]}}`, "application/json").
		fails(http.StatusForbidden, "permission_denied")
	raw("/sandboxes", `{"volumes": [{"name": "v", "path": "/v"}]}`, "application/json").
		fails(http.StatusForbidden, "permission_denied", "--grant sandboxes")
	s.ask(t, "PATCH", at, object{"network": object{"allow": []string{"tcp://host:1234"}}}).
		fails(http.StatusForbidden, "permission_denied")
	// or another machine's
	for _, address := range []string{"127.0.0.1", "127.0.0.0/8", "0.0.0.0/8", "192.168.7.9/32", "192.168.7.0/24",
		"10.0.0.0/8", "::1/128", "::ffff:10.1.2.3", "64:ff9b::7f00:1", "2002:7f00:1::/48", "168.63.129.16"} {
		raw("/sandboxes", `{"network": {"allowCIDRs": ["`+address+`"]}}`, "application/json").
			fails(http.StatusForbidden, "permission_denied", "--grant host-ports")
	}
	s.sandbox(t, object{"network": object{"allowCIDRs": []string{"0.0.0.0/0", "8.8.8.0/24"}}})
	granted := serve(t, w, "--grant", "host-ports")
	granted.sandbox(t, object{"network": object{"allow": []string{"host:1234"},
		"allowCIDRs": []string{"192.168.7.9/32"}}})
	asked := make(chan string, 10) // a registry of this machine, or anything else
	registry := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter,
		r *http.Request) {
		asked <- r.URL.Path
	}))
	defer registry.Close()
	image := strings.TrimPrefix(registry.URL, "http://") + "/x/y"
	s.ask(t, "POST", "/sandboxes", object{"image": image}).
		fails(http.StatusForbidden, "permission_denied", "--registry")
	if len(asked) > 0 {
		t.Errorf("the registry was asked for %s", <-asked)
	}
	serve(t, w, "--registry", strings.TrimPrefix(registry.URL, "http://")).
		ask(t, "POST", "/sandboxes", object{"image": image})
	if len(asked) == 0 {
		t.Error("a registry that is allowed was not asked")
	}
	var list struct{ Sandboxes []object }
	s.ask(t, "GET", "/sandboxes", nil).want(http.StatusOK, &list)
	if len(list.Sandboxes) != 3 {
		t.Errorf("%d sandboxes", len(list.Sandboxes))
	}
}

// TestOthers: a client sees what was made over REST and nothing else of the user's, unless that is granted.
func TestOthers(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	s, all := serve(t, w), serve(t, w, "--grant", "sandboxes")
	shared := w.Sub(t, "shared")
	w.Create(t, "--name", "mine", "-v", shared+":/w:rw", "host")
	own := s.sandbox(t, object{"name": "made"})
	all.sandbox(t, object{"volumes": []object{{"name": "v", "path": "/v"}}, "name": "granted"})
	all.ask(t, "DELETE", "/sandboxes/granted", nil).want(http.StatusNoContent)
	w.OK(t, "snapshot", "create", "--name", "kept", "mine")
	for _, at := range []string{"/sandboxes/mine", "/sandboxes/mine/files/list?path=/w", "/sandboxes/mine/processes",
		"/snapshots?sandbox=mine"} {
		if a := s.ask(t, "GET", at, nil); at != "/snapshots?sandbox=mine" {
			a.fails(http.StatusNotFound, "not_found")
		} else if strings.Contains(string(a.body), "kept") {
			t.Errorf("%s", a.body)
		}
		all.ask(t, "GET", at, nil).want(http.StatusOK)
	}
	for _, at := range []string{"/sandboxes/mine/fork", "/sandboxes/mine/snapshots", "/sandboxes/mine/stop",
		"/snapshots/kept/fork",
		"/snapshots/kept/restore"} {
		s.ask(t, "POST", at, nil).fails(http.StatusNotFound, "not_found")
	}
	s.ask(t, "PUT", "/sandboxes/mine/files?path=/w/s", strings.NewReader("x")).fails(http.StatusNotFound, "not_found")
	s.ask(t, "DELETE", "/sandboxes/mine", nil).fails(http.StatusNotFound, "not_found")
	s.ask(t, "DELETE", "/snapshots/kept", nil).fails(http.StatusNotFound, "not_found")
	var list struct{ Sandboxes []struct{ SandboxID string } }
	if s.ask(t, "GET", "/sandboxes", nil).want(http.StatusOK, &list); len(list.Sandboxes) != 1 ||
		list.Sandboxes[0].SandboxID != own {
		t.Errorf("%+v", list)
	}
	if all.ask(t, "GET", "/sandboxes", nil).want(http.StatusOK, &list); len(list.Sandboxes) != 2 {
		t.Errorf("%+v", list)
	}
	// Of events, too: the first that is seen is of the sandbox that was made here.
	events := s.events(t, "GET", "/events", nil, "Last-Event-ID", "0")
	ev, err := events.next()
	if err != nil {
		t.Fatal(err)
	}
	var e struct{ SandboxID string }
	if ev.into(t, &e); e.SandboxID != own {
		t.Fatalf("%s %s", ev.name, ev.data)
	}
	// A fork is its client's, and no answer to the creation that has made its origin.
	var first, fork struct {
		SandboxID string
		Sandboxes []struct{ SandboxID string }
	}
	body := object{"image": "host"}
	s.ask(t, "POST", "/sandboxes", body, "Idempotency-Key", "k").want(http.StatusCreated, &first)
	s.ask(t, "POST", "/sandboxes/"+first.SandboxID+"/fork", object{}).want(http.StatusCreated, &fork)
	s.ask(t, "GET", "/sandboxes/"+fork.Sandboxes[0].SandboxID, nil).want(http.StatusOK)
	s.ask(t, "DELETE", "/sandboxes/"+first.SandboxID, nil).want(http.StatusNoContent)
	old := fork.Sandboxes[0].SandboxID
	if s.ask(t, "POST", "/sandboxes", body, "Idempotency-Key", "k").
		want(http.StatusCreated, &first); first.SandboxID == old {
		t.Error("the fork was taken for what its origin was made by")
	}
	s.ask(t, "POST", "/sandboxes/"+old+"/fork", object{"metadata": object{"hutch.rest.key": "x"}}).
		fails(http.StatusBadRequest, "invalid_argument")
}

// TestWaiting: as many calls that wait as a connection may have keep nobody from looking, and ending them.
func TestWaiting(t *testing.T) {
	testenv.Suite(t, "slow")
	t.Parallel()
	w := world.New(t)
	s := serve(t, w)
	at := "/sandboxes/" + s.sandbox(t, object{})
	var bg struct{ ProcessID string }
	s.ask(t, "POST", at+"/processes", object{"cmd": "sleep 600", "background": true}).want(http.StatusCreated, &bg)
	var wg sync.WaitGroup
	wait := func() {
		a := s.ask(t, "GET", at+"/processes/"+bg.ProcessID+"/result", nil)
		if a.status != http.StatusOK && a.status != http.StatusTooManyRequests {
			t.Errorf("%d: %s", a.status, a.body)
		}
	}
	for range 300 {
		wg.Go(wait)
	}
	for {
		// One more is refused once there are enough of them, which is an event of its own.
		if a := s.ask(t, "GET", at+"/processes/"+bg.ProcessID+"/result?wait=0",
			nil); a.status == http.StatusTooManyRequests {
			break
		}
		wg.Go(wait) // for the one that may have been refused in the place of this question
	}
	s.ask(t, "GET", at, nil).want(http.StatusOK)
	s.ask(t, "DELETE", at+"/processes/"+bg.ProcessID, nil).want(http.StatusOK)
	wg.Wait()
}

// TestIdempotency: a creation that is sent twice makes one sandbox, also at once, and by another server.
func TestIdempotency(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	s := serve(t, w)
	var first, second struct {
		SandboxID string
		Existing  bool
		Metadata  object
	}
	body := object{"image": "host", "metadata": object{"a": "b"}}
	var wg sync.WaitGroup
	answers := make([]*answer, 4)
	for i := range answers {
		wg.Go(func() { answers[i] = s.ask(t, "POST", "/sandboxes", body, "Idempotency-Key", "one") })
	}
	wg.Wait()
	made := 0
	for _, a := range answers {
		first.Existing = false
		if a.want(http.StatusCreated, &first); !first.Existing {
			made++
		}
	}
	other := serve(t, w)
	other.ask(t, "POST", "/sandboxes", body, "Idempotency-Key", "one").want(http.StatusCreated, &second)
	if made != 1 || second.SandboxID != first.SandboxID || !second.Existing || len(second.Metadata) != 1 {
		t.Errorf("%d made; %+v, %+v", made, first, second)
	}
	s.ask(t, "POST", "/sandboxes", object{"image": "host"}, "Idempotency-Key", "one").
		fails(http.StatusUnprocessableEntity, "invalid_argument", "another request")
	s.ask(t, "POST", "/sandboxes", body, "Idempotency-Key", strings.Repeat("x", 256)).
		fails(http.StatusBadRequest, "invalid_argument")
	s.ask(t, "POST", "/sandboxes", body, "Idempotency-Key", "two").want(http.StatusCreated, &second)
	if second.SandboxID == first.SandboxID {
		t.Error("another key has found the same sandbox")
	}
}

// TestHalfOpen: hundreds of connections that say nothing, or the beginning of something, keep nobody out.
func TestHalfOpen(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	s := serve(t, w)
	at := strings.TrimPrefix(s.url, "http://")
	for i := range 300 {
		c, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if i%2 == 0 {
			_, _ = io.WriteString(c, "POST /sandboxes HTTP/1.1\r\nHost: localhost\r\n")
		}
	}
	s.ask(t, "GET", "/sandboxes", nil).want(http.StatusOK)
	c, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = io.WriteString(c, "GET /health HTTP/1.1\r\nHost: localhost\r\nX: "+strings.Repeat("x", 80<<10)+"\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("%v, %v", resp, err)
	}
	// A body that nobody reads, and that never comes.
	for _, request := range []string{"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n",
		"POST /sandboxes HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"} {
		c, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetReadDeadline(time.Now().Add(world.Patience))
		_, _ = io.WriteString(c, request)
		if _, err := io.ReadAll(c); errors.Is(err, os.ErrDeadlineExceeded) {
			testenv.Late(t, "the server waits for the body of %q", request)
		}
	}
}

// TestOwnPort: no sandbox reaches what hutch itself listens on, not even where its policy names the port; it does reach
// other servers of the host in the same way.
func TestOwnPort(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	world.NeedsPython(t)
	w := world.New(t)
	s := serve(t, w, "--grant", "host-ports")
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "other")
	}))
	defer other.Close()
	inside := s.sandbox(t, object{})
	w.ServeInside(t, inside, "127.0.0.1", "8000")
	var port struct{ Address string }
	s.ask(t, "POST", "/sandboxes/"+inside+"/ports", object{"port": 8000, "public": true}).
		want(http.StatusCreated, &port)
	portOf := func(at string) string { return at[strings.LastIndexByte(at, ':')+1:] }
	web, exposed, free := portOf(s.url), portOf(port.Address), portOf(other.URL)
	at := "/sandboxes/" +
		s.sandbox(t, object{"network": object{"allow": []string{"host:" + web, "host:" + exposed, "host:" + free}}})
	get := func(port string) (res struct {
		Stdout, Stderr string
		ExitCode       int
		Denials        []struct{ Kind, Rule string }
	}) {
		t.Helper()
		s.ask(t, "POST", at+"/processes", object{"cmd": "/usr/bin/python3", "args": []string{"-c",
			"import sys, urllib.request as r; print(r.urlopen('http://host:' + sys.argv[1] + '/health', timeout=20).read().decode())", port}}).
			want(http.StatusOK, &res)
		return res
	}
	if res := get(free); res.Stdout != "other\n" {
		t.Errorf("%+v", res)
	}
	for _, port := range []string{web, exposed} {
		res := get(port)
		if res.ExitCode == 0 || len(res.Denials) != 1 || res.Denials[0].Rule != "hutch's own port" ||
			res.Denials[0].Kind != "net" {
			t.Errorf("%+v", res)
		}
	}
	s.ask(t, "DELETE", "/sandboxes/"+inside+"/ports/8000", nil).want(http.StatusNoContent)
	if res := get(exposed); res.ExitCode == 0 || len(res.Denials) != 0 { // nobody listens: it fails as it would outside
		t.Errorf("%+v", res)
	}
}

// TestQuota: what a quota refuses is 429, with when to try again.
func TestQuota(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Configure(t, "quotas: {sandboxes: 1}\n")
	s := serve(t, w)
	id := s.sandbox(t, object{})
	a := s.ask(t, "POST", "/sandboxes", object{})
	if a.fails(http.StatusTooManyRequests, "resource_exhausted",
		"quotas.sandboxes"); a.header.Get("Retry-After") == "" {
		t.Errorf("%v", a.header)
	}
	s.ask(t, "DELETE", "/sandboxes/"+id, nil).want(http.StatusNoContent)
	s.sandbox(t, object{})
}
