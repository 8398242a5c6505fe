package images

import (
	"runtime"
	"strings"

	"github.com/hutch-sh/hutch/runtime/api"
)

// platform is what an image is built for, in Go's names as the OCI
// specification uses them.
type platform struct{ OS, Arch, Variant string }

func (p platform) String() string {
	s := p.OS + "/" + p.Arch
	if p.Variant != "" {
		s += "/" + p.Variant
	}
	return s
}

// parsePlatform reads "os/arch[/variant]"; "" is this machine.
func parsePlatform(s string) (platform, error) {
	if s == "" {
		return platform{OS: "linux", Arch: runtime.GOARCH}, nil
	}
	parts := strings.Split(s, "/")
	if len(parts) < 2 || len(parts) > 3 || parts[0] == "" || parts[1] == "" {
		return platform{}, api.Errorf(api.InvalidArgument, "platform %q is not os/arch or os/arch/variant", s).
			WithField("platform").WithHint("For example linux/%s.", runtime.GOARCH)
	}
	p := platform{OS: parts[0], Arch: parts[1]}
	if len(parts) == 3 {
		p.Variant = parts[2]
	}
	if p.OS != "linux" {
		return platform{}, api.Errorf(api.InvalidArgument, "platform %q: sandboxes run linux only", s).
			WithField("platform").WithHint("For example linux/%s.", runtime.GOARCH)
	}
	return p, nil
}

// accepts reports whether an image of platform have is good where p is wanted.
// Images that do not say what they are for are taken at the user's word.
func (p platform) accepts(have platform) bool {
	if have.OS != "" && have.OS != p.OS {
		return false
	}
	if have.Arch != "" && have.Arch != p.Arch {
		return false
	}
	return p.Variant == "" || have.Variant == "" || have.Variant == p.Variant
}

// wrongPlatform says what was wanted and what there is.
func wrongPlatform(ref string, want platform, have []string) error {
	if len(have) == 0 {
		return api.Errorf(api.FailedPrecondition, "%s has no image for %s: its list of platforms is empty", ref, want).
			WithField("platform").WithHint("Choose another tag.")
	}
	return api.Errorf(api.FailedPrecondition, "%s has no image for %s; it has %s", ref, want, strings.Join(have, ", ")).
		WithField("platform").
		WithHint("Ask for one of them with --platform; another architecture runs only where binfmt_misc emulates it.")
}
