package exec_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// TestPorts: servers on a sandbox's own loopback are reached from the host, whatever the sandbox itself may reach.
func TestPorts(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	world.NeedsPython(t)
	w := world.New(t)
	w.LogOnFailure(t)
	sum := bigSum()
	for _, network := range []string{"none", "allow", "open"} {
		args := []string{"-p", "8000", "--network", network}
		if network == "allow" {
			args = append(args, "--allow", "a.test")
		}
		made := w.Run(t, append(append([]string{"create"}, args...), "host")...).Want(t, 0)
		sb := strings.TrimSpace(made.Stdout)
		made.Says(t, "hutch: port 8000 is 127.0.0.1:") // nobody has chosen where
		ports := world.Decode[[]api.Port](t, w.OK(t, "port", "ls", "--json", sb))
		if len(ports) != 1 || ports[0].Port != 8000 || ports[0].Sandbox != sb || ports[0].Token != "" ||
			!strings.Contains(made.Stderr, ports[0].Address) {
			t.Fatalf("%+v", ports)
		}
		if _, err := http.Get(ports[0].URL); err == nil { // nobody listens yet
			t.Error("an answer without a server")
		}
		w.ServeInside(t, sb, "127.0.0.1", "8000")
		if code, body := world.Get(t, ports[0].URL); code != 200 || body != "hello from 127.0.0.1" {
			t.Errorf("%s: %d %q", network, code, body)
		}
		if _, got := world.Get(t, ports[0].URL+"big"); got != sum {
			t.Errorf("%s: %s, want %s", network, got, sum)
		}
		upgraded(t, "tcp", ports[0].Address)
		websocket(t, ports[0].Address)
		w.ServeInside(t, sb, "::1", "8001")
		w.ServeInside(t, sb, "0.0.0.0", "8002")
		for port, host := range map[string]string{"8001": "::1", "8002": "0.0.0.0"} {
			at := strings.TrimSpace(w.OK(t, "port", "expose", sb, port))
			if code, body := world.Get(t, "http://"+at+"/"); code != 200 || body != "hello from "+host {
				t.Errorf("%s: %d %q", network, code, body)
			}
		}
		// What is exposed is no way out, nor to hutchd: the sandbox's own ports alone.
		if got := w.Run(t, "exec", sb, "--", "/usr/bin/python3", "-c",
			"import socket; socket.create_connection(('127.0.0.1', "+ports[0].Address[len("127.0.0.1:"):]+
				"), 5)"); !strings.Contains(got.Stderr, "Connection refused") {
			t.Errorf("the host's side from inside: %s", got.Stderr)
		}
		at := strings.TrimSpace(w.OK(t, "port", "expose", sb, world.Unlikely+":8000"))
		_, _ = world.Get(t, "http://"+at+"/")
		if network == "none" { // a stop closes them, and says how to publish them again
			open := len(world.Decode[[]api.Port](t, w.OK(t, "port", "ls", "--json", sb)))
			_, again, _ := strings.Cut(strings.TrimSpace(w.Run(t, "stop", "-t", "0", sb).Want(t, 0).Stderr),
				"again: hutch ")
			w.OK(t, "start", sb)
			w.OK(t, strings.Fields(again)...)
			if now := world.Decode[[]api.Port](t, w.OK(t, "port", "ls", "--json", sb)); len(now) != open ||
				now[0].Address != ports[0].Address {
				t.Errorf("%d ports, and %+v as %q has published them", open, now, again)
			}
		}
		w.OK(t, "rm", "-f", sb)
		if c, err := net.Dial("tcp", at); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("a removed sandbox: %v, %v", c, err)
		}
	}
	if got := w.OK(t, "port", "ls", "--json"); strings.TrimSpace(got) != "[]" {
		t.Errorf("left %s", got)
	}
}

// TestPortNode: the same with a server that reads and writes as it can.
func TestPortNode(t *testing.T) {
	t.Parallel()
	world.Needs(t, "node")
	w := world.New(t)
	r := w.Run(t, "create", "-p", "3000", "host").Want(t, 0)
	sb := strings.TrimSpace(r.Stdout)
	_, at, _ := strings.Cut(strings.TrimSpace(r.Stderr), " is ")
	w.StartServer(t, sb, "node", "-e", nodeServer, "127.0.0.1", "3000")
	if _, got := world.Get(t, "http://"+at+"/big"); got != bigSum() {
		t.Error(got)
	}
	upgraded(t, "tcp", at)
	websocket(t, at)
}

