package api

import "slices"

// Languages are what code.run knows. Of the first two interpreters are kept.
var Languages = []string{"python", "javascript", "shell", "go", "ruby"}

// KeepsContext says that code.run can keep an interpreter of a language.
func KeepsContext(language string) bool { return language == "python" || language == "javascript" }

// CodeParams are code.run's params.
type CodeParams struct {
	Sandbox string `json:"sandbox,omitempty"` // exactly one of Sandbox and Runtime
	// Runtime is an image, or the name of a runtime such as python@3.12, for a sandbox of this call's alone.
	Runtime  string `json:"runtime,omitempty"`
	Language string `json:"language"` // python, javascript, shell, go, ruby
	Code     string `json:"code"`
	// Context names an interpreter that is kept for the next run: variables and imports persist. "" is a context as
	// well, each language's default one. Fresh runs the code in an interpreter of its own, as do the languages that
	// have no contexts.
	Context string `json:"context,omitempty"`
	Fresh   bool   `json:"fresh,omitempty"`
	// AllowedImports, of python, are the modules that the code may import; empty means all. A scan checks them before
	// anything runs, and the interpreter meanwhile: a rule for honest code, and no wall.
	AllowedImports []string          `json:"allowed_imports,omitempty"`
	Env            map[string]string `json:"env,omitempty"`       // of a fresh interpreter
	Cwd            string            `json:"cwd,omitempty"`       // of a fresh interpreter; default: the sandbox's workdir
	User           string            `json:"user,omitempty"`      // default: the sandbox's user
	TimeoutS       float64           `json:"timeout_s,omitempty"` // default 30, at most 1800
	OutputBytes    int64             `json:"output_bytes,omitempty"`
	// Progress asks for what the code writes as it comes, in notifications of kind "code.output": at most output_bytes of
	// each stream. The result has it as without.
	Progress bool `json:"progress,omitempty"`
	// Network, with Runtime, is the policy of its sandbox.
	Network NetPolicy `json:"network,omitzero"`
}

// ProgressOutput is the Kind of the Progress with what code has written.
const ProgressOutput = "code.output"

// Bounds of code.run.
const (
	DefaultCodeTimeoutS = 30
	MaxCodeTimeoutS     = 1800
	MaxCodeBytes        = 1 << 20
	DefaultCodeOutput   = 64 << 10 // bytes of each stream
)

// Validate refuses impossible params.
func (p *CodeParams) Validate() error {
	kept := !p.Fresh && KeepsContext(p.Language) && p.Runtime == ""
	switch {
	case (p.Sandbox == "") == (p.Runtime == ""):
		return invalid("sandbox", "exactly one of sandbox and runtime is needed").
			WithHint("name a sandbox, or a runtime such as python@3.12")
	case !slices.Contains(Languages, p.Language):
		return invalid("language", "%q is no language", p.Language).
			WithHint("use python, javascript, shell, go or ruby")
	case p.Code == "" || len(p.Code) > MaxCodeBytes:
		return invalid("code", "%d bytes", len(p.Code)).WithHint("give 1 to %d bytes of code", MaxCodeBytes)
	case p.Context != "" && !isName(p.Context):
		return invalid("context", "%q is not a name", p.Context).WithHint("use 1 to 63 of a-z A-Z 0-9 _ . -")
	case p.Context != "" && !kept:
		return invalid("context", "given for code that runs in an interpreter of its own").
			WithHint("leave out fresh and runtime; python and javascript have contexts")
	case kept && (len(p.Env) > 0 || p.Cwd != ""):
		return invalid("env", "env and cwd are for fresh interpreters").WithHint("set them in the code, or use fresh")
	case len(p.AllowedImports) > 0 && p.Language != "python":
		return invalid("allowed_imports", "given for %s", p.Language).WithHint("only python's imports are checked")
	case p.Runtime == "" && !p.Network.IsZero():
		return invalid("network", "given without runtime").
			WithHint("the sandbox has a policy: network.update changes it")
	case p.TimeoutS < 0 || p.TimeoutS > MaxCodeTimeoutS:
		return invalid("timeout_s", "%v is not possible", p.TimeoutS).
			WithHint("use more than 0 and at most %d", MaxCodeTimeoutS)
	case p.OutputBytes < 0 || p.OutputBytes > DefaultOutputBytes:
		return invalid("output_bytes", "%d is not possible", p.OutputBytes).WithHint("use 1 to %d", DefaultOutputBytes)
	}
	if err := checkImports(p.AllowedImports); err != nil {
		return err
	}
	return checkUser("user", p.User)
}

// CodeResult is code.run's result.
type CodeResult struct {
	Call string `json:"call,omitempty"` // the id of the call, for checkpoint.restore in sandboxes with undo
	Exec string `json:"exec,omitempty"` // of the interpreter
	// Where is "host" of code that ran on the host, by the mode that hutch mcp was started with; Exec is then no exec
	// of a sandbox.
	Where   Where  `json:"where,omitempty"`
	Context string `json:"context,omitempty"` // the one it ran in
	// Begun says that the context is new: what earlier runs have defined is not there.
	Begun bool `json:"begun,omitempty"`
	// Text is the value of the code's last expression, as the interpreter shows it.
	Text      string     `json:"text,omitempty"`
	Stdout    string     `json:"stdout"`          // bytes that are no text are replaced
	Stderr    string     `json:"stderr"`          // the same of standard error
	Truncated bool       `json:"truncated"`       // the middle of a stream, or an artifact, is missing
	Error     *CodeError `json:"error,omitempty"` // what the code has raised, or why the interpreter ended
	Artifacts []Artifact `json:"artifacts"`
	// Of an interpreter that has ended.
	ExitCode   int      `json:"exit_code"`
	Verdict    Verdict  `json:"verdict"` // ok also while a context is kept; nonzero when the code has raised an error
	TimedOut   bool     `json:"timed_out"`
	DurationMS float64  `json:"duration_ms"`
	Denials    []Denial `json:"denials"`
	// Failures are connections that the policy allows, and that failed outside.
	Failures []Failure `json:"failures,omitempty"`
	Policy   string    `json:"policy,omitempty"` // as of an ExecResult
}

// CodeError is an exception.
type CodeError struct {
	Name      string `json:"name"`
	Value     string `json:"value"`               // what the error says
	Traceback string `json:"traceback,omitempty"` // where it was raised
}

// Artifact is something that code has made beside text.
type Artifact struct {
	// Kind is figure (of matplotlib), value (of the last expression, or displayed), table (JSON, orient "split") or
	// file (made or changed in the working directory).
	Kind     string `json:"kind"`
	MIMEType string `json:"mime_type"`
	Path     string `json:"path,omitempty"` // of a file
	Size     int64  `json:"size"`           // in bytes, also where Data is left out
	// Data is what it is: PNG in base64, other values and tables as text; of files only images, in base64.
	Data string `json:"data,omitempty"`
}

// CodeContextParams are code.end_context's params.
type CodeContextParams struct {
	Sandbox  string `json:"sandbox"`
	Language string `json:"language"`
	Context  string `json:"context,omitempty"`
}

// CodeContext is an interpreter that is kept.
type CodeContext struct {
	Language string `json:"language"`
	Context  string `json:"context"`
	Exec     string `json:"exec"`
	User     string `json:"user,omitempty"`
}

// CodeContexts is code.contexts' result.
type CodeContexts struct {
	Contexts []CodeContext `json:"contexts"`
}
