package api

import (
	"encoding/json"
	"strings"
)

// The tools are what a language model works with in a sandbox: few, with results that are bounded and say how to go on.
// They need nothing of the image, not even a shell, but sandbox_run_command, which runs what the image has.

// Names of the tools.
const (
	ToolNameReadFile      = "sandbox_read_file"
	ToolNameWriteFile     = "sandbox_write_file"
	ToolNameDeleteFile    = "sandbox_delete_file"
	ToolNameListDirectory = "sandbox_list_directory"
	ToolNameRunCommand    = "sandbox_run_command"
	ToolNameGrepFiles     = "sandbox_grep_files"
	ToolNameFindFiles     = "sandbox_find_files"
	ToolNameApplyPatch    = "sandbox_apply_patch"
	ToolNameFindReplace   = "sandbox_find_replace"
	ToolNameDownloadURL   = "sandbox_download_url"
	ToolNameExposePort    = "sandbox_expose_port"
	ToolNameListPorts     = "sandbox_list_ports"
	ToolNameClosePort     = "sandbox_close_port"
)

// Tool describes a tool to a model and to whoever decides what that may do. The last four are hints as MCP has them.
type Tool struct {
	Name         string          `json:"name"`
	Title        string          `json:"title"`
	Description  string          `json:"description"`   // for a model
	InputSchema  json.RawMessage `json:"input_schema"`  // JSON Schema of ToolCallParams.Arguments
	OutputSchema json.RawMessage `json:"output_schema"` // JSON Schema of ToolResult.Structured
	ReadOnly     bool            `json:"read_only"`     // it changes nothing in the sandbox
	Destructive  bool            `json:"destructive"`   // it may overwrite or remove what is there
	Idempotent   bool            `json:"idempotent"`    // the same call again changes no more
	OpenWorld    bool            `json:"open_world"`    // it may reach what is outside the sandbox, as far as the policy goes
}

// ToolList is tools.list's result.
type ToolList struct {
	Tools []Tool `json:"tools"`
}

// ToolCallParams are tools.call's params.
type ToolCallParams struct {
	Sandbox string `json:"sandbox"`
	Name    string `json:"name"`
	// Arguments are an object that fits the tool's input schema.
	Arguments json.RawMessage `json:"arguments,omitempty"`
	User      string          `json:"user,omitempty"` // name|uid[:group|gid]; default: the sandbox's user
	// Progress asks for a notification with the exec's id when sandbox_run_command's has started.
	Progress bool `json:"progress,omitempty"`
}

// Validate refuses impossible params.
func (p *ToolCallParams) Validate() error {
	if p.Name == "" {
		return invalid("name", "missing").WithHint("tools.list lists the tools")
	}
	return checkUser("user", p.User)
}

// ToolResult is tools.call's result. What a model can act on is a result, also where it failed: a file that is not
// there, a command that did not succeed, arguments that do not fit. Errors of tools.call are about its caller: an
// unknown sandbox or tool.
type ToolResult struct {
	// Call is the id of the call. Undo says that checkpoint.restore can take back what it has changed.
	Call    string        `json:"call"`
	Undo    bool          `json:"undo,omitempty"`
	Content []ToolContent `json:"content"`
	// Structured is the same for programs; it fits the tool's output schema. Missing where Error is set.
	Structured json.RawMessage `json:"structured,omitempty"`
	IsError    bool            `json:"is_error"` // the tool could not do it
	Error      *ToolError      `json:"error,omitempty"`
}

// ToolError is why a tool could not do what it was asked for.
type ToolError struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
	Field   string `json:"field,omitempty"` // of the arguments
	Hint    string `json:"hint,omitempty"`
}

// ToolContent is one piece of a result, for a model.
type ToolContent struct {
	Type string `json:"type"` // text, image or link
	Text string `json:"text,omitempty"`
	// Data is an image's bytes in base64.
	Data     string `json:"data,omitempty"`
	MIMEType string `json:"mime_type,omitempty"` // of an image or a link's target
	URI      string `json:"uri,omitempty"`       // of a link
	Name     string `json:"name,omitempty"`      // of a link's target
	Size     int64  `json:"size,omitempty"`      // of a link's target, in bytes; 0 where it is not known
}

