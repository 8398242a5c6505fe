package api

import (
	"strings"
	"time"
	"unicode"
)

// ScopeKind says how long a scope's sandbox lives.
type ScopeKind string

// The kinds of scopes. The sandbox of a session is removed when the last connection has ended that asked for it; those
// of an agent and shared ones stay until they are ended. Keys of one user are not those of another, but of shared
// scopes.
const (
	ScopeSession ScopeKind = "session"
	ScopeAgent   ScopeKind = "agent"
	ScopeShared  ScopeKind = "shared"
)

// Scope names a sandbox by what it is for: sandbox.create returns the one that it has, or makes it.
type Scope struct {
	Kind ScopeKind `json:"kind"`
	Key  string    `json:"key"` // 1 to 128 printable characters without a space
	// Undo, of sandbox.create, is Spec.Undo.
	Undo bool `json:"undo,omitempty"`
}

// String is KIND:KEY, which ParseScope reads.
func (s Scope) String() string { return string(s.Kind) + ":" + s.Key }

// ParseScope reads KIND:KEY.
func ParseScope(text string) (Scope, error) {
	kind, key, _ := strings.Cut(text, ":")
	s := Scope{Kind: ScopeKind(kind), Key: key}
	return s, s.Validate()
}

// Validate refuses impossible scopes.
func (s Scope) Validate() error {
	switch s.Kind {
	case ScopeSession, ScopeAgent, ScopeShared:
	default:
		return invalid("scope", "%q is no kind of scope", s.Kind).
			WithHint("use session, agent or shared, and a key: agent:reviewer")
	}
	odd := func(r rune) bool { return !unicode.IsPrint(r) || unicode.IsSpace(r) }
	if s.Key == "" || len(s.Key) > 128 || strings.ContainsFunc(s.Key, odd) {
		return invalid("scope", "%q is no key", s.Key).
			WithHint("use 1 to 128 printable characters without a space: %s:reviewer", s.Kind)
	}
	return nil
}

// ScopeParams name a scope.
type ScopeParams struct {
	Scope
}

// Validate refuses what is none, and what is for sandbox.create.
func (p ScopeParams) Validate() error {
	if p.Undo {
		return invalid("undo", "it is for sandbox.create").WithHint("leave it out")
	}
	return p.Scope.Validate()
}

// ScopeInfo is a scope that has a sandbox.
type ScopeInfo struct {
	Scope
	Sandbox     string    `json:"sandbox"` // its id
	Name        string    `json:"name,omitempty"`
	Image       string    `json:"image"`
	State       State     `json:"state"`
	Created     time.Time `json:"created"`
	Connections int       `json:"connections"` // that have asked for it and still are
}

// Scopes is scope.list's result, oldest first.
type Scopes struct {
	Scopes []ScopeInfo `json:"scopes"`
}
