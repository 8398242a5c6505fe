package api

import (
	"path"
	"strings"
	"time"
)

// Image is the record of an image in the store.
type Image struct {
	Ref       string      `json:"ref"`    // its full reference
	Digest    string      `json:"digest"` // of the manifest
	ID        string      `json:"id"`     // digest of the config
	Platform  string      `json:"platform"`
	Created   *time.Time  `json:"created,omitempty"`
	SizeBytes int64       `json:"size_bytes"` // unpacked
	Layers    []string    `json:"layers"`     // diff ids, lowest first
	Config    ImageConfig `json:"config"`
}

// ImageConfig is the part of an image's config that decides how it runs.
type ImageConfig struct {
	Env          []string          `json:"env,omitempty"`
	User         string            `json:"user,omitempty"`
	WorkingDir   string            `json:"working_dir,omitempty"`
	Entrypoint   []string          `json:"entrypoint,omitempty"`
	Cmd          []string          `json:"cmd,omitempty"`
	Volumes      []string          `json:"volumes,omitempty"`
	StopSignal   string            `json:"stop_signal,omitempty"`
	Labels       map[string]string `json:"labels,omitempty"`
	ExposedPorts []string          `json:"exposed_ports,omitempty"`
}

// PullParams are image.pull's params.
type PullParams struct {
	Ref      string     `json:"ref"`
	Platform string     `json:"platform,omitempty"`
	Policy   PullPolicy `json:"policy,omitempty"` // default "always"
	Progress bool       `json:"progress,omitempty"`
}

// RefParams name one image.
type RefParams struct {
	Ref string `json:"ref"`
}

// Images is image.list's result.
type Images struct {
	Images []Image `json:"images"`
}

// ImageFormat says how a file holds images.
type ImageFormat string

// The formats. A file of an OCI image layout is a tar archive of its folder.
const (
	FormatOCIArchive    ImageFormat = "oci-archive"
	FormatDockerArchive ImageFormat = "docker-archive"
	FormatArchive       ImageFormat = "archive" // of an import: one of these two, whichever it is
	FormatRootfs        ImageFormat = "rootfs"  // a root file system as tar
)

// ImportParams are image.import's params.
type ImportParams struct {
	// Ref is what the image will be called; it may be left out when an archive names
	// the image.
	Ref    string      `json:"ref,omitempty"`
	Format ImageFormat `json:"format"`
	// Image chooses one of several images in an archive, by name or digest.
	Image    string `json:"image,omitempty"`
	Platform string `json:"platform,omitempty"`
	// Changes say how a root file system is run; an archive's image says that itself.
	Changes *ConfigChanges `json:"changes,omitempty"`
	// FD is the index of the file among those of the request: a regular file open for
	// reading, or the read end of a pipe made for the call, a tar stream either way.
	FD       *int `json:"fd"`
	FDs      int  `json:"fds,omitempty"`
	Progress bool `json:"progress,omitempty"`
}

// ConfigChanges change how an image runs. What is left out stays as it is.
type ConfigChanges struct {
	Env    map[string]string `json:"env,omitempty"`    // added, or replaced
	Labels map[string]string `json:"labels,omitempty"` // added, or replaced
	User   string            `json:"user,omitempty"`
	// WorkingDir is an absolute path.
	WorkingDir string `json:"working_dir,omitempty"`
	// Entrypoint clears the image's Cmd unless that is given, too. An empty list, [],
	// clears either.
	Entrypoint   []string `json:"entrypoint,omitzero"`
	Cmd          []string `json:"cmd,omitzero"`
	ExposedPorts []string `json:"exposed_ports,omitempty"` // added, such as "80/tcp"
	Volumes      []string `json:"volumes,omitempty"`       // added, absolute paths
	StopSignal   string   `json:"stop_signal,omitempty"`
}

