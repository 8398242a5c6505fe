package api

import "time"

// Image is the record of an image in the store.
type Image struct {
	Ref       string      `json:"ref"`
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