// ToolCallEvent is the data of tool.call.
type ToolCallEvent struct {
	Call string `json:"call"` // the same in the tool.message that ends it
	Tool string `json:"tool"`
	// Arguments are the call's. Long texts are cut, and those that are contents (of files, patches and stdin) or
	// values of the environment are left out: events stay on disk.
	Arguments json.RawMessage `json:"arguments,omitempty"`
}

// ToolMessageEvent is the data of tool.message, behind each tool.call.
type ToolMessageEvent struct {
	Call       string  `json:"call"`
	Tool       string  `json:"tool"`
	Status     string  `json:"status"` // success or error
	Error      string  `json:"error,omitempty"`
	DurationMS float64 `json:"duration_ms"`
}

// Times of tools, in seconds.
const (
	ToolFileTimeoutS       = 60   // of those that work on files
	ToolCommandTimeoutS    = 180  // of sandbox_run_command by default
	MaxToolCommandTimeoutS = 1800 // and at most
)

// ToolOutputBytes is how much of each stream of a command a result has by default, and MaxToolOutputBytes at most.
const (
	ToolOutputBytes    = 16 << 10
	MaxToolOutputBytes = 256 << 10
)

// ToolWriteFile are sandbox_write_file's arguments.
type ToolWriteFile struct {
	Path     string   `json:"path" doc:"Path of the file; a relative one starts at the sandbox's working directory. Missing folders are made."`
	Content  string   `json:"content" doc:"The whole new content of the file."`
	Encoding Encoding `json:"encoding,omitempty" enum:"utf-8|base64" doc:"How content is encoded; utf-8 by default, base64 for binary files."`
	Append   bool     `json:"append,omitempty" doc:"Add to the end of the file instead of replacing what is in it."`
	Mode     string   `json:"mode,omitempty" doc:"Permissions in octal, such as 0755 for a script; by default those of the file that was there, else 0644."`
}

// Validate refuses impossible arguments.
func (a *ToolWriteFile) Validate() error {
	if _, err := FileMode("mode", a.Mode); err != nil {
		return err
	}
	if err := checkEncoding(a.Encoding); err != nil {
		return err
	}
	return checkPath("path", a.Path)
}

// ToolWritten is sandbox_write_file's result.
type ToolWritten struct {
	Path    string `json:"path"`
	Bytes   int64  `json:"bytes"` // written
	Size    int64  `json:"size"`  // of the file now
	Created bool   `json:"created"`
}

// ToolDeleteFile are sandbox_delete_file's arguments.
type ToolDeleteFile struct {
	Path      string `json:"path" doc:"Path of the file or folder. A symbolic link is removed itself, never what it leads to."`
	Recursive bool   `json:"recursive,omitempty" doc:"Needed for a folder that is not empty: removes it with all that is in it."`
}

// Validate refuses impossible arguments.
func (a *ToolDeleteFile) Validate() error {
	return (&FileRemoveParams{FileParams: FileParams{Path: a.Path}, Recursive: a.Recursive}).Validate()
}

// ToolDeleted is sandbox_delete_file's result.
type ToolDeleted struct {
	Path    string `json:"path"`
	Removed int64  `json:"removed"` // files and folders
}

// ToolListDirectory are sandbox_list_directory's arguments.
type ToolListDirectory struct {
	Path      string `json:"path,omitempty" doc:"Path of the folder; the sandbox's working directory by default."`
	Recursive bool   `json:"recursive,omitempty" doc:"Also what is in the folders below. Symbolic links are not followed."`
	Depth     int    `json:"depth,omitempty" doc:"How many levels a recursive list goes down; all by default."`
	Offset    int    `json:"offset,omitempty" doc:"Number of entries to leave out: next_offset of the call before."`
	Limit     int    `json:"limit,omitempty" doc:"How many entries at most; 500 by default, at most 5000."`
}

// Bounds of one sandbox_list_directory, in entries.
const (
	DefaultToolListLimit = 500
	MaxToolListLimit     = 5000
)

