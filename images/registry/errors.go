package registry

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/docker/distribution/registry/api/errcode"
	"go.podman.io/image/v5/docker"
	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Explain gives what a registry or the network has answered its code and hint; nil if err is neither.
func Explain(err error) *api.Error {
	for _, classify := range []func(error) *api.Error{noToken, refused, unreachable} {
		if e := classify(err); e != nil {
			return e
		}
	}
	return nil
}

// tokenErrors are how the library says that it asked the endpoint for tokens which a registry has named.
var tokenErrors = []string{
	"Requesting bearer token", "Trying to obtain access token", "decoding bearer token", "in bearer auth challenge",
}

// noToken knows answers of an endpoint for tokens that is none: they say nothing of the image.
func noToken(err error) *api.Error {
	about := func(text string) bool { return strings.Contains(err.Error(), text) }
	status := StatusOf(err)
	if !slices.ContainsFunc(tokenErrors, about) || status != 0 && (status < 400 || status >= 500) {
		return nil
	}
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests:
		return nil // it does not like the credentials, or the rate
	}
	return api.Errorf(api.Unavailable, "the registry names an endpoint for tokens that gives none: %w", err).
		WithHint("The registry is set up wrong, or a proxy or a login page answers in its place: ask who runs it.")
}

// refused knows the answers of a registry.
func refused(err error) *api.Error {
	status := StatusOf(err)
	var unauthorized docker.ErrUnauthorizedForCredentials
	switch {
	case errors.As(err, &unauthorized), status == http.StatusUnauthorized, status == http.StatusForbidden:
		return api.Errorf(api.PermissionDenied, "%w", err).
			WithHint("The image does not exist or is private: check the name, or log in (hutch login).")
	case strings.Contains(err.Error(), " is blocked in "): // by the library, as text only
		return api.Errorf(api.PermissionDenied, "%w", err).
			WithHint("Whoever wrote registries.conf does not want this registry to be used.")
	case status == http.StatusNotFound:
		return api.Errorf(api.NotFound, "the registry has no such image: %w", err).
			WithField("image").WithHint("Check the name and the tag.")
	case status == http.StatusTooManyRequests, errors.Is(err, docker.ErrTooManyRequests):
		return api.Errorf(api.Unavailable, "the registry asks to slow down: %w", err).
			WithHint("Log in to the registry or use a mirror (registries.conf), or wait.")
	case status >= http.StatusInternalServerError:
		return api.Errorf(api.Unavailable, "the registry failed: %w", err).WithHint("Pull again later.")
	case status >= http.StatusBadRequest:
		return api.Errorf(api.Unavailable, "the registry refuses: %w", err).
			WithHint("Check that a registry answers there (the path /v2/), and no other web server or proxy.")
	}
	return nil
}

// StatusOf is the HTTP status of a registry's answer; 0 when err is none.
func StatusOf(err error) int {
	var unexpected docker.UnexpectedHTTPStatusError
	if errors.As(err, &unexpected) {
		return unexpected.StatusCode
	}
	var coder errcode.ErrorCoder
	if errors.As(err, &coder) {
		if status := coder.ErrorCode().Descriptor().HTTPStatusCode; status != 0 &&
			coder.ErrorCode() != errcode.ErrorCodeUnknown {
			return status
		}
	}
	// What mirrors said stands in the text before the error of the registry itself.
	if request := (*url.Error)(nil); errors.As(err, &request) {
		return 0
	}
	// The library keeps these as text only.
	msg := err.Error()
	if _, rest, ok := strings.Cut(msg, "StatusCode: "); ok && len(rest) >= 3 {
		if status, err := strconv.Atoi(rest[:3]); err == nil {
			return status
		}
	}
	if strings.Contains(strings.ToLower(msg), "not found") {
		return http.StatusNotFound
	}
	return 0
}

// IsUnreachable says that a pull failed because nobody could be connected to: there is no
// such name, no network, or nothing listens.
func IsUnreachable(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// unreachable knows the errors of the network.
func unreachable(err error) *api.Error {
	// Not net.Error, which every errno is too.
	var request *url.Error
	var op *net.OpError
	if !errors.As(err, &request) && !errors.As(err, &op) {
		return nil
	}
	e := api.Errorf(api.Unavailable, "the registry cannot be reached: %w", err)
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns):
		return e.WithHint("%s", unresolved(err, dns))
	case errors.Is(err, unix.ECONNREFUSED):
		return e.WithHint("Nothing listens there: check the port, or start the registry.")
	}
	return e.WithHint("Check the network and HTTPS_PROXY; the built-in image \"host\" needs none.")
}

// unresolved says what to do about a name that does not resolve.
func unresolved(err error, dns *net.DNSError) string {
	switch {
	case strings.Contains(err.Error(), "proxyconnect "): // how net/http says so
		return fmt.Sprintf("%s is the proxy that HTTPS_PROXY or HTTP_PROXY of the daemon names: check it there.",
			dns.Name)
	case dns.IsNotFound:
		return fmt.Sprintf("No name server knows a host %s: check the spelling of the registry, and that this machine is online.", dns.Name)
	}
	return fmt.Sprintf("No name server has answered for %s: check the network, and the servers of /etc/resolv.conf.",
		dns.Name)
}
