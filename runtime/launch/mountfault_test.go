package launch

import (
	"errors"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/runtime/api"
)

// TestMountFault: which errors of libcontainer's are about a mount that does not fit the image. That they have this
// form is what TestInside tries.
func TestMountFault(t *testing.T) {
	const begin = `unable to start container process: error during container init: error mounting "/mnt/0" to rootfs at "/a \"b\"": `
	for text, want := range map[string]string{
		begin + "mount src=/mnt/0, dst=/a, dstFd=/proc/thread-self/fd/17, flags=MS_BIND: not a directory":                 `mount at /a "b": a file cannot`,
		begin + "create mountpoint for /a mount: lookup mountpoint target: openat2 /a: not a directory":                   "a part of this path is a file",
		begin + "create mountpoint for /a mount: lookup mountpoint target: openat2 /a: too many levels of symbolic links": "in a circle",
		begin + "create mountpoint for /a mount: make mountpoint: mkdirat /a: read-only file system":                      "cannot be made there: read-only file system",
		// Not the caller's to know.
		begin + "mount src=/mnt/0, dst=/a: operation not permitted": "",
		"create the network namespace: not a directory":             "",
	} {
		e := mountFault(errors.New(text))
		if (e != nil) != (want != "") || e != nil && (!strings.Contains(e.Error(), want) || e.Hint == "" ||
			e.Code == api.Internal) {
			t.Errorf("%s: %v, want %q", text, e, want)
		}
	}
}
