package launch

import (
	"os"
	"regexp"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
)

// mountError is how libcontainer's child tells of a mount that failed: as text, with the source, the target and,
// at the end, the errno's name.
var mountError = regexp.MustCompile(`error mounting ("(?:[^"\\]|\\.)*") to rootfs at ("(?:[^"\\]|\\.)*"): (create mountpoint for )?.*: ([a-z -]+)$`)

// mountFault explains a mount that does not fit the image: that is no fault of hutch's or of the host's. It returns
// nil for other errors.
func mountFault(err error) *api.Error {
	m := mountError.FindStringSubmatch(err.Error())
	if m == nil {
		return nil
	}
	source, err1 := strconv.Unquote(m[1])
	target, err2 := strconv.Unquote(m[2])
	if err1 != nil || err2 != nil {
		return nil
	}
	const another = "choose another target, or another image"
	switch looking := m[3] != ""; m[4] {
	case unix.ELOOP.Error():
		return api.Errorf(api.InvalidArgument, "mount at %s: symbolic links of the image lead there in a circle",
			target).WithHint(another)
	case unix.ENOTDIR.Error():
		if looking {
			return api.Errorf(api.InvalidArgument, "mount at %s: a part of this path is a file in the image", target).
				WithHint(another)
		}
		what, there := "a file", "a folder"
		if info, err := os.Stat(source); err == nil && info.IsDir() {
			what, there = there, what
		}
		return api.Errorf(api.InvalidArgument, "mount at %s: %s cannot be mounted over %s, which is there in the image",
			target, what, there).
			WithHint("mount files over files and folders over folders, or choose another target")
	}
	if m[3] == "" {
		return nil
	}
	return api.Errorf(api.FailedPrecondition,
		"mount at %s: the target is not in the image and cannot be made there: %s", target, m[4]).
		WithHint("choose a target that is there, or one in a folder that can be written, which /usr of the image host is with --writable-usr")
}