// CommitParams are image.commit's params.
type CommitParams struct {
	Sandbox string `json:"sandbox"`
	Ref     string `json:"ref"` // what the image will be called
	// Changes say how the image is run; without them as the sandbox's is.
	Changes *ConfigChanges `json:"changes,omitempty"`
	// Author and Message go to the image's history.
	Author  string `json:"author,omitempty"`
	Message string `json:"message,omitempty"`
	// Progress asks for image.progress of the layer "new".
	Progress bool `json:"progress,omitempty"`
}

// Committed is image.commit's result.
type Committed struct {
	Image Image `json:"image"`
	// LeftOut counts files that no layer can hold: devices, sockets, and names that begin
	// with ".wh.", which mean removed files there. The first few are named.
	LeftOut      int64    `json:"left_out"`
	LeftOutNames []string `json:"left_out_names,omitempty"` // some of them
}

// Validate refuses impossible params.
func (p *CommitParams) Validate() error {
	switch {
	case p.Sandbox == "":
		return invalid("sandbox", "missing").WithHint("hutch ps lists the sandboxes")
	case p.Ref == "":
		return invalid("ref", "missing").WithHint("give the image a name, such as tools:1")
	case len(p.Author) > maxComment || len(p.Message) > maxComment:
		return invalid("message", "longer than %d bytes", maxComment).WithHint("keep it, and the author, short")
	}
	return p.Changes.validate("changes")
}

// maxComment bounds what goes to an image's history.
const maxComment = 4096

// ExportParams are image.export's params.
type ExportParams struct {
	Ref    string      `json:"ref"`
	Format ImageFormat `json:"format"`
	// FD is the index of the file among those of the request: a regular file open for
	// writing, or the write end of a pipe made for the call.
	FD  *int `json:"fd"`
	FDs int  `json:"fds,omitempty"`
}

// Exported is image.export's result.
type Exported struct {
	// ID and Layers are the image's in the archive: layers are packed anew, and those that
	// another program had packed get other digests. Of a root file system there is no layer.
	ID     string   `json:"id"`
	Layers []string `json:"layers"`
	Bytes  int64    `json:"bytes"` // written
}

// Validate refuses impossible params.
func (p *ExportParams) Validate() error {
	if p.Ref == "" {
		return invalid("ref", "missing").WithHint("hutch image ls lists the images")
	}
	switch p.Format {
	case FormatOCIArchive, FormatDockerArchive, FormatRootfs:
	default:
		return invalid("format", "%q is no format", p.Format).WithHint("use oci-archive, docker-archive or rootfs")
	}
	if p.FD == nil {
		return invalid("fd", "missing").
			WithHint("send a file open for writing, or the write end of a pipe with the request")
	}
	return nil
}

// PushParams are image.push's params.
type PushParams struct {
	Ref string `json:"ref"`
	// Target is where it goes, if not to what Ref names: registry/repository:tag.
	Target   string `json:"target,omitempty"`
	Progress bool   `json:"progress,omitempty"`
}

// Pushed is image.push's result.
type Pushed struct {
	Ref    string   `json:"ref"`
	Digest string   `json:"digest"` // of the manifest
	ID     string   `json:"id"`     // digest of the config
	Layers []string `json:"layers"` // digests in the registry, lowest first
}

// Validate refuses impossible params.
func (p *PushParams) Validate() error {
	if p.Ref == "" {
		return invalid("ref", "missing").WithHint("hutch image ls lists the images")
	}
	return nil
}

// TagParams are image.tag's params.
type TagParams struct {
	Ref    string `json:"ref"`    // what the image is called
	Target string `json:"target"` // what it is to be called, too
}

// ImageDisk is image.du's result. Bytes are allocated blocks.
type ImageDisk struct {
	Images      []ImageUse `json:"images"`
	Bytes       int64      `json:"bytes"`        // of all layers together, and of the host image's cache
	UnusedBytes int64      `json:"unused_bytes"` // of layers that no image has and no sandbox uses: image.prune frees them
}