// Validate refuses impossible arguments.
func (a *ToolListDirectory) Validate() error {
	switch {
	case a.Limit < 0 || a.Limit > MaxToolListLimit:
		return invalid("limit", "%d is not possible", a.Limit).WithHint("use 1 to %d", MaxToolListLimit)
	case a.Offset < 0 || a.Offset > MaxListOffset:
		return invalid("offset", "%d is not possible", a.Offset).WithHint("use next_offset of the call before")
	case a.Depth < 0:
		return invalid("depth", "%d is negative", a.Depth)
	case a.Depth > 0 && !a.Recursive:
		return invalid("depth", "given without recursive")
	case a.Path == "":
		return nil
	}
	return checkPath("path", a.Path)
}

// ToolDirectory is sandbox_list_directory's result: each folder before what it holds, names in order.
type ToolDirectory struct {
	Path       string      `json:"path"`
	Entries    []ToolEntry `json:"entries"`
	NextOffset int         `json:"next_offset"` // of the next call; 0 when this is all
}

// ToolEntry is one entry of a ToolDirectory.
type ToolEntry struct {
	Path   string   `json:"path"` // below the folder
	Type   FileType `json:"type"`
	Size   int64    `json:"size"`
	Target string   `json:"target,omitempty"` // of a symlink
	Error  string   `json:"error,omitempty"`  // why a folder was not entered
}

// ToolRunCommand are sandbox_run_command's arguments.
type ToolRunCommand struct {
	Command    string            `json:"command,omitempty" doc:"A command line for the sandbox's shell (sh -c). Each call starts in the working directory, with a new shell."`
	Argv       []string          `json:"argv,omitempty" doc:"Instead of command: a program and its arguments, run without a shell."`
	Cwd        string            `json:"cwd,omitempty" doc:"Folder to run in, absolute; the sandbox's working directory by default."`
	Env        map[string]string `json:"env,omitempty" doc:"Variables to add to the environment."`
	Stdin      string            `json:"stdin,omitempty" doc:"Text that the command reads from its standard input, which is empty by default."`
	TimeoutS   *float64          `json:"timeout_s,omitempty" doc:"Seconds after which the command and all that it started is killed; 180 by default, at most 1800."`
	Background bool              `json:"background,omitempty" doc:"Return as soon as the command runs, for servers: it goes on without a timeout unless timeout_s is given. Its output is read with exec."`

	Exec   string  `json:"exec,omitempty" doc:"Instead of command: the id of a command that was run before, whose output is to be read further, from stdout_offset and stderr_offset on."`
	Stdout int64   `json:"stdout_offset,omitempty" doc:"With exec: the byte of standard output to read from; next_stdout_offset of the result before."`
	Stderr int64   `json:"stderr_offset,omitempty" doc:"With exec: the same for standard error."`
	WaitS  float64 `json:"wait_s,omitempty" doc:"With exec: seconds to wait for the command to end, at most 1800, if it still runs."`
	Kill   bool    `json:"kill,omitempty" doc:"With exec: kill the command and all that it started."`

	OutputBytes int64 `json:"output_bytes,omitempty" doc:"How much of each stream the result may have, in bytes; 16384 by default, at most 262144. The middle of a longer one is left out, and can be read with exec."`
}

