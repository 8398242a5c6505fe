package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/docker/distribution/registry/api/errcode"
	"github.com/opencontainers/go-digest"
	"go.podman.io/image/v5/docker"
	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/images/unpack"
	"github.com/hutch-sh/hutch/runtime/api"
)

// storeError gives an error of the store's own folder its code and hint, once,
// at the boundary. Errors that have a code keep it.
func storeError(err error, op, dir string) error {
	if err == nil {
		return nil
	}
	var e *api.Error
	if errors.As(err, &e) {
		return err
	}
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return api.Errorf(api.ResourceExhausted, "%w", err).WithOp(op).
			WithHint("Free space or inodes on the file system of %s (hutch image prune), or set HUTCH_ROOT to another one.", dir)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EROFS):
		return api.Errorf(api.PermissionDenied, "%w", err).WithOp(op).
			WithHint("The folder %s must belong to the user that runs hutch and be writable; HUTCH_ROOT names another one.", dir)
	}
	return api.Errorf(api.Internal, "%w", err).WithOp(op)
}

// checkDigest accepts digests whose hex part may become a file name.
func checkDigest(s string) error {
	d, err := digest.Parse(s)
	if err != nil {
		return fmt.Errorf("digest %q: %w", s, err)
	}
	if strings.ContainsAny(s, "/\x00") {
		return fmt.Errorf("digest %q cannot be a file name", s)
	}
	return d.Validate()
}

// pullError gives an error of a pull its code and hint, once, at the boundary.
// Errors that have a code keep it.
func pullError(err error, ref, dir string) error { return remoteError(err, "pull "+ref, dir) }

// remoteError is pullError for other operations on a registry.
func remoteError(err error, op, dir string) error {
	var e *api.Error
	if errors.As(err, &e) {
		if e.Op == "" {
			e.Op = op
		}
		return e
	}
	for _, classify := range []func(error) *api.Error{canceled, badLayer, badContent, noToken, refused, unreachable,
		badManifest} {
		if e := classify(err); e != nil {
			return e.WithOp(op)
		}
	}
	return storeError(err, op, dir)
}

func canceled(err error) *api.Error {
	switch {
	case errors.Is(err, context.Canceled):
		return api.Errorf(api.Canceled, "%w", err).WithHint("Pull again: layers that were complete are kept.")
	case errors.Is(err, context.DeadlineExceeded):
		return api.Errorf(api.DeadlineExceeded, "%w", err).
			WithHint("Pull again with more time: layers that were complete are kept.")
	}
	return nil
}

// badLayer knows the errors of unpacking.
func badLayer(err error) *api.Error {
	switch {
	case errors.Is(err, unpack.ErrUnsafe):
		return api.Errorf(api.InvalidArgument, "the image holds a malformed layer: %w", err).
			WithField("image").WithHint("Do not use this image, or build it again; honest tools make no such entries.")
	case errors.Is(err, unpack.ErrLimit):
		return api.Errorf(api.ResourceExhausted, "the image holds a layer that is too big: %w", err).
			WithHint("If the image can be trusted, raise the limit in the configuration (images.limits).")
	case errors.Is(err, unpack.ErrWindow):
		return api.Errorf(api.ResourceExhausted, "a layer of the image takes too much memory to decompress: %w", err).
			WithHint("Compress it with zstd --long=27 at most, or xz --lzma2=dict=128MiB.")
	case errors.Is(err, unpack.ErrUnmapped):
		return api.Errorf(api.FailedPrecondition, "%w", err).
			WithHint("An ordinary user has the ids of /etc/subuid and /etc/subgid, root 0 to 65535: give the user more there, or build the image with smaller ids.")
	case errors.Is(err, unpack.ErrAttributes):
		return api.Errorf(api.FailedPrecondition, "%w", err).
			WithHint("Put the state folder on ext4, xfs, btrfs or (Linux 6.6) tmpfs: HUTCH_ROOT names it.")
	case errors.Is(err, unix.ENOSYS):
		return api.Errorf(api.FailedPrecondition, "%w", err).
			WithHint("Linux 5.8 is needed; inside a container its seccomp profile must allow openat2.")
	}
	return nil
}

// badContent knows bytes that are not what the manifest promised.
func badContent(err error) *api.Error {
	if errors.Is(err, errDigest) || errors.Is(err, unpack.ErrDamaged) || errors.Is(err, io.ErrUnexpectedEOF) {
		return api.Errorf(api.Unavailable, "the registry sent damaged content: %w", err).
			WithHint("Pull again; if it stays, the image in the registry or a proxy in between is broken.")
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
	status := statusOf(err)
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
	status := statusOf(err)
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

// errManifest marks what goes wrong between the reference and the layers.
var errManifest = errors.New("no usable manifest")

// badManifest knows what a registry gave that describes no image. It comes last: errors
// of the network are wrapped in it, too.
func badManifest(err error) *api.Error {
	var errno unix.Errno
	if !errors.Is(err, errManifest) || errors.As(err, &errno) {
		return nil
	}
	return api.Errorf(api.InvalidArgument, "%w", err).WithField("image").
		WithHint("Check that the reference names an image in a registry; charts, pages and damaged manifests are none.")
}

// statusOf is the HTTP status of a registry's answer; 0 when err is none.
func statusOf(err error) int {
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
	return e.WithHint("Check the network and HTTPS_PROXY; the built-in image %q needs none.", HostRef)
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
