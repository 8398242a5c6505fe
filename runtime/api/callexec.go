package api

// The methods exec.*.
var (
	CallExecDecide = Call[DecideParams, Decision]{Name: "exec.decide",
		Summary: "Decides by the mode whether a command is to run in a sandbox or, by the caller, on the host; " +
			"records it.",
		Notes:   "Of a command for the host, the caller reports the end by exec.record_host, on the same connection.",
		Example: `{"argv":["ls","-l"]}`,
		Returns: `{"decision":"sandbox","mode":"all","reason":"mode all: every command runs in a sandbox",` +
			`"findings":[]}`}
	CallExecHostEnd = Call[HostEndParams, Empty]{Name: "exec.record_host",
		Summary: "Records how a command on the host has ended, as its caller says.",
		Example: `{"id":"hx_5qw2m7k9","exit_code":0,"duration_ms":12.5}`}
	CallExecRun = Call[ExecParams, ExecResult]{Name: "exec.run",
		Summary: "Runs a command in a sandbox and returns when it has ended.",
		Notes:   "A command that fails is no error: see verdict and exit_code.",
		FDs:     true, Progress: true, EndsWithCaller: true,
		Example: `{"sandbox":"fix","command":"echo $((6*7))","timeout_s":10}`,
		Returns: `{` + exampleExecResultBody + `}`}
	CallExecStart = Call[ExecParams, StartResult]{Name: "exec.start",
		Summary: "Starts a command in a sandbox and returns when it runs; its output is kept.",
		FDs:     true,
		Example: `{"sandbox":"fix","command":"sleep 60"}`,
		Returns: `{"exec":"ex_s6kwm6ocroep","pid":21}`}
	CallExecWait = Call[WaitParams, ExecResult]{Name: "exec.wait",
		Summary:        "Waits until a command has ended; never kills it.",
		Notes:          "When wait_s is over it fails with deadline_exceeded.",
		EndsWithCaller: true,
		Example:        `{"exec":"ex_s6kwm6ocroep","wait_s":30}`,
		Returns:        `{` + exampleExecResultBody + `}`}
	CallExecRead = Call[ReadParams, Chunk]{Name: "exec.read",
		Summary: "Reads output of a command from any offset, also after its end.",
		Example: `{"exec":"ex_s6kwm6ocroep","stream":"stdout","offset":0}`,
		Returns: `{"offset":0,"next":3,"data":"42\n","encoding":"utf-8","eof":true}`}
	CallExecAttach = Call[AttachParams, Attached]{Name: "exec.attach",
		Summary: "Sends a command's output from any offset as it comes, in exec.output notifications, and its end " +
			"in exec.exited.",
		Example: `{"exec":"ex_s6kwm6ocroep","from":{"stdout":0,"stderr":0}}`,
		Returns: `{"attachment":"at_1","from":{"stdout":0,"stderr":0}}`}
	CallExecCredit = Call[CreditParams, Empty]{Name: "exec.credit",
		Summary: "Lets an attachment send more bytes.",
		Example: `{"exec":"ex_s6kwm6ocroep","bytes":65536}`}
	CallExecDetach = Call[DetachParams, Empty]{Name: "exec.detach",
		Summary: "Ends an attachment; the command goes on.",
		Example: `{"exec":"ex_s6kwm6ocroep"}`}
	CallExecWrite = Call[WriteParams, Empty]{Name: "exec.write",
		Summary: "Writes to a command's stdin.",
		Notes:   "It answers when all of it is in the pipe.",
		Example: `{"exec":"ex_s6kwm6ocroep","data":"yes\n"}`}
	CallExecEOF = Call[ExecRef, Empty]{Name: "exec.close_stdin",
		Summary: "Closes a command's stdin.",
		Example: `{"exec":"ex_s6kwm6ocroep"}`}
	CallExecKill = Call[ExecRef, ExecResult]{Name: "exec.kill",
		Summary: "Kills a command and everything it started; of one that has ended, what it left behind.",
		Example: `{"exec":"ex_s6kwm6ocroep"}`,
		Returns: `{` + exampleExecResultBody + `}`}
	CallExecList = Call[SandboxParams, Execs]{Name: "exec.list",
		Summary: "Lists the commands of a sandbox that run or ended lately, oldest first.",
		Example: `{"sandbox":"fix"}`,
		Returns: `{"execs":[` + exampleExec + `]}`}
	CallExecGet = Call[ExecRef, Exec]{Name: "exec.get",
		Summary: "Returns the record of one command.",
		Example: `{"exec":"ex_s6kwm6ocroep"}`,
		Returns: exampleExec}
	CallExecSignal = Call[SignalParams, Empty]{Name: "exec.signal",
		Summary: "Sends a signal to a running command.",
		Example: `{"exec":"ex_s6kwm6ocroep","signal":"SIGINT"}`}
	CallExecResize = Call[ResizeParams, Empty]{Name: "exec.resize",
		Summary: "Sets the size of a command's terminal.",
		Example: `{"exec":"ex_s6kwm6ocroep","rows":24,"cols":80}`}
)

