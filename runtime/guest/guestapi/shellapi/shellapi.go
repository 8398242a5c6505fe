// Package shellapi is the protocol between hutchd and a shell worker, which keeps a
// shell in a sandbox, and hutchd's side of it. The channel is a stream socket, the
// worker's stdin; one message is one line of JSON.
//
//	hutchd -> worker               worker -> hutchd
//	                               up      {}                         ready for the first run
//	run   {run, command}           done    {run, status}              the command has ended
//	                               over    {run, status}              and the shell with it
//	abort {run}                    aborted {run, killed}              the shell is as before the run
//	ask   {run}                    the event that has ended the run, or will end it
//	                               never   {run}                      the run was not begun
//
// The end of the channel ends the shell when its run has ended. hutch-launch holds a
// duplicate of hutchd's end, so that the channel outlives hutchd. The next one cannot
// know what of both directions its predecessor has read and written: perhaps half a
// line. So it begins with an empty line, which ends the half of a request; lines that
// are no request are passed over. It passes over the first line that is no event, which
// may be the other half of one. Then it asks for the run that was under way.
//
// The worker trusts
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
	OpAsk   = "ask"

	EvUp      = "up"
	EvDone    = "done"
	EvOver    = "over"
	EvAborted = "aborted"
	EvNever   = "never"
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