// TestPortAddresses: where a port may be, and why not elsewhere.
func TestPortAddresses(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	world.NeedsPython(t)
	w := world.New(t)
	sb := w.Create(t, "host")
	w.ServeInside(t, sb, "127.0.0.1", "8000")
	taken, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	w.Run(t, "port", "expose", sb, taken.Addr().String()+":8000").Want(t, 125).
		Says(t, "already in use", "choose another port")
	w.Run(t, "port", "expose", sb, "192.0.2.1:0:8000").Want(t, 125).
		Says(t, "cannot assign requested address", "ip addr")
	for _, bad := range []string{"8000:http", "x:1:80", ":::80", "0"} {
		w.Run(t, "port", "expose", sb, bad).Want(t, 125).Says(t, "PORT")
	}
	c := w.Connect(t)
	refused := func(code api.Code, field string, p api.PortExposeParams) {
		t.Helper()
		p.Sandbox = sb
		if port, err := c.ExposePort(t.Context(), p, nil); api.ErrorCode(err) != code || field != "" &&
			fieldOf(err) != field {
			t.Errorf("%+v: %+v, %v (%s), want %s", p, port, err, fieldOf(err), code)
		}
	}
	refused(api.AlreadyExists, "address", api.PortExposeParams{Port: 8000, Address: taken.Addr().String()})
	refused(api.InvalidArgument, "port", api.PortExposeParams{Port: 0})
	refused(api.InvalidArgument, "address", api.PortExposeParams{Port: 80, Address: ":80"})
	// hutchd may not, whoever has started it; root itself hands over what it may.
	refused(api.PermissionDenied, "address", api.PortExposeParams{Port: 8000, Address: "127.0.0.1:719"})
	if os.Geteuid() == 0 {
		if got := w.OK(t, "port", "expose", sb, "127.0.0.1:719:8000"); got != "127.0.0.1:719\n" {
			t.Errorf("a low port: %q", got)
		}
	} else {
		w.Run(t, "port", "expose", sb, "719:8000").Want(t, 125).Says(t, "permission denied", "8719")
	}
	// All addresses, because that was said.
	at := strings.TrimSpace(w.OK(t, "port", "expose", sb, "0.0.0.0:0:8000"))
	if _, port, _ := net.SplitHostPort(at); !strings.HasPrefix(at, "0.0.0.0:") {
		t.Errorf("%q", at)
	} else if _, body := world.Get(t, "http://127.0.0.2:"+port+"/"); body != "hello from 127.0.0.1" {
		t.Errorf("%q", body)
	}
	w.OK(t, "port", "close", sb, "8000", at)
	at = strings.TrimSpace(w.OK(t, "port", "expose", sb, world.Unlikely+":8000"))
	_, _ = world.Get(t, "http://"+at+"/")
	w.OK(t, "port", "close", sb, "8000", at)
	if _, err := net.Dial("tcp", at); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a closed port: %v", err)
	}
	w.Run(t, "port", "close", sb, "8000", at).Want(t, 125).
		Says(t, "is not reached from the host at "+at, "hutch port ls")
	for range api.MaxPorts + 1 {
		if _, err = c.ExposePort(t.Context(), api.PortExposeParams{Sandbox: sb, Port: 8000}, nil); err != nil {
			break
		}
	}
	if api.ErrorCode(err) != api.ResourceExhausted {
		t.Errorf("more than %d ports: %v", api.MaxPorts, err)
	}
	w.OK(t, "port", "close", sb, "8000")
	if got := world.Decode[[]api.Port](t, w.OK(t, "port", "ls", "--json", sb)); len(got) != 0 {
		t.Errorf("left %+v", got)
	}
}

func fieldOf(err error) string {
	var e *api.Error
	if errors.As(err, &e) {
		return e.Field
	}
	return ""
}

