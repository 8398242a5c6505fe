// Package shellapi is the protocol between hutchd and a shell worker, which keeps a
// shell in a sandbox, and hutchd's side of it. The channel is a stream socket, the
// worker's stdin; one message is one line of JSON.
//
//	hutchd -> worker               worker -> hutchd
//	                               up      {}                         ready for the first run
//	run   {run, command}           done    {run, status}              the command has ended
//	                               over    {run, status}              and the shell with it
//	abort {run}                    aborted {run, killed}              the shell is as before the run
//
// The end of the channel ends the shell when its run has ended. The worker trusts
// hutchd; hutchd believes nothing: all that a lying worker achieves is a wrong result
// of its own sandbox.
package shellapi

// ChannelFD is where the worker finds the channel.
const ChannelFD = 0

// MaxEvent bounds an event, in bytes.
const MaxEvent = 16 << 10

// MaxKilled bounds the pids that an event lists.
const MaxKilled = 1024

// The operations and events.
const (
	OpRun   = "run"
	OpAbort = "abort"

	EvUp      = "up"
	EvDone    = "done"
	EvOver    = "over"
	EvAborted = "aborted"
)

// Request is a message from hutchd.
type Request struct {
	Op      string `json:"op"`
	Run     uint64 `json:"run"`
	Command string `json:"command,omitempty"`
}

// Event is a message from the worker: untrusted.
type Event struct {
	Ev  string `json:"ev"`
	Run uint64 `json:"run,omitempty"`
	// Status is the exit code of done, 0 to 255, and the wait status of over.
	Status int   `json:"status,omitempty"`
	Killed []int `json:"killed,omitempty"` // pids inside
}
