package api

// Names of the notifications.
const (
	NotifyCancel   = "rpc.cancel" // client to server: {id}
	NotifyProgress = "progress"   // server to client
)

// Call is one method of the RPC surface with the types of its params and its result. It is written once: the server
// registers a handler of these types, the client calls by it, and `make generate` makes of it the constant with its
// name, its row in Methods, the client's method, rpc.discover and docs/rpc.md.
type Call[P, R any] struct {
	Name    string
	Summary string // one sentence, which begins with a verb
	Notes   string // what else a caller must know
	// FDs says that fds may be passed with the request, Progress that notifications are sent if the params ask.
	FDs, Progress bool
	// EndsWithCaller says that it is cancelled when the connection is lost: it runs something for its caller, or its
	// answer is the only place where an id is said.
	EndsWithCaller bool
	// Example and Returns are params and a result of them, as JSON; "" is the empty object.
	Example, Returns string
}

// Method is one row of the RPC surface.
type Method struct {
	Name    string
	Summary string // one sentence, for rpc.discover and the documentation
	Params  any    // zero value of the params type
	Result  any    // zero value of the result type
	FDs     bool   // fds may ride on the request
}

// Empty is the params or result of a method that has none.
type Empty struct{}

// CreateParams are sandbox.create's params: a Spec, the fds that ride along and
// what the caller wants to hear meanwhile.
type CreateParams struct {
	Spec
	FDs      int  `json:"fds,omitempty"`
	Progress bool `json:"progress,omitempty"`
	// Debug asks for Sandbox.Debug in the answer.
	Debug bool `json:"debug,omitempty"`
	// Break stops the creation on its way; only with Debug.
	Break *Break `json:"break,omitempty"`
}

// SandboxParams name one sandbox by id or name.
type SandboxParams struct {
	Sandbox string `json:"sandbox"`
}

// ListParams are sandbox.list's params: only sandboxes with all these labels.
type ListParams struct {
	Labels map[string]string `json:"labels,omitempty"` // only sandboxes that have all of them
}

// SandboxList is sandbox.list's result.
type SandboxList struct {
	Sandboxes []Sandbox `json:"sandboxes"`
}

// KillResult lists the host pids that a kill ended.
type KillResult struct {
	Killed []int `json:"killed"` // host pids
}
