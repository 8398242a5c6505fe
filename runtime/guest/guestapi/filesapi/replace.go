package filesapi

import (
	"encoding/json"
	"fmt"
)

// ReplaceArgs ask for a text of a file to be replaced.
type ReplaceArgs struct {
	Find     string `json:"find"`
	Replace  string `json:"replace"`
	Regex    bool   `json:"regex,omitempty"`
	All      bool   `json:"all,omitempty"`
	Expected int    `json:"expected,omitempty"`
	DryRun   bool   `json:"dry_run,omitempty"`
	MaxSize  int64  `json:"max_size"` // of the file, before and after
	MaxDiff  int    `json:"max_diff"` // bytes
}

// Replaced is what was replaced: untrusted.
type Replaced struct {
	Count     int64  `json:"count"`
	Diff      []byte `json:"diff"`
	Truncated bool   `json:"truncated"` // the diff
}

// MaxReplaced bounds the reply for args.
func (a *ReplaceArgs) MaxReplaced() int { return a.MaxDiff/3*4 + 1024 }

// ParseReplaced parses the payload of a reply to args.
func ParseReplaced(data []byte, args *ReplaceArgs) (*Replaced, error) {
	r := &Replaced{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("replaced: %w", err)
	}
	if r.Count < 1 || r.Count > maxOffset || len(r.Diff) > args.MaxDiff {
		return nil, fmt.Errorf("replaced %d with a diff of %d bytes", r.Count, len(r.Diff))
	}
	return r, nil
}
