package images

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"

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
