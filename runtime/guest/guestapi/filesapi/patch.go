package filesapi

import (
	"encoding/json"
	"fmt"
	"time"
)

// PatchArgs ask for a patch to be applied below a folder. Without Plan nothing is changed: the reply says how it would
// be. With that plan it is applied, unless the files are others meanwhile.
type PatchArgs struct {
	Patch    string          `json:"patch"`
	Strip    int             `json:"strip"` // -1: to be found out
	MaxFiles int             `json:"max_files"`
	MaxSize  int64           `json:"max_size"` // of all files together
	Plan     json.RawMessage `json:"plan,omitempty"`
}

// PatchReply is what OpPatch answers: untrusted.
type PatchReply struct {
	Files []Patched       `json:"files"`
	Plan  json.RawMessage `json:"plan,omitempty"` // a PatchPlan, which is the worker's business
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

// PatchPlan is how a patch changes a folder: enough to take it back, or to tidy up behind it, by whoever finds it half
// done. A plan comes from a sandbox and goes back to no other user of it, whose rights it is carried out with: it can
// name nothing that its author could not do.
type PatchPlan struct {
	Folders [][]byte    `json:"folders,omitempty"` // that are made, outer ones first; below the folder, as Path
	Steps   []PatchStep `json:"steps"`
}

// Kinds of PatchStep.
const (
	StepPut  = "put"  // Temp gets the name Path, which is free
	StepSwap = "swap" // Temp and Path change names: the old file is Temp then, until all is done
	StepAway = "away" // Path becomes Temp
)

// PatchStep is one name that a patch changes, by one system call.
type PatchStep struct {
	Kind string    `json:"kind"`
	Path []byte    `json:"path"`
	Temp string    `json:"temp"`          // a name beside Path's
	New  *FileMark `json:"new,omitempty"` // of what is put or swapped in
	Old  *FileMark `json:"old,omitempty"` // of what is swapped out or put away
}

// FileMark tells whether a file is the one that it was.
type FileMark struct {
	Size  int64     `json:"size"`
	MTime time.Time `json:"mtime"`
	Mode  uint32    `json:"mode,omitempty"` // of an old file
}

// SettleArgs are OpSettle's: what is half done is taken back or, with Done, tidied up.
type SettleArgs struct {
	Plan json.RawMessage `json:"plan"`
	Done bool            `json:"done,omitempty"`
}

// MaxPatchPlan bounds a plan, and MaxPatched the payload of OpPatch's reply.
const (
	MaxPatchPlan = 1 << 20
	MaxPatched   = 2<<20 + MaxPatchPlan
)

// ParsePatched parses the payload of a reply to args. The plan is not looked into.
func ParsePatched(data []byte, args *PatchArgs) ([]Patched, json.RawMessage, error) {
	var raw struct {
		Files json.RawMessage `json:"files"`
		Plan  json.RawMessage `json:"plan"`
	}
	if err := json.Unmarshal(data, &raw); err != nil {
		return nil, nil, fmt.Errorf("what a patch does: %w", err)
	}
	if len(raw.Plan) > MaxPatchPlan {
		return nil, nil, fmt.Errorf("a plan of %d bytes", len(raw.Plan))
	}
	list, err := parseList(raw.Files, args.MaxFiles, func(p *Patched) error {
		if len(p.Path) == 0 || len(p.Path) >= 4096 || len(p.From) >= 4096 || p.Hunks < 0 || p.Fuzz < 0 ||
			p.Offset < 0 || p.Offset > maxOffset {
			return fmt.Errorf("paths of %d and %d bytes, %d hunks", len(p.Path), len(p.From), p.Hunks)
		}
		switch p.Kind {
		case "added", "modified", "deleted", "renamed":
			return nil
		}
		return fmt.Errorf("kind %.32q", p.Kind)
	})
	return list, raw.Plan, err
}
