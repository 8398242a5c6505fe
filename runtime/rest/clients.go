package rest

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Client is whose requests those with a token are, and what they may ask for. It sees what it has made itself, and
// nothing else. The zero value of a member but for Digest is no bound.
type Client struct {
	Name string `json:"-"` // "" is the only client of a server with one token
	// Digest is the SHA-256 of its token, as the daemon's configuration has it: sha256:9f86...
	Digest    string   `json:"digest"`
	Templates []string `json:"templates,omitempty"` // that its sandboxes may be made of, by name
	Images    []string `json:"images,omitempty"`    // the same of images; with one of both lists the other is empty
	Grant     []Grant  `json:"grant,omitempty"`
	Sandboxes int      `json:"sandboxes,omitempty" schema:"minimum=0"` // at once, those that are paused or stopped too
	Snapshots int      `json:"snapshots,omitempty" schema:"minimum=0"`
	// Timeout is the longest time in seconds that a request may give a sandbox from then on.
	Timeout float64 `json:"timeout,omitempty" schema:"minimum=0"`
	// Limits are the most of each sandbox, and what one has that asks for none.
	Limits *Limits `json:"limits,omitempty"`

	all    bool // it is this process, which sees what anybody has made over REST
	secret []byte
}

const digestPrefix = "sha256:"

// OneClient is the client of a server with one token, "" of one that needs none.
func OneClient(token string, grant []Grant) *Client {
	sum := sha256.Sum256([]byte(token))
	return &Client{Digest: digestPrefix + hex.EncodeToString(sum[:]), Grant: grant, secret: []byte(token)}
}

// Validate refuses what is no client.
func (c *Client) Validate() error {
	digest, ok := strings.CutPrefix(c.Digest, digestPrefix)
	if b, err := hex.DecodeString(digest); !ok || err != nil || len(b) != sha256.Size ||
		digest != strings.ToLower(digest) {
		return fmt.Errorf("digest: %.20q is no digest of a token: hutch config token NAME makes a token and prints its", c.Digest)
	}
	for _, g := range c.Grant {
		if g != GrantHostPorts && g != GrantSandboxes {
			return fmt.Errorf("grant: %q is none: there are %s, %s", g, GrantHostPorts, GrantSandboxes)
		}
	}
	if c.Sandboxes < 0 || c.Snapshots < 0 || c.Timeout < 0 || c.Timeout > api.MaxSeconds {
		return fmt.Errorf("a bound is not possible: sandboxes %d, snapshots %d, timeout %g", c.Sandboxes, c.Snapshots, c.Timeout)
	}
	limits := c.Limits.limits()
	return limits.Validate("limits")
}

// has reports whether a token is the client's. It takes as long for any.
func (c *Client) has(token string) bool {
	sum := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare([]byte(digestPrefix+hex.EncodeToString(sum[:])), []byte(c.Digest)) == 1
}

// Sign is the MAC of a text that only the server can make, and only while it has this client.
func (c *Client) Sign(text string) string {
	secret := c.secret
	if secret == nil {
		secret = []byte(c.Digest)
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(text))
	return hex.EncodeToString(mac.Sum(nil))
}

// clientKey is where the context of a request has its client.
type clientKey struct{}

// As is the context of a request of a client's.
func As(ctx context.Context, c *Client) context.Context {
	return context.WithValue(ctx, clientKey{}, c)
}

// AsServer is the context of what the server does by itself: it sees what any client has made.
func AsServer(ctx context.Context) context.Context { return As(ctx, &Client{all: true}) }

// clientOf is the client of a request. Without one it is nobody, who sees nothing.
func clientOf(ctx context.Context) *Client {
	if c, ok := ctx.Value(clientKey{}).(*Client); ok {
		return c
	}
	return &Client{Name: "\x00"}
}

// Known is the client with a token, nil of no client.
func (s *Server) Known(token string) (found *Client) {
	for _, c := range s.cfg.Clients() { // all of them: it takes as long whoever's it is
		if token != "" && c.has(token) {
			found = c
		}
	}
	return found
}

// Clients are all that there are.
func (s *Server) Clients() []*Client { return s.cfg.Clients() }

// Owner is the client who has made a sandbox; nil where there is none of that name any more.
func (s *Server) Owner(sb *api.Sandbox) *Client {
	for _, c := range s.cfg.Clients() {
		if sb.Labels[labelMade] != "" && sb.Labels[labelClient] == c.Name {
			return c
		}
	}
	return nil
}