// The methods shell.*.
var (
	CallShellOpen = Call[ShellParams, Shell]{Name: "shell.open",
		Summary: "Opens a shell in a sandbox, whose state lasts from command to command.",
		Notes:   "It lives until shell.close, or as long as the sandbox.",
		Example: `{"sandbox":"fix","env":{"LANG":"C.UTF-8"}}`,
		Returns: exampleShell}
	CallShellRun = Call[ShellRunParams, ShellResult]{Name: "shell.run",
		Summary: "Runs a command in a shell and returns when it has ended.",
		Notes: "A command that fails is no error. When the call is cancelled, the command is killed, and the shell " +
			"is as it was before.",
		EndsWithCaller: true,
		Example:        `{"shell":"sh_mojxsdmbxemn","command":"cd /workspace && make"}`,
		Returns: `{"shell":"sh_mojxsdmbxemn","run":1,"closed":false,"from":{"stdout":0,"stderr":0},"to":{"stdout":3,` +
			`"stderr":0},` + exampleExecResultBody + `}`}
	CallShellClose = Call[ShellRef, ExecResult]{Name: "shell.close",
		Summary: "Kills a shell and everything it started.",
		Example: `{"shell":"sh_mojxsdmbxemn"}`,
		Returns: `{` + exampleExecResultBody + `}`}
	CallShellList = Call[SandboxParams, Shells]{Name: "shell.list",
		Summary: "Lists the shells of a sandbox, oldest first.",
		Example: `{"sandbox":"fix"}`,
		Returns: `{"shells":[` + exampleShell + `]}`}
)

// The methods code.*.
var (
	CallCodeRun = Call[CodeParams, CodeResult]{Name: "code.run",
		Summary:  "Runs a piece of code, in an interpreter that is kept for the next or in one of its own.",
		Notes:    "A call that is cancelled interrupts the code.",
		Progress: true, EndsWithCaller: true,
		Example: `{"sandbox":"fix","language":"python","code":"print(6*7)"}`,
		Returns: `{"exec":"ex_kpvzds6i7fkh","context":"default","begun":true,"stdout":"42\n","stderr":"",` +
			`"truncated":false,"artifacts":[],"exit_code":0,"verdict":"ok","timed_out":false,"duration_ms":112.3,` +
			`"denials":[]}`}
	CallCodeContexts = Call[SandboxParams, CodeContexts]{Name: "code.contexts",
		Summary: "Lists the interpreters that are kept in a sandbox.",
		Example: `{"sandbox":"fix"}`,
		Returns: `{"contexts":[{"language":"python","context":"default","exec":"ex_kpvzds6i7fkh"}]}`}
	CallCodeEnd = Call[CodeContextParams, Empty]{Name: "code.end_context",
		Summary: "Ends an interpreter that is kept; what it knows is gone.",
		Example: `{"sandbox":"fix","language":"python"}`}
	CallCodeScan = Call[ScanParams, ScanResult]{Name: "code.scan",
		Summary: "Looks through code for what reaches beyond the program, without running it; a hint, not a wall.",
		Example: `{"language":"python","code":"import subprocess"}`,
		Returns: `{"language":"python","risky":true,"findings":[{"rule":"python.subprocess","category":"process",` +
			`"severity":"high","line":1,"column":8,"text":"subprocess","why":"runs other programs"}],` +
			`"imports":[{"module":"subprocess","line":1,"allowed":true}],"truncated":false}`}
)

