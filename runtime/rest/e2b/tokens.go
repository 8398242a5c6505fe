package e2b

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/rest"
)

// Headers of requests to a sandbox.
const (
	sandboxHeader = "E2b-Sandbox-Id"
	accessHeader  = "X-Access-Token"
	trafficHeader = "E2B-Traffic-Access-Token"
)

// A sandbox has two tokens: one for its processes and files, and one for the servers in it. Both are derived of its
// client's token and the sandbox's id, so that nothing needs to be kept, and a sandbox's token opens no other. They
// begin with the id: some SDKs name the sandbox by nothing else.
const (
	forAccess  = "access"
	forTraffic = "traffic"
)

func tokenOf(c *rest.Client, sandbox, what string) string {
	return sandbox + "." + c.Sign("hutch e2b\x00"+what+"\x00"+sandbox)
}

// holder is the client of whose sandbox this is a token; nil where it is none.
func (s *Server) holder(token, sandbox, what string) (found *rest.Client) {
	for _, c := range s.rest.Clients() { // all of them: it takes as long whoever's it is
		if same(token, tokenOf(c, sandbox, what)) {
			found = c
		}
	}
	return found
}

// named is the sandbox that a request names, by its header or its token. Whether it has the token is another question.
func named(r *http.Request) string {
	if id := r.Header.Get(sandboxHeader); id != "" {
		return id
	}
	id, _, _ := strings.Cut(cmp.Or(r.Header.Get(accessHeader), r.Header.Get(trafficHeader)), ".")
	return id
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// client is whose key a request has, in the form that E2B's keys have or as it is; nil where it has none.
func (s *Server) client(r *http.Request) *rest.Client {
	key := strings.TrimSpace(r.Header.Get("X-API-KEY"))
	if scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); key == "" && ok &&
		strings.EqualFold(scheme, "Bearer") {
		key = strings.TrimSpace(token)
	}
	return s.rest.Known(bare(key))
}

// bare is the token in a key.
func bare(key string) string { return strings.TrimPrefix(strings.TrimSpace(key), "e2b_") }

// call is a request to a sandbox.
type call struct {
	sb   api.Sandbox
	user string        // whose rights it has; "" is the sandbox's user
	ping time.Duration // how often a stream says that it is there
	w    http.ResponseWriter
}

// boxHandler answers a request to a sandbox.
type boxHandler func(w http.ResponseWriter, r *http.Request, c *call) error

// inSandbox lets those call a handler who know the sandbox's token. Contexts of code take that for servers, too: SDKs
// send no other.
func (s *Server) inSandbox(pattern string, h boxHandler) http.Handler {
	contexts := strings.Contains(pattern, "/contexts")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := named(r)
		of := s.holder(r.Header.Get(accessHeader), id, forAccess)
		if of == nil && contexts {
			of = s.holder(r.Header.Get(trafficHeader), id, forTraffic)
		}
		if of == nil {
			refuse(w, http.StatusUnauthorized,
				"the request has no valid "+accessHeader+" of the sandbox that it is sent to")
			return
		}
		r = r.WithContext(rest.As(r.Context(), of))
		c, err := s.reached(r.Context(), id, r)
		if err != nil {
			s.boxFail(w, r, id, err)
			return
		}
		c.w = w
		if err := h(w, r, c); err != nil {
			s.boxFail(w, r, id, s.orGone(r.Context(), id, err))
		}
	})
}

// errGone is what E2B's proxy says of a sandbox that does not run. SDKs look for the words "was not found".
var errGone = api.Errorf(api.NotFound, "The sandbox was not found")

// errExpired is of a signature whose time is over, which its URL says to whoever has it.
var errExpired = api.Errorf(api.PermissionDenied, "signature is already expired")

// orGone is an error, or that the sandbox has gone meanwhile, where that may be why.
func (s *Server) orGone(ctx context.Context, id string, err error) error {
	switch api.ErrorCode(err) {
	case api.NotFound, api.Unavailable, api.FailedPrecondition:
		sb, serr := s.rest.Sandbox(ctx, id)
		if api.ErrorCode(serr) == api.NotFound || serr == nil && stateOf(&sb) == "" {
			return errGone
		}
	}
	return err
}

