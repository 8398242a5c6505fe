package api

import "time"

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
	Sandboxes []string  `json:"sandboxes"`        // ids of those that have it mounted
	Bytes     *int64    `json:"bytes,omitempty"`  // on disk, where usage is asked for
	Inodes    *int64    `json:"inodes,omitempty"` // files and folders, where usage is asked for
}

// Volumes is volume.list's result, by name.
type Volumes struct {
	Volumes []Volume `json:"volumes"`
}

// volumeName says whether name is one, of a volume or a snapshot; without a regular expression, which every start of
// the command line would compile.
func volumeName(name string) bool {
	for i := range len(name) {
		c := name[i]
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alnum && (i == 0 || c != '_' && c != '.' && c != '-') {
			return false
		}
	}
	return name != "" && len(name) <= 64
}

// Validate refuses impossible names.
func (p VolumeParams) Validate() error { return checkVolume("name", p.Name) }

func checkVolume(field, name string) error {
	if !volumeName(name) {
		return invalid(field, "%q is no name of a volume", name).
			WithHint("use 1 to 64 letters, digits, dots, dashes and underscores, a letter or digit first")
	}
	return nil
}

// OfHost reports whether it is a folder or file of the host's.
func (m *Mount) OfHost() bool { return m.Volume == "" && m.Mode != ModeTmpfs }

// From is what is mounted, for people.
func (m *Mount) From() string {
	switch {
	case m.Volume != "":
		return "volume " + m.Volume
	case m.Mode == ModeTmpfs:
		return "a tmpfs"
	}
	return m.Source
}
