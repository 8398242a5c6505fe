package jsonrpc

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/hutch-sh/hutch/runtime/api"
)

// The error numbers that JSON-RPC 2.0 itself defines.
const (
	CodeParse          = -32700 // not JSON
	CodeInvalidRequest = -32600 // JSON, but not a request
	CodeMethodNotFound = -32601
	CodeInvalidParams  = -32602
)

// Error is the error member of a response.
type Error struct {
	Code    int           `json:"code"`
	Message string        `json:"message"`
	Data    api.ErrorData `json:"data"`
}

func (e *Error) Error() string { return fmt.Sprintf("[%d] %s", e.Code, e.Message) }

// protocolError makes an error whose hint is given; all of them have one.
func protocolError(code int, hint, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), Data: api.ErrorData{Hint: hint}}
}

const (
	hintShape = `A request is one line: {"jsonrpc":"2.0","id":1,"method":"system.info","params":{}}.`
	hintIDs   = "Give every call that is under way an id of its own."
)

// message is one request. It lies in the line that it came with, but for id and method.
type message struct {
	id     string // as written; "" for a notification
	method string
	params json.RawMessage
	err    *Error // why it is no request; id may be known nevertheless
}

// parse splits a line into its requests. err is about the line as a whole.
func parse(line []byte) (msgs []message, batch bool, err *Error) {
	line = bytes.TrimSpace(line)
	raws := []json.RawMessage{line}
	if !json.Valid(line) {
		return nil, false, protocolError(CodeParse, hintShape, "the request line is not JSON")
	}
	if line[0] == '[' {
		batch = true
		if e := json.Unmarshal(line, &raws); e != nil {
			return nil, true, protocolError(CodeParse, hintShape, "the batch is not JSON")
		}
		if len(raws) == 0 {
			return nil, true, protocolError(CodeInvalidRequest, hintShape, "the batch is empty")
		}
		// Two million ones fit into a line, and each costs an answer.
		if len(raws) > MaxInFlight {
			return nil, true, protocolError(CodeInvalidRequest, "Send several batches.",
				"the batch has %d members, at most %d are taken", len(raws), MaxInFlight)
		}
	}
	for _, raw := range raws {
		msgs = append(msgs, parseOne(raw))
	}
	return msgs, batch, nil
}

// parseOne reads a request of valid JSON. An id of null is an error and not a notification, whose sender would wait.
func parseOne(raw json.RawMessage) message {
	var m message
	fields, ok := Members(raw)
	if !ok {
		m.err = protocolError(CodeInvalidRequest, hintShape, "the request is not a JSON object")
		return m
	}
	if id, ok := fields["id"]; ok {
		if !validID(id) {
			m.err = protocolError(CodeInvalidRequest, "Use a number or a string as id.", "invalid request id %s",
				clip(id))
			return m
		}
		m.id = string(id)
	}
	for name := range fields {
		switch name {
		case "jsonrpc", "id", "method", "params":
		default:
			m.err = protocolError(CodeInvalidRequest, hintShape, "unknown member %q in the request", name)
			return m
		}
	}
	var version string
	if json.Unmarshal(fields["jsonrpc"], &version) != nil || version != "2.0" {
		m.err = protocolError(CodeInvalidRequest, hintShape, `the member "jsonrpc" must be "2.0"`)
		return m
	}
	if json.Unmarshal(fields["method"], &m.method) != nil || m.method == "" {
		m.err = protocolError(CodeInvalidRequest, hintShape, `the member "method" must be a name`)
		return m
	}
	m.params = fields["params"]
	if p := m.params; len(p) > 0 && p[0] != '{' && p[0] != '[' && string(p) != "null" {
		m.err = protocolError(CodeInvalidRequest, "Pass parameters by name, in an object.",
			"the parameters are not an object")
	}
	return m
}

func validID(id json.RawMessage) bool {
	c := id[0]
	return c == '"' || c == '-' || (c >= '0' && c <= '9')
}

// clip shortens what an error message quotes.
func clip(b []byte) string {
	const most = 80
	if len(b) > most {
		return string(b[:most]) + "..."
	}
	return string(b)
}

// resultReply is the line that answers the request id.
func resultReply(id string, result json.RawMessage) []byte {
	const head, middle = `{"jsonrpc":"2.0","id":`, `,"result":`
	line := make([]byte, 0, len(head)+len(id)+len(middle)+len(result)+len("}\n"))
	return append(append(append(append(append(line, head...), id...), middle...), result...), '}')
}

// errorReply is the line that answers the request id with an error.
func errorReply(id string, e *Error) []byte {
	reply := struct {
		V     string          `json:"jsonrpc"`
		ID    json.RawMessage `json:"id"`
		Error *Error          `json:"error"`
	}{"2.0", json.RawMessage("null"), e}
	if id != "" {
		reply.ID = json.RawMessage(id)
	}
	return marshal(reply)
}

// notification is the line of a notification.
func notification(method string, params any) ([]byte, error) {
	p, err := json.Marshal(params)
	if err != nil {
		return nil, fmt.Errorf("encode notification %s: %w", method, err)
	}
	return marshal(struct {
		V      string          `json:"jsonrpc"`
		Method string          `json:"method"`
		Params json.RawMessage `json:"params"`
	}{"2.0", method, p}), nil
}

// marshal is for values that cannot fail to encode.
func marshal(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("encode %T: %v", v, err))
	}
	return data
}

// HeadID finds the id in the first bytes of a request, so that who has sent one that is too long need not wait for
// ever; "" where it is not there.
func HeadID(head []byte) string {
	d := json.NewDecoder(bytes.NewReader(head))
	if first, err := d.Token(); err != nil || first != json.Delim('{') {
		return ""
	}
	for {
		key, err := d.Token()
		if err != nil {
			return ""
		}
		var value json.RawMessage
		if d.Decode(&value) != nil {
			return ""
		}
		if key == "id" {
			if value[0] == '{' || value[0] == '[' {
				return ""
			}
			return string(value)
		}
	}
}
