package filesapi

import "fmt"

// PatchArgs ask for a patch to be applied below a folder.
type PatchArgs struct {
	Patch    string `json:"patch"`
	Strip    int    `json:"strip"` // -1: to be found out
	DryRun   bool   `json:"dry_run,omitempty"`
	MaxFiles int    `json:"max_files"`
	MaxSize  int64  `json:"max_size"` // of all files together
}

// Patched is one file of a patch: untrusted.
type Patched struct {
	Path   []byte `json:"path"`
	From   []byte `json:"from,omitempty"`
	Kind   string `json:"kind"`
	Hunks  int    `json:"hunks"`
	Fuzz   int    `json:"fuzz"`
	Offset int64  `json:"offset"`
}

// ParsePatched parses the payload of a reply to args.
func ParsePatched(data []byte, args *PatchArgs) ([]Patched, error) {
	return parseList(data, args.MaxFiles, func(p *Patched) error {
		if len(p.Path) == 0 || len(p.Path) >= 4096 || len(p.From) >= 4096 || p.Hunks < 0 || p.Fuzz < 0 || p.Offset < 0 || p.Offset > maxOffset {
			return fmt.Errorf("paths of %d and %d bytes, %d hunks", len(p.Path), len(p.From), p.Hunks)
		}
		switch p.Kind {
		case "added", "modified", "deleted", "renamed":
			return nil
		}
		return fmt.Errorf("kind %.32q", p.Kind)
	})
}
