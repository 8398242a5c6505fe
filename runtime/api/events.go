package api

import (
	"encoding/json"
	"slices"
	"time"
)

// Notifications of events.subscribe, server to client.
const (
	NotifyEvent     = "event"
	NotifyEventsEnd = "events.end" // EventsEnd
)

// EventKind says what happened.
type EventKind string

// The kinds of events, each with the type of its data.
const (
	EventSandboxState EventKind = "sandbox.state"     // StateEvent
	EventReclaimed    EventKind = "sandbox.reclaimed" // ReclaimedEvent
	EventExecStarted  EventKind = "exec.started"      // StartedEvent
	EventExecExited   EventKind = "exec.exited"       // ExitedEvent
	// DecidedEvent: the mode is not all; Exec is the id of one on the host
	EventExecDecided   EventKind = "exec.decided"
	EventHostExited    EventKind = "exec.host_exited"    // HostExitedEvent
	EventLimitHit      EventKind = "limit.hit"           // LimitEvent
	EventNetworkDenied EventKind = "network.denied"      // DeniedEvent
	EventNetworkFailed EventKind = "network.failed"      // FailedEvent
	EventNetworkAsk    EventKind = "network.ask"         // AskEvent
	EventNetworkAnswer EventKind = "network.answered"    // AnsweredEvent
	EventSyscallDenied EventKind = "syscall.denied"      // SyscallEvent
	EventPortOpened    EventKind = "port.opened"         // PortEvent
	EventFileDenied    EventKind = "file.denied"         // FileEvent
	EventToolCall      EventKind = "tool.call"           // ToolCallEvent
	EventToolMessage   EventKind = "tool.message"        // ToolMessageEvent
	EventUnguarded     EventKind = "workspace.unguarded" // Unguarded
	EventImageProgress EventKind = "image.progress"      // ImageEvent
	EventConfig        EventKind = "config.reloaded"     // ConfigEvent
	// EventsLost is about events that could not be written, because the disk was
	// full or broken. Every subscriber gets it.
	EventsLost EventKind = "events.lost" // LostEvent
	// EventGap is no event but a marker in their place: they have been dropped from
	// the log. Its Seq is the last one of them. Every subscriber gets it.
	EventGap EventKind = "gap" // GapEvent
)

// EventKinds are those that can be subscribed to.
var EventKinds = []EventKind{EventSandboxState, EventReclaimed, EventExecStarted, EventExecExited, EventExecDecided,
	EventHostExited, EventLimitHit, EventNetworkDenied, EventNetworkFailed, EventNetworkAsk, EventNetworkAnswer,
	EventPortOpened, EventSyscallDenied, EventFileDenied, EventToolCall, EventToolMessage, EventUnguarded,
	EventImageProgress, EventConfig}

// Event is the params of an `event` notification.
type Event struct {
	Subscription string `json:"subscription,omitempty"` // its id
	// Seq numbers the events of a daemon from 1, without holes. Numbers outlive the
	// daemon: the next one on its socket goes on.
	Seq     int64           `json:"seq"`
	Time    time.Time       `json:"time"` // when it happened
	Kind    EventKind       `json:"kind"`
	Sandbox string          `json:"sandbox,omitempty"`
	Exec    string          `json:"exec,omitempty"`
	Data    json.RawMessage `json:"data,omitempty"` // depends on the kind
}

// StateEvent is the data of sandbox.state. The first one says running: a sandbox that
// could not be created is its caller's error only. The last one says removed.
type StateEvent struct {
	State  State  `json:"state"`
	Reason string `json:"reason,omitempty"`
	Name   string `json:"name,omitempty"`
	Image  string `json:"image,omitempty"`
}

// StateRemoved is in events only: a removed sandbox has no record.
const StateRemoved State = "removed"

// StartedEvent is the data of exec.started. It names the program and not its
// arguments, which may hold secrets: events stay on disk.
type StartedEvent struct {
	Program    string `json:"program"`
	PID        int    `json:"pid"` // in the sandbox
	Background bool   `json:"background,omitempty"`
}

