package filesapi

import (
	"encoding/json"
	"fmt"
	"time"
)

// SyncArgs are a page of what a folder of the caller's holds (api.FileSyncParams), to be compared with what is below
// Path.
type SyncArgs struct {
	After  []byte     `json:"after,omitempty"`
	More   bool       `json:"more,omitempty"` // the page ends at the last of Files, not with the folder
	Files  []SyncFile `json:"files"`
	Delete bool       `json:"delete,omitempty"`
}

// SyncFile is one file of the caller's. Names are bytes.
type SyncFile struct {
	Path   []byte    `json:"p"`
	Mode   uint32    `json:"m"` // the type, as stat(2) has it
	Size   int64     `json:"s,omitempty"`
	MTime  time.Time `json:"t,omitzero"`
	Target []byte    `json:"l,omitempty"`
}

// Synced is what came of it: untrusted.
type Synced struct {
	Needed  []int `json:"needed"` // indexes of Files, in order
	Same    int   `json:"same"`
	Removed int   `json:"removed"`
}

// MaxSynced bounds the payload of a reply about so many files.
func MaxSynced(files int) int { return 256 + 12*files }

// ParseSynced parses the payload of a reply about so many files.
func ParseSynced(data []byte, files int) (*Synced, error) {
	s := &Synced{}
	if err := json.Unmarshal(data, s); err != nil {
		return nil, fmt.Errorf("what a sync found: %w", err)
	}
	last := -1
	for _, i := range s.Needed {
		if i <= last || i >= files {
			return nil, fmt.Errorf("file %d of %d, behind %d, is needed", i, files, last)
		}
		last = i
	}
	if s.Same < 0 || s.Same > files-len(s.Needed) || s.Removed < 0 {
		return nil, fmt.Errorf("%d files the same and %d needed of %d, %d removed", s.Same, len(s.Needed), files,
			s.Removed)
	}
	return s, nil
}