// Validate refuses impossible arguments; what exec.start checks is left to it.
func (a *ToolRunCommand) Validate() error {
	given := 0
	for _, is := range []bool{a.Command != "", len(a.Argv) > 0, a.Exec != ""} {
		if is {
			given++
		}
	}
	switch {
	case given == 0:
		return invalid("command", "missing").WithHint("give command, argv or exec")
	case given > 1:
		return invalid("command", "more than one of command, argv and exec").WithHint("give one of them")
	case a.Exec == "" && (a.Stdout != 0 || a.Stderr != 0 || a.WaitS != 0 || a.Kill):
		return invalid("exec", "missing").
			WithHint("stdout_offset, stderr_offset, wait_s and kill are for a command that was run before")
	case a.Exec != "" && (a.Background || a.TimeoutS != nil || a.Stdin != "" || a.Cwd != "" || len(a.Env) > 0):
		return invalid("exec", "given together with what is for a new command").
			WithHint("cwd, env, stdin, timeout_s and background go with command or argv")
	case a.Background && a.Stdin != "":
		return invalid("stdin", "given together with background").WithHint("write it to a file and redirect that")
	case a.Stdout < 0 || a.Stderr < 0:
		return invalid("stdout_offset", "negative")
	case a.OutputBytes < 0 || a.OutputBytes > MaxToolOutputBytes:
		return invalid("output_bytes", "%d is not possible", a.OutputBytes).WithHint("use 1 to %d", MaxToolOutputBytes)
	case a.WaitS < 0 || a.WaitS > MaxToolCommandTimeoutS:
		return invalid("wait_s", "%v is not possible", a.WaitS).WithHint("use 0 to %d", MaxToolCommandTimeoutS)
	case !a.Background && a.TimeoutS != nil && (*a.TimeoutS <= 0 || *a.TimeoutS > MaxToolCommandTimeoutS):
		return invalid("timeout_s", "%v is not possible", *a.TimeoutS).
			WithHint("use more than 0 and at most %d, or background for what runs longer", MaxToolCommandTimeoutS)
	case a.Exec != "" && strings.Trim(a.Exec, digits+letters+"_") != "":
		return invalid("exec", "%.64q is no id", a.Exec).WithHint("use exec of the result before")
	}
	return nil
}

// ToolCommand is sandbox_run_command's result.
type ToolCommand struct {
	Exec string `json:"exec"` // its id, to read more of its output
	// Where is "host" of a command that ran on the host, by the mode that hutch mcp was started with; Exec is then no
	// exec of a sandbox.
	Where      Where    `json:"where,omitempty"`
	Running    bool     `json:"running"`
	ExitCode   int      `json:"exit_code"` // 0 while it runs
	Signal     string   `json:"signal,omitempty"`
	Verdict    Verdict  `json:"verdict,omitempty"`
	TimedOut   bool     `json:"timed_out"`
	Stdout     string   `json:"stdout"` // bytes that are no text are replaced
	Stderr     string   `json:"stderr"`
	NextStdout int64    `json:"next_stdout_offset"` // where reading further with exec goes on
	NextStderr int64    `json:"next_stderr_offset"`
	Truncated  bool     `json:"truncated"` // the middle of a stream is missing
	DurationMS float64  `json:"duration_ms"`
	Denials    []Denial `json:"denials"`
	// Failures are connections that the policy allows, and that failed outside.
	Failures []Failure `json:"failures,omitempty"`
	Policy   string    `json:"policy,omitempty"` // as of an ExecResult
	Error    string    `json:"error,omitempty"`  // why it never ran
}

// ToolDownloadURL are sandbox_download_url's arguments.
type ToolDownloadURL struct {
	Path     string  `json:"path" doc:"Path of the file or folder to download."`
	Format   string  `json:"format,omitempty" enum:"raw|tar.gz|zip" doc:"raw sends a file as it is, which is the default for files; tar.gz, the default for folders, and zip pack it."`
	ExpiresS float64 `json:"expires_s,omitempty" doc:"Seconds for which the link is good; 600 by default, at most 86400."`
}

// Times that a link of sandbox_download_url is good for, in seconds.
const (
	DefaultDownloadS = 600
	MaxDownloadS     = 86400
)

// Validate refuses impossible arguments.
func (a *ToolDownloadURL) Validate() error {
	switch a.Format {
	case "", "raw", "tar.gz", "zip":
	default:
		return invalid("format", "%.32q is no format", a.Format).WithHint("use raw, tar.gz or zip")
	}
	if a.ExpiresS < 0 || a.ExpiresS > MaxDownloadS {
		return invalid("expires_s", "%v is not possible", a.ExpiresS).WithHint("use 1 to %d", MaxDownloadS)
	}
	return checkPath("path", a.Path)
}

// ToolDownload is sandbox_download_url's result.
type ToolDownload struct {
	URL      string `json:"url"` // on the host's loopback; good once
	Filename string `json:"filename"`
	MIMEType string `json:"mime_type"`
	Size     int64  `json:"size,omitempty"` // of a file that is sent as it is, now
	Expires  string `json:"expires"`        // RFC 3339, UTC
}
