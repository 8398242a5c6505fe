package api

import (
	"slices"
	"time"
)

// NetAnswer is what somebody says who is asked about a connection.
type NetAnswer string

// The answers.
const (
	// NetOnce lets the connections pass that are held for the question.
	NetOnce NetAnswer = "once"
	// NetSession puts the entry that the question names into the sandbox's policy.
	NetSession NetAnswer = "session"
	// NetAlways does that, and answers the same question so for all sandboxes to come, until network.forget.
	NetAlways NetAnswer = "always"
	// NetDeny refuses, and is not asked again for the same in this sandbox.
	NetDeny NetAnswer = "deny"
)

// NetAnswers are all answers.
var NetAnswers = []NetAnswer{NetOnce, NetSession, NetAlways, NetDeny}

// AskEvent is the data of network.ask: a connection that waits for an answer. Name and port are what the sandbox wants,
// and so are chosen by what runs in it.
type AskEvent struct {
	ID string `json:"id"` // for network.answer
	NetTarget
	Why        string    `json:"why"`
	HowToAllow string    `json:"how_to_allow"` // the entry, as a flag, that session and always add
	Until      time.Time `json:"until"`        // when no answer becomes no
}

// Question is a network.ask that waits.
type Question struct {
	Sandbox string `json:"sandbox"`
	AskEvent
}

// AnsweredEvent is the data of network.answered: a question is over.
type AnsweredEvent struct {
	ID string `json:"id"`
	NetTarget
	// Answer is "" where nobody has given one in time, or nobody wants to know any more.
	Answer NetAnswer `json:"answer,omitempty"`
}

// AnswerParams are network.answer's params.
type AnswerParams struct {
	ID     string    `json:"id"`
	Answer NetAnswer `json:"answer"`
}

// Validate refuses impossible params.
func (p *AnswerParams) Validate() error {
	switch {
	case p.ID == "":
		return invalid("id", "missing").WithHint("the event network.ask and network.asks name it")
	case !slices.Contains(NetAnswers, p.Answer):
		return invalid("answer", "%.40q is no answer", p.Answer).WithHint("use once, session, always or deny")
	}
	return nil
}

// Asks is network.asks' result.
type Asks struct {
	Pending []Question `json:"pending"` // the oldest first
	// Always are the entries that were answered so: those of Allow and AllowCIDRs.
	Always NetLists `json:"always"`
}

// ForgetParams are network.forget's params: entries of Asks.Always. Policies in force keep them.
type ForgetParams struct {
	Entries []string `json:"entries"` // entries of always, as network.asks lists them
}

// Validate refuses impossible params.
func (p *ForgetParams) Validate() error {
	if len(p.Entries) == 0 {
		return invalid("entries", "missing").WithHint("network.asks lists them under always")
	}
	return nil
}