// sees reports whether a client sees what has these labels.
func (c *Client) sees(labels map[string]string) bool {
	return c.may(GrantSandboxes) || labels[labelMade] != "" && (c.all || labels[labelClient] == c.Name)
}

func (c *Client) may(g Grant) bool { return slices.Contains(c.Grant, g) }

// granted refuses what needs a grant that the client has not.
func granted(ctx context.Context, g Grant, what string) error {
	if clientOf(ctx).may(g) {
		return nil
	}
	return api.Errorf(api.PermissionDenied, "%s is not granted to clients of hutch web", what).
		WithHint("whoever runs it may grant it: hutch web --grant %s, or grant: [%s] of its client", g, g)
}

// mayMake refuses a sandbox of what its client may not use, and gives it the client's limits where it has no others.
func (c *Client) mayMake(n *NewSandbox, sp *api.Spec) error {
	if len(c.Templates)+len(c.Images) > 0 {
		what, name, list := "image", sp.Image, c.Images
		if sp.Template != "" {
			what, name, list = "template", sp.Template, c.Templates
		}
		if !slices.Contains(list, name) || sp.Template != "" && sp.Image != "" {
			return api.Errorf(api.PermissionDenied, "%s %.200q is not for client %s", what, name, c.Name).
				WithField(what).WithHint("it may use templates %q and images %q", c.Templates, c.Images)
		}
	}
	if c.Timeout > 0 && n.Timeout == nil {
		sp.TTLS = min(sp.TTLS, c.Timeout)
	}
	if sp.Scope != nil && c.Name != "" {
		scope := *sp.Scope
		scope.Key = c.Name + "/" + scope.Key // one of another client's, or of the user's, is another
		sp.Scope = &scope
	}
	if err := c.mayLive(sp.TTLS); err != nil {
		return err
	}
	return c.mayHave(&sp.Limits, true)
}

// mayLive refuses more seconds than a client's sandboxes may live; 0 is no end.
func (c *Client) mayLive(seconds float64) error {
	if c.Timeout == 0 || seconds > 0 && seconds <= c.Timeout {
		return nil
	}
	return api.Errorf(api.PermissionDenied, "timeout: client %s may give a sandbox at most %g seconds", c.Name,
		c.Timeout).WithField("timeout").WithHint("ask for 1 to %g, and again before they are over", c.Timeout)
}

// MayLive refuses more seconds than the client of a request may give.
func MayLive(ctx context.Context, seconds float64) error { return clientOf(ctx).mayLive(seconds) }

// mayHave refuses limits that are wider than the client's. With fill those that are not asked for are the client's.
func (c *Client) mayHave(l *api.Limits, fill bool) error {
	if c.Limits == nil {
		return nil
	}
	most := c.Limits.limits()
	for _, b := range []struct {
		name        string
		asked, most float64
		set         func()
	}{
		{"cpus", l.CPUs, most.CPUs, func() { l.CPUs = most.CPUs }},
		{"memoryMB", float64(l.MemoryBytes), float64(most.MemoryBytes), func() { l.MemoryBytes = most.MemoryBytes }},
		{"diskMB", float64(l.DiskBytes), float64(most.DiskBytes), func() { l.DiskBytes = most.DiskBytes }},
		{"pids", float64(l.PIDs), float64(most.PIDs), func() { l.PIDs = most.PIDs }},
	} {
		switch {
		case b.most <= 0 || b.asked > 0 && b.asked <= b.most:
		case b.asked == 0:
			if fill {
				b.set()
			}
		default:
			return api.Errorf(api.PermissionDenied, "limits.%s: more than client %s may give a sandbox", b.name,
				c.Name).WithField("limits."+b.name).WithHint("its limits are %+v", *c.Limits)
		}
	}
	l.BestEffort = l.BestEffort || fill && c.Limits.BestEffort
	return nil
}

// ofRequest is the client whose token a request has, or who connects by the Unix socket.
func (s *Server) ofRequest(r *http.Request) *Client {
	if s.cfg.Unix {
		if own, _ := r.Context().Value(peerKey{}).(bool); own {
			return s.cfg.Clients()[0]
		}
		return nil
	}
	// The name of a scheme has no case (RFC 9110, 11.1).
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		token = r.Header.Get("X-API-Key")
	}
	return s.Known(strings.TrimSpace(token))
}