// ExitedEvent is the data of exec.exited.
type ExitedEvent struct {
	ExitCode   int     `json:"exit_code"`
	Signal     string  `json:"signal,omitempty"`
	Verdict    Verdict `json:"verdict"`
	DurationMS float64 `json:"duration_ms"`
	Peaks      Peaks   `json:"peaks"`
}

// LimitEvent is the data of limit.hit: the verdict that it led to.
type LimitEvent struct {
	Limit  Verdict `json:"limit"` // timeout_wall, timeout_cpu, oom, pids, disk, output
	Detail string  `json:"detail,omitempty"`
}

// ConfigEvent is the data of config.reloaded: the configuration file was read again.
type ConfigEvent struct {
	Error string `json:"error,omitempty"` // why it was not put in force
}

// ImageEvent is the data of image.progress, of which there is one a phase and
// layer.
type ImageEvent struct {
	Ref   string `json:"ref"`
	Layer string `json:"layer,omitempty"`
	Phase string `json:"phase"`
	Done  int64  `json:"done"`  // bytes
	Total int64  `json:"total"` // bytes, -1 when unknown
}

// LostEvent is the data of events.lost.
type LostEvent struct {
	Count int64 `json:"count"`
}

// GapEvent is the data of a gap: the numbers of the events that are gone.
type GapEvent struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

// SubscribeParams are events.subscribe's params.
type SubscribeParams struct {
	// FromSeq is the number of the first event wanted; what is left of the past is
	// replayed. Without it only what happens from now on is sent.
	FromSeq *int64      `json:"from_seq,omitempty"`
	Kinds   []EventKind `json:"kinds,omitempty"`   // empty means all
	Sandbox string      `json:"sandbox,omitempty"` // empty means all
	// Follow false ends the subscription with events.end when what had happened
	// before the call has been sent; absent means true.
	Follow *bool `json:"follow,omitempty"`
	// Credit is how many events may be sent before events.credit gives more; 0 means
	// as many as the connection takes.
	Credit int64 `json:"credit,omitempty"`
}

// Subscribed is events.subscribe's result. Notifications follow it.
type Subscribed struct {
	Subscription string `json:"subscription"` // its id, unique on its connection
	// Log is the id of the log that the numbers belong to. It changes when the
	// daemon's state was deleted, and numbers begin anew.
	Log      string `json:"log"`
	FirstSeq int64  `json:"first_seq"` // of the oldest event that is kept
	NextSeq  int64  `json:"next_seq"`  // of the next that will happen
}

// SubscriptionParams are events.unsubscribe's params.
type SubscriptionParams struct {
	Subscription string `json:"subscription"`
}

// EventsEnd is the params of an `events.end` notification, the last of a
// subscription: of one without follow, or of one whose log cannot be read.
type EventsEnd struct {
	Subscription string `json:"subscription"`
	Error        string `json:"error,omitempty"` // why it ended, if not as asked
}

// EventCreditParams are events.credit's params.
type EventCreditParams struct {
	Subscription string `json:"subscription"`
	Events       int64  `json:"events"` // on top of those that are left
}

// Validate refuses what cannot be subscribed to.
func (p *SubscribeParams) Validate() error {
	for _, k := range p.Kinds {
		if !slices.Contains(EventKinds, k) {
			return invalid("kinds", "%q is no kind of event", k).WithHint("this build has %q", EventKinds)
		}
	}
	switch {
	case p.FromSeq != nil && *p.FromSeq < 1:
		return invalid("from_seq", "%d is no number of an event", *p.FromSeq).
			WithHint("events count from 1; leave it out for new ones only")
	case p.Credit < 0:
		return invalid("credit", "%d is negative", p.Credit)
	}
	return nil
}

// Validate refuses credit that gives nothing.
func (p *EventCreditParams) Validate() error {
	if p.Events <= 0 {
		return invalid("events", "%d is no credit", p.Events).WithHint("give back how many have been read")
	}
	return nil
}
