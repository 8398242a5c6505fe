package api

import (
	"regexp"
	"time"
)

// VolumeParams name a volume: 1 to 64 letters, digits, dots, dashes and underscores, a letter or digit first.
type VolumeParams struct {
	Name string `json:"name"`
}

// VolumeListParams ask for the volumes.
type VolumeListParams struct {
	// Usage asks what they hold. Every file is looked at.
	Usage bool `json:"usage,omitempty"`
}

// Volume is a folder of the daemon's that outlives sandboxes, mounted by its name. It is one user's.
type Volume struct {
	Name      string    `json:"name"`
	Created   time.Time `json:"created"`
	Sandboxes []string  `json:"sandboxes"` // ids of those that have it mounted
	Bytes     *int64    `json:"bytes,omitempty"`
	Inodes    *int64    `json:"inodes,omitempty"`
}

// Volumes is volume.list's result, by name.
type Volumes struct {
	Volumes []Volume `json:"volumes"`
}

var volumeName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,63}$`)

// Validate refuses impossible names.
func (p VolumeParams) Validate() error { return checkVolume("name", p.Name) }

func checkVolume(field, name string) error {
	if !volumeName.MatchString(name) {
		return invalid(field, "%q is no name of a volume", name).
			WithHint("use 1 to 64 letters, digits, dots, dashes and underscores, a letter or digit first")
	}
	return nil
}

// From is what is mounted, for people.
func (m *Mount) From() string {
	if m.Volume != "" {
		return "volume " + m.Volume
	}
	return m.Source
}