// TestPortSocket: a Unix socket, which its user alone can connect to.
func TestPortSocket(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	world.NeedsPython(t)
	w := world.New(t)
	sb := w.Create(t, "host")
	w.ServeInside(t, sb, "127.0.0.1", "8000")
	path := w.Path("web.sock")
	if got := w.OK(t, "port", "expose", sb, path+":8000"); got != path+"\n" {
		t.Errorf("%q", got)
	}
	if st, err := os.Lstat(path); err != nil || st.Mode() != os.ModeSocket|0o600 {
		t.Errorf("%v, %v", st, err)
	}
	url := "http://" + strings.ReplaceAll(strings.TrimSuffix(path, ".sock"), "/", "_") + ".sock.socket/big"
	if _, got := world.Get(t, url); got != bigSum() {
		t.Error(got)
	}
	upgraded(t, "unix", path)
	w.Run(t, "port", "expose", sb, path+":8000").Want(t, 125).Says(t, "there is such a file")
	if err := os.Symlink(w.Dir, w.Path("link")); err != nil {
		t.Fatal(err)
	}
	w.Run(t, "port", "expose", sb, w.Path("link/x.sock")+":8000").Want(t, 125).Says(t, "symlinks are not followed")
	w.Run(t, "port", "expose", sb, w.Path("none/x.sock")+":8000").Want(t, 125).Says(t, "folder")
	w.OK(t, "port", "close", sb, "8000")
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("left behind: %v", err)
	}
	// What another has put there meanwhile stays.
	w.OK(t, "port", "expose", sb, path+":8000")
	if err := errors.Join(os.Remove(path), os.WriteFile(path, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	w.OK(t, "rm", "-f", sb)
	if _, err := os.Lstat(path); err != nil {
		t.Error(err)
	}
}

// TestPortToken: HTTP with a token, once in a link and then as a cookie, or in a header.
func TestPortToken(t *testing.T) {
	t.Parallel()
	world.NeedsPython(t)
	w := world.New(t)
	sb := w.Create(t, "host")
	link := strings.TrimSpace(w.OK(t, "port", "expose", "--token", sb, "8000"))
	url, token, ok := strings.Cut(link, "?token=")
	if !ok || len(token) < 26 {
		t.Fatalf("link %q", link)
	}
	if code, body := world.Get(t, url, "Authorization", "Bearer "+token); code != 502 ||
		!strings.Contains(body, "nobody listens") {
		t.Errorf("%d %q", code, body)
	}
	w.ServeInside(t, sb, "127.0.0.1", "8000")
	for _, header := range [][]string{{}, {"Authorization", "Bearer x" + token}, {"Authorization", "Basic " + token},
		{"Cookie", "hutch_token_=" + token}} {
		if code, body := world.Get(t, url, header...); code != 401 || !strings.Contains(body, "token") ||
			strings.Contains(body, token) {
			t.Errorf("%q: %d %q", header, code, body)
		}
	}
	if code, _ := world.Get(t, url+"?token="+token[1:]); code != 401 {
		t.Errorf("a part of the token: %d", code)
	}
	code, next := world.Get(t, url+"/evil.test/x?a=1&token="+token)
	path, cookie, _ := strings.Cut(next, " ")
	if code != 303 || path != "/evil.test/x?a=1" || !strings.Contains(cookie, "="+token+";") ||
		!strings.Contains(cookie, "HttpOnly") {
		t.Errorf("a link: %d %q", code, next)
	}
	cookie, _, _ = strings.Cut(cookie, ";")
	for _, header := range [][]string{{"Authorization", "Bearer " + token}, {"Cookie", "a=b; " + cookie}} {
		if code, body := world.Get(t, url, header...); code != 200 || body != "hello from 127.0.0.1" {
			t.Errorf("%q: %d %q", header, code, body)
		}
	}
	if _, body := world.Get(t, strings.TrimSuffix(url, "/")+"/big", "Authorization", "Bearer "+
		token); body != bigSum() {
		t.Error(body)
	}
	if text := w.OK(t, "audit", sb); strings.Contains(text, token) {
		t.Error("the token is in the audit log")
	}
	c, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(world.Patience))
	_, _ = c.Write([]byte("SSH-2.0-x\r\n\r\n"))
	if answer, err := io.ReadAll(c); err != nil || !bytes.HasPrefix(answer, []byte("HTTP/1.1 400 ")) {
		t.Errorf("what is not HTTP: %q, %v", answer, err)
	}
}

// TestPortDeath: ports outlive hutchd, and the monitor.
func TestPortDeath(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	world.NeedsPython(t)
	w := world.New(t)
	w.LogOnFailure(t)
	for _, network := range []string{"none", "open"} {
		sb := w.Create(t, "--network", network, "host")
		w.ServeInside(t, sb, "127.0.0.1", "8000")
		path := w.Path("web.sock")
		w.OK(t, "port", "expose", sb, "8000", path+":8000")
		link := strings.TrimSpace(w.OK(t, "port", "expose", "--token", sb, "8000"))
		before := w.OK(t, "port", "ls", sb)
		for range 2 {
			d := w.Daemon(t)
			world.Kill(t, d.Hutchd)
			for _, p := range world.Decode[[]api.Port](t, w.OK(t, "port", "ls", "--json", sb)) {
				if p.Token != "" || p.URL == "" {
					continue
				}
				if code, body := world.Get(t, p.URL); code != 200 || body != "hello from 127.0.0.1" {
					t.Errorf("%s: %d %q", network, code, body)
				}
			}
			if code, _ := world.Get(t, link); code != 303 {
				t.Errorf("with its token: %d", code)
			}
			upgraded(t, "unix", path)
		}
		if after := strings.Join(strings.Fields(w.OK(t, "port", "ls", sb)),
			" "); len(strings.Fields(before)) != len(strings.Fields(after)) {
			t.Errorf("ports\n%s, before\n%s", after, before)
		}
		w.OK(t, "port", "close", sb, "8000")
		w.OK(t, "rm", "-f", sb)
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			t.Errorf("left behind: %v", err)
		}
	}
}