// ImageUse is what one image takes on disk.
type ImageUse struct {
	Ref         string `json:"ref"`
	ID          string `json:"id"`           // digest of its config
	Bytes       int64  `json:"bytes"`        // of all its layers
	UniqueBytes int64  `json:"unique_bytes"` // of those that only images with this id have
	// InUse says that somebody uses all its layers: a sandbox of it, or of an image made
	// from it.
	InUse bool `json:"in_use"`
}

// PruneParams are image.prune's params.
type PruneParams struct {
	// All removes images that no sandbox uses, too, and not only layers that no image has.
	All bool `json:"all,omitempty"`
}

// Pruned is image.prune's result.
type Pruned struct {
	Removed []string `json:"removed"` // references
	Bytes   int64    `json:"bytes"`   // freed
}

// VerifyParams are image.verify's params.
type VerifyParams struct {
	Ref string `json:"ref,omitempty"` // default: all images
	// Repair fetches damaged layers again, from the registry that the image came from.
	Repair bool `json:"repair,omitempty"`
}

// LayerStatus is what image.verify found.
type LayerStatus string

// The states. A layer is unknown when it was unpacked by a build that recorded nothing.
const (
	LayerGood     LayerStatus = "good"
	LayerDamaged  LayerStatus = "damaged"
	LayerRepaired LayerStatus = "repaired"
	LayerUnknown  LayerStatus = "unknown"
)

// LayerCheck is what image.verify found of one layer.
type LayerCheck struct {
	Layer        string      `json:"layer"` // folder in the store
	Status       LayerStatus `json:"status"`
	Images       []string    `json:"images"` // that have it
	Files        int64       `json:"files"`  // nodes of any kind that were looked at
	Bytes        int64       `json:"bytes"`  // read
	Problems     []string    `json:"problems,omitempty"`
	MoreProblems int         `json:"more_problems,omitempty"` // that Problems has no place for
}

// Verified is image.verify's result.
type Verified struct {
	Layers []LayerCheck `json:"layers"`
}

// Validate refuses impossible params.
func (p *ImportParams) Validate() error {
	switch p.Format {
	case FormatOCIArchive, FormatDockerArchive, FormatArchive:
		if p.Changes != nil {
			return invalid("changes", "an archive says itself how its image runs").
				WithHint("leave them out, or commit a sandbox of the image with them")
		}
	case FormatRootfs:
		switch {
		case p.Image != "":
			return invalid("image", "a root file system is one image").WithHint("leave it out")
		case p.Ref == "":
			return invalid("ref", "missing").WithHint("give the image a name, such as tools:1")
		}
	default:
		return invalid("format", "%q is no format", p.Format).
			WithHint("use archive, oci-archive, docker-archive or rootfs")
	}
	if p.FD == nil {
		return invalid("fd", "missing").
			WithHint("send the archive, open for reading, or the read end of a pipe with the request")
	}
	return p.Changes.validate("changes")
}

// validate refuses changes that no sandbox could be started with; c may be nil.
func (c *ConfigChanges) validate(field string) error {
	if c == nil {
		return nil
	}
	if err := checkEnv(field+".env", c.Env); err != nil {
		return err
	}
	for name, list := range map[string][]string{
		"entrypoint": c.Entrypoint, "cmd": c.Cmd, "volumes": c.Volumes, "exposed_ports": c.ExposedPorts,
		"stop_signal": {c.StopSignal},
	} {
		for _, s := range list {
			if strings.ContainsRune(s, 0) {
				return invalid(field+"."+name, "holds a NUL byte")
			}
		}
	}
	for _, v := range c.Volumes {
		if !path.IsAbs(v) || path.Clean(v) == "/" {
			return invalid(field+".volumes", "%q is not an absolute path below /", v)
		}
	}
	if err := checkAbs(field+".working_dir", c.WorkingDir); err != nil {
		return err
	}
	return checkUser(field+".user", c.User)
}
