package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/images/registry"
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
	for _, classify := range []func(error) *api.Error{canceled, badLayer, badContent, registry.Explain, badManifest} {
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
