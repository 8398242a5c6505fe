// Package images keeps root filesystems for sandboxes: OCI images pulled from
// registries and unpacked once into a store of layers, and the built-in image
// "host", which shows the programs of the machine itself.
//
// It mounts nothing. What it hands out is a Rootfs, a description that
// hutch-launch turns into overlay and bind mounts. The process that uses it is
// uid 0 in a user namespace of its own, mapped onto a range of ids or onto a
// single one; see Options.SingleUID. DESIGN.md has the reasons.
package images

import (
	"path"
	"slices"
	"strings"
	"time"

	"github.com/hutch-sh/hutch/images/host"
)

// Image is one image of the store, complete and unpacked.
type Image struct {
	// Ref is the normalised reference, such as
	// "docker.io/library/debian:12", or "host".
	Ref string `json:"ref"`
	// Digest names the manifest (or list of manifests) that Ref stood for when
	// it was pulled, as "sha256:...". Empty for "host".
	Digest string `json:"digest"`
	// ID is the digest of the image's configuration.
	ID string `json:"id"`
	// Platform is "os/arch" or "os/arch/variant".
	Platform string `json:"platform"`
	// Created is when the image says it was built; zero when it does not say.
	Created time.Time `json:"created"`
	// Pulled is when this store got it.
	Pulled time.Time `json:"pulled"`
	// SizeBytes is the sum of the regular files of all layers.
	SizeBytes int64 `json:"size_bytes"`
	// Config is how the image wants to be run.
	Config Config `json:"config"`
	// Layers are folders relative to the store's folder, lowest first.
	Layers []string `json:"layers"`
}

// Config is the part of an image's configuration that a sandbox honours.
type Config struct {
	Env          []string          `json:"env,omitempty"`  // NAME=VALUE
	User         string            `json:"user,omitempty"` // name|uid[:group|gid], resolved inside the root filesystem
	WorkingDir   string            `json:"working_dir,omitempty"`
	Entrypoint   []string          `json:"entrypoint,omitempty"`
	Cmd          []string          `json:"cmd,omitempty"`
	Volumes      []string          `json:"volumes,omitempty"` // absolute paths, sorted
	StopSignal   string            `json:"stop_signal,omitempty"`
	Labels       map[string]string `json:"labels,omitempty"`
	ExposedPorts []string          `json:"exposed_ports,omitempty"` // "80/tcp", sorted
}

// Rootfs describes a root filesystem: an overlay of Lower under an upper
// folder that the caller brings, with Binds on top of it. The overlay must be
// mounted with the option userxattr, because opaque folders are marked with
// user.overlay.opaque.
type Rootfs struct {
	// Lower are folders relative to the store's folder, top-most first as
	// overlayfs wants its lowerdir.
	Lower []string `json:"lower"`
	// Binds are host folders shown read-only, in the order to mount them.
	Binds []Bind `json:"binds,omitempty"`
}

// Bind shows a folder of the host, read-only, nosuid and nodev.
type Bind = host.Bind

// Rootfs describes the image's root filesystem.
func (i *Image) Rootfs() Rootfs {
	lower := slices.Clone(i.Layers)
	slices.Reverse(lower)
	return Rootfs{Lower: lower}
}

// Phase is what a pull is doing with one layer.
type Phase string

// The phases of a layer, in order. A layer is waiting, then either present or
// downloading (of an archive: reading) and done.
const (
	PhaseWaiting     Phase = "waiting"     // for another process or goroutine
	PhasePresent     Phase = "present"     // was in the store already
	PhaseDownloading Phase = "downloading" // and unpacking, in one pass
	PhaseReading     Phase = "reading"     // and unpacking, of an import
	// of a commit or push; bytes are not compressed, and how many there will be is unknown
	PhasePacking Phase = "packing"
	PhasePushing Phase = "pushing" // to a registry
	PhaseDone    Phase = "done"    // verified and committed
)

// Progress is one report about one layer of a pull.
type Progress struct {
	Layer string `json:"layer"` // digest of the compressed layer
	Phase Phase  `json:"phase"`
	Done  int64  `json:"done"`  // compressed bytes read
	Total int64  `json:"total"` // compressed bytes, -1 when unknown
}

// Folders of the store.
const (
	layersDir = "layers"
	refsDir   = "refs"
	hostDir   = "host"
	locksDir  = "locks"
	tmpDir    = "tmp"
)

// A folder below layersDir or hostDir is a unit: made aside, committed by one
// rename, leased and removed as a whole. Its files are below unitRoot.
const (
	unitRoot       = "root"
	layerFile      = "layer.json" // what is known of a layer
	manifestFile   = "manifest"   // of its files (unpack.WriteManifest); units of older builds have none
	attributesFile = "attributes" // the extended ones; those of some builds have a manifest and no such file
)

// layerUnit is the unit of an unpacked layer.
func (s *folder) layerUnit(diffID string) string {
	return path.Join(layersDir, s.folderName(diffID))
}

// unit is the unit that a folder of Rootfs.Lower belongs to.
func unit(name string) string {
	parts := strings.SplitN(name, "/", 3)
	return strings.Join(parts[:min(2, len(parts))], "/")
}
