package api

import "time"

// RunReplyPatience is how long the daemon knows how the command of sandbox.run has ended when its caller does not read
// the reply.
const RunReplyPatience = time.Second

// RunParams are sandbox.run's params: a sandbox, a command in it, and the end of both, in one call.
type RunParams struct {
	// Exactly one of Sandbox and Acquire says where the sandbox comes from. Its Owner is the connection.
	Sandbox *Spec          `json:"sandbox,omitempty"`
	Acquire *AcquireParams `json:"acquire,omitempty"` // out of a pool
	// Exec is the command; its Sandbox is not said. Argv follows the image's Entrypoint, and without it and Command the
	// image's own command runs.
	Exec ExecParams `json:"exec"`
	// Entrypoint is instead of the image's Entrypoint and Cmd, as docker has it; "" for none.
	Entrypoint *string `json:"entrypoint,omitempty"`

	// FDs is the number of fds that ride on this request; Sandbox and Exec.Stdio have indexes into them.
	FDs int `json:"fds,omitempty"`
	// Progress asks for notifications: of a download, and of a command that runs for more than a few milliseconds
	// "exec.started", with the id of the sandbox.
	Progress bool `json:"progress,omitempty"`
	// IfBuild refuses the call, with failed_precondition, unless the daemon is of this build (Info.BuildID): a client
	// that need not ask before.
	IfBuild string `json:"if_build,omitempty"`
	// IfState refuses the call likewise, unless that is the daemon's state folder (Info.Paths.State).
	IfState string `json:"if_state,omitempty"`
	// Gate is the index of an eventfd(2), made with EFD_NONBLOCK, that the caller writes to when the command may start.
	// The sandbox is made meanwhile: a caller that is to be ready for its command, to catch signals for example, need
	// not be ready before it calls.
	Gate *int `json:"gate,omitempty"`
	// ProgressGate is the index of another one, for a caller that shows downloads: when it was told about one, the
	// command starts only after this is written to as well. A notification of kind "image.ready" says that no more of
	// them follow.
	ProgressGate *int `json:"progress_gate,omitempty"`
}

// ProgressStarted is the Kind of the Progress that tells that a command runs.
const ProgressStarted = "exec.started"

// ProgressReady is the Kind of the Progress that tells that an image is there, see RunParams.ProgressGate.
const ProgressReady = "image.ready"

// RunResult is sandbox.run's result.
type RunResult struct {
	// Sandbox is what it was when the command was started.
	Sandbox Sandbox    `json:"sandbox"`
	Exec    ExecResult `json:"exec"`
}

// Validate refuses what cannot be run; the error is an *Error with the field at fault.
func (p *RunParams) Validate() error {
	switch {
	case p.Sandbox == nil && p.Acquire == nil:
		return invalid("sandbox", "missing").WithHint("say what sandbox is to be made, or acquire one from a pool")
	case p.Sandbox != nil && p.Acquire != nil:
		return invalid("acquire", "given together with sandbox").WithHint("give exactly one of sandbox and acquire")
	case p.ProgressGate != nil && !p.Progress:
		return invalid("progress_gate", "given without progress, so that nobody would open it").
			WithHint("ask for progress, or leave it out")
	case p.Exec.Sandbox != "":
		return invalid("exec.sandbox", "the sandbox is only made").
			WithHint("leave it out, or use exec.run for a sandbox that there is")
	case p.Exec.Background:
		return invalid("exec.background", "sandbox.run waits for the command").
			WithHint("use sandbox.create and exec.start")
	case p.Exec.FDs != 0 || p.Exec.Progress:
		return invalid("exec", "fds and progress are the call's").WithHint("put them beside exec")
	case p.Entrypoint != nil && p.Exec.Command != "":
		return invalid("entrypoint", "given together with exec.command, which the shell runs").
			WithHint("give one of them")
	case p.Sandbox != nil && p.Sandbox.Scope != nil:
		return invalid("sandbox.scope", "the sandbox of a scope stays, that of sandbox.run goes").
			WithHint("use sandbox.create and exec.run")
	case p.Sandbox != nil && p.Sandbox.Owner != "":
		return invalid("sandbox.owner", "it is the connection's").
			WithHint("leave it out, or use sandbox.create and exec.run")
	case p.Acquire != nil && p.Acquire.Owner != "":
		return invalid("acquire.owner", "it is the connection's").
			WithHint("leave it out, or use pool.acquire and exec.run")
	}
	exec := p.Exec
	if len(exec.Argv) == 0 && exec.Command == "" {
		exec.Argv = []string{"the image's own"} // known once there is a sandbox
	}
	return exec.Validate()
}

// Argv is what a command line is in the sandbox: args behind the image's Entrypoint, or behind entrypoint where that is
// not nil; without args, the image's own command. It is empty where the image has none.
func (s *Sandbox) Argv(entrypoint *string, args []string) []string {
	switch {
	case entrypoint != nil && *entrypoint != "":
		return append([]string{*entrypoint}, args...)
	case entrypoint != nil:
		return args
	case len(args) > 0:
		return append(append([]string{}, s.Entry...), args...)
	}
	return s.Command
}
