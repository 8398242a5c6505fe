package spec

import (
	"path/filepath"

	"github.com/hutch-sh/hutch/runtime/api"
)

// HostImage is the reference of the image that shows the host's own programs.
const HostImage = "host"

// Root is an image ready to be used as a root file system.
type Root struct {
	Ref    string          `json:"ref"`
	Digest string          `json:"digest"` // of the manifest; "" for the host image
	Config api.ImageConfig `json:"config"`
	Note   string          `json:"-"`     // see api.Sandbox
	Dir    string          `json:"dir"`   // folder that relative Lower names start from
	Lower  []string        `json:"lower"` // overlay layers, top-most first
	Binds  []Bind          `json:"-"`     // needed only to create
	// WritableUsr returns the layers, top-most first, that an overlay on /usr may be made of in the place of the
	// bind there; nil where /usr is the image's own and so can be written to.
	WritableUsr func() (lower []string, err error) `json:"-"`
	// Release says that the sandbox no longer uses the layers. It is called once,
	// from any goroutine.
	Release func() `json:"-"`
}

// Lowers are the folders of the image's layers, top-most first.
func (r *Root) Lowers() (list []string) {
	for _, lower := range r.Lower {
		if !filepath.IsAbs(lower) {
			lower = filepath.Join(r.Dir, lower)
		}
		list = append(list, lower)
	}
	return list
}