func (s *Server) boxFail(w http.ResponseWriter, r *http.Request, id string, err error) {
	if err == errExpired { //nolint:errorlint // itself
		refuse(w, http.StatusUnauthorized, errExpired.Error())
		return
	}
	if err == errGone { //nolint:errorlint // itself
		reply(w, http.StatusBadGateway, struct {
			SandboxID string `json:"sandboxId"`
			problem
		}{id, problem{Code: http.StatusBadGateway, Message: errGone.Error()}})
		return
	}
	s.fail(w, r, err)
}

// reached finds a sandbox that requests can be sent to.
func (s *Server) reached(ctx context.Context, id string, r *http.Request) (*call, error) {
	sb, err := s.rest.Sandbox(ctx, id)
	switch {
	case api.ErrorCode(err) == api.NotFound || err == nil && (sb.ID != id || !s.answers(&sb)):
		return nil, errGone
	case err != nil:
		return nil, err
	}
	if sb.State == api.Paused { // and answers: it is to be woken
		if err = (control{s}).wake(ctx, &sb, &timed{}); err != nil {
			return nil, err
		}
	}
	c := &call{sb: sb, ping: 90 * time.Second}
	if name, _, ok := r.BasicAuth(); ok {
		c.user = userOf(name)
	}
	if n, err := strconv.Atoi(r.Header.Get("Keepalive-Ping-Interval")); err == nil && n >= 1 && n <= 3600 {
		c.ping = time.Duration(n) * time.Second
	}
	return c, nil
}

// answers reports whether a sandbox takes requests: it runs, or the next request is to wake it.
func (s *Server) answers(sb *api.Sandbox) bool {
	return sb.State == api.Running || sb.State == api.Paused && rest.Own(sb, labelResume) != ""
}

// sandboxUser is what requests call the sandbox's own user.
const sandboxUser = "user"

// userOf is the user of the sandbox that a name stands for. user is what E2B's own templates call the one that commands
// run as, and here that is whom the image says.
func userOf(name string) string {
	if name == sandboxUser {
		return ""
	}
	return name
}

// signature is what a URL of a file has instead of a header.
type signature struct {
	path, operation, user, expiration, given string
}

func signatureOf(q url.Values, operation string) signature {
	return signature{q.Get("path"), operation, q.Get("username"), q.Get("signature_expiration"), q.Get("signature")}
}

// by is what the owner of a token signs.
func (g *signature) by(token string) string {
	text := g.path + ":" + g.operation + ":" + g.user + ":" + token
	if g.expiration != "" {
		text += ":" + g.expiration
	}
	sum := sha256.Sum256([]byte(text))
	return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// expired reports whether a time is over, or none.
func (g *signature) expired(now time.Time) bool {
	if g.expiration == "" {
		return false
	}
	end, err := strconv.ParseInt(g.expiration, 10, 64)
	return err != nil || now.Unix() > end
}

// signer finds the sandbox that a signature is of: the one that is named, or any that clients see. URLs that are opened
// by other programs have no headers.
func (s *Server) signer(r *http.Request, g signature) (*call, error) {
	wrong := api.Errorf(api.NotFound, "no sandbox has signed this URL, or its time is over").
		WithHint("make it anew: download_url, upload_url")
	if g.expired(time.Now()) {
		return nil, errExpired
	}
	if id := r.Header.Get(sandboxHeader); id != "" {
		var by *rest.Client
		for _, c := range s.rest.Clients() {
			if same(g.given, g.by(tokenOf(c, id, forAccess))) {
				by = c
			}
		}
		if by == nil {
			return nil, wrong
		}
		return s.signedBy(r, by, id, g)
	}
	all, err := s.rest.Sandboxes(rest.AsServer(r.Context()), nil)
	if err != nil {
		return nil, err
	}
	var by *rest.Client
	found := ""
	for i := range all { // all of them, also behind the one: it takes as long
		c := s.rest.Owner(&all[i])
		if c != nil && same(g.given, g.by(tokenOf(c, all[i].ID, forAccess))) {
			found, by = all[i].ID, c
		}
	}
	if found == "" {
		if !s.signed.Allow() { // those that are signed are served meanwhile
			return nil, api.Errorf(api.ResourceExhausted, "too many URLs that no sandbox has signed").
				WithHint("try again in a second")
		}
		return nil, wrong
	}
	return s.signedBy(r, by, found, g)
}

// signedBy is a request whose user is the one that was signed, and no other that its headers may name.
func (s *Server) signedBy(r *http.Request, by *rest.Client, id string, g signature) (*call, error) {
	c, err := s.reached(rest.As(r.Context(), by), id, r)
	if err == nil {
		c.user = userOf(g.user)
	}
	return c, err
}
