package agents_test

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// object is one of JSON.
type object = map[string]any

// turn is what a model says: the call of a tool, or text. Beside a tool, text is the input of one that takes a text.
type turn struct {
	tool string // of a namespace: NAMESPACE/TOOL
	args object
	text string
}

// model is a server that speaks the protocols of the makers of models, and follows a script: it says the turn after as
// many answers of tools as a conversation has. Of a script that begins with text, it is as many texts of its own. After
// the last turn it says that one again.
type model struct {
	*httptest.Server
	script []turn

	mu      sync.Mutex
	told    []string // what tools have answered, of the longest conversation
	offered []string // tools
	unknown []string // requests that none of the dialects has
}

// conversation is what a request says of what was before.
type conversation struct {
	tools   []string
	results []string
	said    int  // by the model
	stream  bool // is wanted
	model   string
	aside   string // of the client, which is no turn: its answer
}

// dialect is how a maker's clients speak.
type dialect struct {
	path   string // that requests have in theirs
	read   func(r object) conversation
	answer func(c conversation, t turn, n int) []event // of a stream; the last one is all that is said without one
}

// event is one of a stream of server-sent events.
type event struct {
	name string
	data any
}

func serveModel(t testing.TB, script ...turn) *model {
	t.Helper()
	m := &model{script: script}
	m.Server = httptest.NewServer(m)
	t.Cleanup(m.Close)
	return m
}

// ServeHTTP implements http.Handler.
func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/models") {
		reply(w, object{"object": "list", "data": []any{}, "models": []any{}})
		return
	}
	switch {
	case r.Method == http.MethodHead:
		return
	case r.Header.Get("Upgrade") != "": // a client that has WebSockets goes on without
		http.Error(w, "no WebSockets", http.StatusUpgradeRequired)
		return
	}
	i := slices.IndexFunc(dialects, func(d dialect) bool { return strings.Contains(r.URL.Path, d.path) })
	if r.Method != http.MethodPost || i < 0 {
		m.note(r)
		http.Error(w, `{"error": {"message": "no such path", "type": "not_found_error"}}`, http.StatusNotFound)
		return
	}
	d := dialects[i]
	asked, err := body(r)
	if err != nil {
		m.note(r)
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c := d.read(asked)
	c.stream = c.stream || strings.Contains(r.URL.Path, ":stream")
	now, n := m.next(c)
	events := d.answer(c, now, n)
	last := events[len(events)-1]
	if !c.stream {
		reply(w, last.data)
		return
	}
	if len(events) > 1 {
		events = events[:len(events)-1]
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for _, e := range events {
		if e.name != "" {
			fmt.Fprintf(w, "event: %s\n", e.name)
		}
		data, ok := e.data.(string)
		if !ok {
			data = text(e.data)
		}
		fmt.Fprintf(w, "data: %s\n\n", data)
		_ = http.NewResponseController(w).Flush()
	}
}

func (m *model) note(r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unknown = append(m.unknown, r.Method+" "+r.URL.Path)
}

// next is what the model says now, and the number of the turn.
func (m *model) next(c conversation) (turn, int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.aside != "" {
		return turn{text: c.aside}, 0
	}
	n := len(c.results)
	if texts := m.script[0].tool == ""; texts {
		n = c.said
	} else if len(c.tools) == 0 { // a title for the conversation, a summary
		return turn{text: "A task"}, 0
	}
	if len(c.results) >= len(m.told) {
		m.told, m.offered = c.results, c.tools
	}
	return m.script[min(n, len(m.script)-1)], n
}

// heard is all that tools have answered.
func (m *model) heard() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return strings.Join(m.told, "\n")
}

// String is what a test that fails wants to know.
func (m *model) String() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return fmt.Sprintf("tools: %q\nanswers: %q\nother requests: %q", m.offered, m.told, m.unknown)
}

// body is the JSON of a request.
func body(r *http.Request) (object, error) {
	var in io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			return nil, err
		}
		in = z
	}
	var asked object
	return asked, json.NewDecoder(in).Decode(&asked)
}

func reply(w http.ResponseWriter, what any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(what)
}

// text is a value as JSON.
func text(v any) string {
	data, _ := json.Marshal(v) // it came as JSON, or is a script's
	return string(data)
}

// objects are those of a list in JSON.
func objects(list any) (all []object) {
	values, _ := list.([]any)
	for _, v := range values {
		if o, ok := v.(object); ok {
			all = append(all, o)
		}
	}
	return all
}

func word(o object, name string) string {
	s, _ := o[name].(string)
	return s
}
