package agent_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/runtime/api"
)

// bareMCP is a session of a client that says no more than it must.
type bareMCP struct{ url, id, version string }

// send sends a message, and returns the answer's status and its JSON.
func (b *bareMCP) send(t testing.TB, method, message string) (status int, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, b.url, strings.NewReader(message))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if b.id != "" {
		req.Header.Set("Mcp-Session-Id", b.id)
	}
	if b.version != "" {
		req.Header.Set("MCP-Protocol-Version", b.version)
	}
	resp, err := (&http.Client{Transport: mcpToken}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if id := resp.Header.Get("Mcp-Session-Id"); id != "" && b.id == "" {
		b.id = id
	}
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok && strings.Contains(data, `"id"`) {
			return resp.StatusCode, data
		}
		answer += lines.Text()
	}
	return resp.StatusCode, answer
}

// openMCP begins a session, and does not say that it has: notifications/initialized is left out.
func openMCP(t testing.TB, url string) (b *bareMCP, answer string) {
	t.Helper()
	b = &bareMCP{url: url}
	_, answer = b.send(t, http.MethodPost, `{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18",
		"capabilities": {}, "clientInfo": {"name": "bare", "version": "1"}}}`)
	return b, answer
}

// run runs a command in the session's sandbox.
func (b *bareMCP) run(t testing.TB, command string) string {
	t.Helper()
	text, err := json.Marshal(command)
	if err != nil {
		t.Fatal(err)
	}
	_, answer := b.send(t, http.MethodPost, fmt.Sprintf(
		`{"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "sandbox_run_command", "arguments": {"command": %s}}}`, text))
	return answer
}

// TestMCPHTTPBare: a session counts, and ends with all that it has, whatever its client leaves out; also while a
// command of its is running.
func TestMCPHTTPBare(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	url, _ := mcpHTTP(t, w)
	c := w.Connect(t)
	var sessions []*bareMCP
	for range 32 {
		b, answer := openMCP(t, url)
		if !strings.Contains(answer, `"serverInfo"`) {
			t.Fatal(answer)
		}
		sessions = append(sessions, b)
	}
	if _, answer := openMCP(t, url); !strings.Contains(answer, "32 sessions are open") {
		t.Errorf("one more: %s", answer)
	}
	first := sessions[0]
	if _, answer := first.send(t, http.MethodPost,
		`{"jsonrpc": "2.0", "id": 9007199254740993, "method": "ping"}`); !strings.Contains(answer,
		`"id":9007199254740993,"error"`) {
		t.Errorf("an id that a float64 does not have: %s", answer)
	}
	if answer := first.run(t, "echo made"); !strings.Contains(answer, "made") {
		t.Fatal(answer)
	}
	gone := awaitRemoved(t, c, strings.TrimSpace(w.OK(t, "ps", "-aq")))
	if status, answer := first.send(t, http.MethodDelete, ""); status != http.StatusNoContent {
		t.Errorf("DELETE: %d %s", status, answer)
	}
	gone()
	// Also where the SDK refuses to end it: without what it has it is of no use.
	last := sessions[len(sessions)-1]
	if answer := last.run(t, "echo made"); !strings.Contains(answer, "made") {
		t.Fatal(answer)
	}
	gone = awaitRemoved(t, c, strings.TrimSpace(w.OK(t, "ps", "-aq")))
	last.version = "2020-01-01"
	if status, answer := last.send(t, http.MethodDelete, ""); status != http.StatusBadRequest {
		t.Errorf("DELETE of an unknown version: %d %s", status, answer)
	}
	gone()
	last.version = ""
	if status, answer := last.send(t, http.MethodPost,
		`{"jsonrpc": "2.0", "id": 3, "method": "ping"}`); status != http.StatusNotFound {
		t.Errorf("after that: %d %s", status, answer)
	}
	// There is room again, and the twin of a session that is over still works.
	if answer := sessions[1].run(t, "echo made"); !strings.Contains(answer, "made") {
		t.Fatal(answer)
	}
	id := strings.TrimSpace(w.OK(t, "ps", "-aq"))
	running := make(chan string, 1)
	started, err := c.Subscribe(t.Context(),
		api.SubscribeParams{Sandbox: id, Kinds: []api.EventKind{api.EventExecStarted}})
	if err != nil {
		t.Fatal(err)
	}
	go func() { running <- sessions[1].run(t, "echo running; sleep 1000") }()
	world.NextOf(t, started, api.EventExecStarted)
	gone = awaitRemoved(t, c, id)
	if status, answer := sessions[1].send(t, http.MethodDelete, ""); status != http.StatusNoContent {
		t.Errorf("DELETE: %d %s", status, answer)
	}
	gone()
	<-running
	if _, answer := openMCP(t, url); !strings.Contains(answer, `"serverInfo"`) {
		t.Errorf("after DELETE: %s", answer)
	}
}
