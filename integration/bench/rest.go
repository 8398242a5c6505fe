package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
)

// restSubjects are what REST costs beside JSON-RPC.
func restSubjects() []Subject {
	return []Subject{
		{Name: "rpc-life", About: "sandbox.create, exec.run of true and sandbox.remove, over a warm connection",
			Setup: setupRPCLife},
		{Name: "rest-life", About: "the same over REST", Setup: setupRESTLife},
		{Name: "rest-process", About: "a process of true over REST, as hutch-call does it", Setup: setupRESTProcess},
		{Name: "rest-upload", About: "256 MiB into a file over REST", Setup: setupRESTUpload},
		{Name: "rest-download", About: "256 MiB of a file over REST", Setup: setupRESTDownload},
	}
}

// web is a `hutch web` on a Unix socket, and a client of it.
type web struct{ http.Client }

// startWeb starts it, once for all subjects.
func (h *Host) startWeb(ctx context.Context) (*web, error) {
	if h.web != nil {
		return h.web, nil
	}
	if err := h.needOwnDaemon(); err != nil {
		return nil, err
	}
	d, err := h.sharedDaemon(ctx)
	if err != nil {
		return nil, err
	}
	at := h.path("run", "web.sock")
	cmd := exec.Command(d.hutch, "web", "--listen", at, "--max-upload", "1g")
	cmd.Env = append(os.Environ(), d.env...)
	said, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	h.undo.Add(func() error { return errors.Join(cmd.Process.Signal(unix.SIGTERM), cmd.Wait()) })
	first := make([]byte, 4096)
	if n, err := said.Read(first); err != nil || !strings.Contains(string(first[:n]), "listening") {
		return nil, fmt.Errorf("hutch web: %q: %w", first[:n], cmp.Or(err, errNotListening))
	}
	h.web = &web{http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", at)
		}}}}
	return h.web, nil
}

var errNotListening = errors.New("it does not listen")

// ask sends a request and decodes the answer.
func (w *web) ask(ctx context.Context, method, path string, body io.Reader, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, "http://localhost"+path, body)
	if err != nil {
		return err
	}
	resp, err := w.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusBadRequest {
		text, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, text)
	}
	if into == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		return err
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

// create makes a sandbox and returns its path.
func (w *web) create(ctx context.Context) (string, error) {
	var sb struct{ SandboxID string }
	err := w.ask(ctx, http.MethodPost, "/sandboxes", strings.NewReader(`{"image":"host"}`), &sb)
	return "/sandboxes/" + sb.SandboxID, err
}

// run runs true in one.
func (w *web) run(ctx context.Context, sandbox string) error {
	var res struct{ ExitCode int }
	err := w.ask(ctx, http.MethodPost, sandbox+"/processes",
		strings.NewReader(`{"cmd":"/bin/true","args":["x"]}`), &res)
	if err == nil && res.ExitCode != 0 {
		err = fmt.Errorf("exit code %d", res.ExitCode)
	}
	return err
}

func setupRPCLife(ctx context.Context, h *Host) (*Prepared, error) {
	c, err := h.dialShared(ctx)
	if err != nil {
		return nil, err
	}
	return timedCalls("sandbox.create, exec.run, sandbox.remove", func(ctx context.Context) error {
		sb, err := c.CreateSandbox(ctx, api.CreateParams{Spec: api.Spec{Image: "host", TTLS: 300}}, nil, nil)
		if err != nil {
			return err
		}
		_, err = call(ctx, c, sb.ID, nil)
		_, rerr := c.Remove(ctx, sb.ID)
		return errors.Join(err, rerr)
	}), nil
}

func setupRESTLife(ctx context.Context, h *Host) (*Prepared, error) {
	w, err := h.startWeb(ctx)
	if err != nil {
		return nil, err
	}
	return timedCalls("POST /sandboxes, POST processes, DELETE", func(ctx context.Context) error {
		at, err := w.create(ctx)
		if err != nil {
			return err
		}
		err = w.run(ctx, at)
		return errors.Join(err, w.ask(ctx, http.MethodDelete, at, nil, nil))
	}), nil
}

func setupRESTProcess(ctx context.Context, h *Host) (*Prepared, error) {
	w, err := h.startWeb(ctx)
	if err != nil {
		return nil, err
	}
	at, err := w.create(ctx)
	if err != nil {
		return nil, err
	}
	return timedCalls("POST processes", func(ctx context.Context) error { return w.run(ctx, at) }), nil
}

// restBytes is what one run moves: a gigabyte a second takes a quarter of one.
const restBytes = 256 << 20

func setupRESTUpload(ctx context.Context, h *Host) (*Prepared, error) {
	w, err := h.startWeb(ctx)
	if err != nil {
		return nil, err
	}
	at, err := w.create(ctx)
	if err != nil {
		return nil, err
	}
	return moved("PUT files", func(ctx context.Context) error {
		return w.ask(ctx, http.MethodPut, at+"/files?path=/dev/shm/big", io.LimitReader(zeros{}, restBytes), nil)
	}), nil
}

func setupRESTDownload(ctx context.Context, h *Host) (*Prepared, error) {
	w, err := h.startWeb(ctx)
	if err != nil {
		return nil, err
	}
	at, err := w.create(ctx)
	if err == nil {
		err = w.ask(ctx, http.MethodPut, at+"/files?path=/dev/shm/big", io.LimitReader(zeros{}, restBytes), nil)
	}
	if err != nil {
		return nil, err
	}
	return moved("GET files", func(ctx context.Context) error {
		return w.ask(ctx, http.MethodGet, at+"/files?path=/dev/shm/big", nil, nil)
	}), nil
}

// moved measures what moves restBytes once.
func moved(command string, one func(ctx context.Context) error) *Prepared {
	return &Prepared{
		Command: command + " over a Unix socket", Note: fmt.Sprintf("%d MiB", restBytes>>20),
		Run: func(ctx context.Context) (Sample, error) {
			start := time.Now()
			err := one(ctx)
			return Sample{Wall: time.Since(start)}, err
		},
	}
}

// zeros is a file of zeros that nobody has to read.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