// The methods tools.*.
var (
	CallToolsList = Call[Empty, ToolList]{Name: "tools.list",
		Summary: "Lists the tools that a language model can work with, with their schemas.",
		Returns: `{"tools":[{"name":"sandbox_delete_file","title":"Delete a file",` +
			`"description":"Removes a file or a folder.","input_schema":{"type":"object"},` +
			`"output_schema":{"type":"object"},"read_only":false,"destructive":true,"idempotent":false,` +
			`"open_world":false}]}`}
	CallToolsCall = Call[ToolCallParams, ToolResult]{Name: "tools.call",
		Summary:  "Calls a tool in a sandbox.",
		Progress: true, EndsWithCaller: true,
		Example: `{"sandbox":"fix","name":"sandbox_list_directory","arguments":{"path":"/workspace"}}`,
		Returns: `{"call":"tc_npb4tbpoejf5","content":[{"type":"text","text":"a\t3\n"}],` +
			`"structured":{"path":"/workspace","entries":[{"path":"a","type":"file","size":3}],"next_offset":0},` +
			`"is_error":false}`}
)

// The methods fs.*.
var (
	CallFSRead = Call[FileReadParams, FileChunk]{Name: "fs.read",
		Summary: "Reads a piece of a file.",
		Notes:   "Into a pipe, whose write end is fd, the whole file goes by default.",
		FDs:     true, EndsWithCaller: true,
		Example: `{"sandbox":"fix","path":"/workspace/go.mod","limit":4096}`,
		Returns: `{"offset":0,"next":3,"size":3,"data":"hi\n","encoding":"utf-8","eof":true}`}
	CallFSWrite = Call[FileWriteParams, FileWritten]{Name: "fs.write",
		Summary: "Writes a file, by default in a single step.",
		Notes: "Out of a pipe, whose read end is fd, comes all until its end; with size_bytes, a writer that dies " +
			"before leaves the old file.",
		FDs: true, EndsWithCaller: true,
		Example: `{"sandbox":"fix","path":"/workspace/run.sh","data":"#!/bin/sh\n","mode":"0755"}`,
		Returns: `{"written":10,"size":10,"created":true,"atomic":true}`}
	CallFSList = Call[FileListParams, FileList]{Name: "fs.list",
		Summary:        "Lists a folder, and what is below it if asked to.",
		EndsWithCaller: true,
		Example:        `{"sandbox":"fix","path":"/workspace","recursive":true,"depth":2}`,
		Returns:        `{"entries":[` + exampleFile + `],"truncated":false}`}
	CallFSStat = Call[FileStatParams, File]{Name: "fs.stat",
		Summary: "Describes one file.",
		Example: `{"sandbox":"fix","path":"/workspace/go.mod"}`,
		Returns: exampleFile}
	CallFSMkdir = Call[FileMkdirParams, FileMade]{Name: "fs.mkdir",
		Summary: "Makes a folder.",
		Example: `{"sandbox":"fix","path":"/workspace/out/log","parents":true}`,
		Returns: `{"created":true}`}
	CallFSRemove = Call[FileRemoveParams, FileRemoved]{Name: "fs.remove",
		Summary: "Removes a file or a folder.",
		Example: `{"sandbox":"fix","path":"/workspace/out","recursive":true}`,
		Returns: `{"removed":3}`}
	CallFSMove = Call[FileMoveParams, Empty]{Name: "fs.move",
		Summary: "Renames a file or a folder.",
		Example: `{"sandbox":"fix","path":"/workspace/a","to":"/workspace/b"}`}
	CallFSPack = Call[FilePackParams, FileArchive]{Name: "fs.pack",
		Summary: "Writes a file or a folder into a pipe, as a tar archive.",
		Notes: "What comes out is as hostile as the sandbox: whoever unpacks it on the host must refuse names and " +
			"links that lead out.",
		FDs: true, EndsWithCaller: true,
		Example: `{"sandbox":"fix","path":"/workspace/out","fds":1,"fd":0}`,
		Returns: `{"entries":3,"bytes":4096,"skipped":0}`}
	CallFSUnpack = Call[FileUnpackParams, FileArchive]{Name: "fs.unpack",
		Summary: "Unpacks a tar archive from a pipe into a folder.",
		FDs:     true, EndsWithCaller: true,
		Example: `{"sandbox":"fix","path":"/workspace","fds":1,"fd":0}`,
		Returns: `{"entries":3,"bytes":4096,"skipped":0}`}
	CallFSSync = Call[FileSyncParams, FileSynced]{Name: "fs.sync",
		Summary: "Tells which files of the caller's folder one in the sandbox lacks, and removes what it has too much.",
		Notes:   "fs.unpack brings them.",
		Example: `{"sandbox":"fix","path":"/workspace","files":[{"path":"go.mod","type":"file","size":51,` +
			`"mtime":"2026-11-28T09:00:00Z"}]}`,
		Returns: `{"needed":[0],"same":0,"removed":0}`}
)