// TestPortRun: -p of hutch run, and what ends with it.
func TestPortRun(t *testing.T) {
	t.Parallel()
	world.NeedsPython(t)
	w := world.New(t)
	path := w.Path("run.sock")
	c := w.Launch(t, "run", "-p", path+":8000", "host", "--", "/usr/bin/python3", "-u", "-c", world.PythonServer,
		"127.0.0.1", "8000")
	c.Await(t, "ready")
	upgraded(t, "unix", path)
	if err := c.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := world.Await(t, c.Cmd); code != 143 {
		t.Errorf("exit code %d", code)
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("left behind: %v", err)
	}
	taken, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	publish := []string{"-p", path + ":1", "-p", taken.Addr().String() + ":80", "host"}
	for _, args := range [][]string{append([]string{"run"}, append(publish, "true")...),
		append([]string{"run", "-d"}, append(publish, "true")...), append([]string{"create"}, publish...)} {
		w.Run(t, args...).Want(t, 125).Says(t, "already in use")
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("left behind: %v", err)
	}
	if got := w.OK(t, "ps", "-q", "-a"); got != "" {
		t.Errorf("left %q", got)
	}
}

// TestPortOpened: who watches hears of a server when it begins to listen, and of none twice.
func TestPortOpened(t *testing.T) {
	t.Parallel()
	world.NeedsPython(t)
	w := world.New(t)
	w.LogOnFailure(t)
	c := w.Connect(t)
	for _, network := range []string{"none", "open"} {
		sb := w.Create(t, "-p", "8000", "--network", network, "host")
		ports, err := c.Ports(t.Context(), sb)
		if err != nil || len(ports) != 1 {
			t.Fatal(ports, err)
		}
		events, err := c.Subscribe(t.Context(),
			api.SubscribeParams{Sandbox: sb, Kinds: []api.EventKind{api.EventPortOpened}})
		if err != nil {
			t.Fatal(err)
		}
		opened := func() (e api.PortEvent) {
			t.Helper()
			if err := json.Unmarshal(world.NextOf(t, events, api.EventPortOpened).Data, &e); err != nil {
				t.Fatal(err)
			}
			return e
		}
		w.ServeInside(t, sb, "127.0.0.1", "8000")
		if e := opened(); e.Port != 8000 || e.Listen != "127.0.0.1" || len(e.Addresses) != 1 ||
			e.Addresses[0] != ports[0].Address {
			t.Errorf("%+v", e)
		}
		w.ServeInside(t, sb, "::1", "8001")
		if e := opened(); e.Port != 8001 || e.Listen != "::1" || len(e.Addresses) != 0 {
			t.Errorf("%+v", e)
		}
		world.Kill(t, w.Daemon(t).Hutchd)
		c = w.Connect(t)
		if events, err = c.Subscribe(t.Context(),
			api.SubscribeParams{Sandbox: sb, Kinds: []api.EventKind{api.EventPortOpened}}); err != nil {
			t.Fatal(err)
		}
		w.ServeInside(t, sb, "0.0.0.0", "8002")
		if e := opened(); e.Port != 8002 || e.Listen != "0.0.0.0" {
			t.Errorf("%+v", e)
		}
		w.OK(t, "rm", "-f", sb)
	}
}

// TestPortResumes: a connection from the host lets a paused sandbox go on, and nothing else does.
func TestPortResumes(t *testing.T) {
	t.Parallel()
	world.NeedsPython(t)
	w := world.New(t)
	sb := w.Create(t, "host")
	w.ServeInside(t, sb, "127.0.0.1", "8000")
	at := strings.TrimSpace(w.OK(t, "port", "expose", sb, "8000"))
	other := strings.TrimSpace(w.OK(t, "port", "expose", w.Create(t, "host"), "8000"))
	for range 3 {
		w.OK(t, "pause", sb)
		if _, err := http.Get("http://" + other + "/"); err == nil {
			t.Error("an answer without a server")
		}
		got := world.Decode[api.Sandbox](t, w.OK(t, "rpc", "sandbox.get", `{"sandbox":"`+sb+`"}`))
		if got.State != api.Paused {
			t.Errorf("%s before anybody has connected to it", got.State)
		}
		if code, body := world.Get(t, "http://"+at+"/"); code != 200 || body != "hello from 127.0.0.1" {
			t.Errorf("%d %q", code, body)
		}
		if got := world.Decode[api.Sandbox](t, w.OK(t, "rpc", "sandbox.get", `{"sandbox":"`+sb+
			`"}`)); got.State != api.Running || got.Paused != nil {
			t.Errorf("%s, %+v", got.State, got.Paused)
		}
	}
}
