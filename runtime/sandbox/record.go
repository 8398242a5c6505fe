package sandbox

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hutch-sh/hutch/internal/diskuse"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/exec"
	"github.com/hutch-sh/hutch/runtime/keep"
	"github.com/hutch-sh/hutch/runtime/spec"
	"github.com/hutch-sh/hutch/runtime/workspace"
)

// saved is what a hutchd writes of a sandbox for the next one, into record.json.
type saved struct {
	Record api.Sandbox     `json:"record"`
	Spec   api.Spec        `json:"spec"`
	Root   *spec.Root      `json:"root"`
	Clock  exec.ClockState `json:"clock,omitzero"`
	User   uint32          `json:"user"`
	// Project says that a project quota holds the limit of disk space.
	Project bool `json:"project,omitempty"`
	// Ports are those that the host reaches.
	Ports []api.Port `json:"ports,omitempty"`
	// Layers, Base and Next are Sandbox.kept, Folders the ids of its folders.
	Layers  []string                `json:"layers,omitempty"`
	Base    diskuse.Usage           `json:"base,omitzero"`
	Folders map[string]workspace.ID `json:"folders,omitempty"`
	Next    bool                    `json:"next,omitempty"`
	// Template is Sandbox.templated; Unready says that nobody has it yet.
	Template *templated `json:"template,omitempty"`
	Unready  bool       `json:"unready,omitempty"`
}

// files are what the files of the sandbox are made of.
func (from *saved) files() keep.Files {
	return keep.Files{Layers: from.Layers, Base: from.Base, Next: from.Next}
}

// readSaved reads record.json, also as builds before have written it: network.require was one word, and
// network.enforcement, which is found out anew, was another.
func readSaved(data []byte) (from saved, err error) {
	var wrong *json.UnmarshalTypeError
	err = json.Unmarshal(data, &from)
	if !errors.As(err, &wrong) {
		return from, err
	}
	var old any
	numbers := json.NewDecoder(bytes.NewReader(data))
	numbers.UseNumber()
	if derr := numbers.Decode(&old); derr != nil {
		return from, derr
	}
	renew(old)
	if data, err = json.Marshal(old); err != nil {
		return from, err
	}
	from = saved{}
	return from, json.Unmarshal(data, &from)
}

// renew changes the members network of record and spec.
func renew(old any) {
	file, _ := old.(map[string]any)
	for _, part := range []string{"record", "spec"} {
		of, _ := file[part].(map[string]any)
		network, _ := of["network"].(map[string]any)
		if word, ok := network["require"].(string); ok {
			if delete(network, "require"); word != "" {
				network["require"] = []string{word}
			}
		}
		if _, ok := network["enforcement"].(string); ok {
			delete(network, "enforcement")
		}
	}
}

// save replaces record.json. A running sandbox does not outlive a crash of the machine.
func (s *Sandbox) save() error { return s.write(s.Record(), swapJSON) }

// saveKept is save of one that does, because it is being stopped or started.
func (s *Sandbox) saveKept() error { return s.write(s.Record(), writeJSON) }

// saveAs is save with the state that is to come.
func (s *Sandbox) saveAs(to api.State) error {
	record := s.Record()
	record.State = to
	return s.write(record, swapJSON)
}

// makeSpare has the next save of a sandbox that waits write to what is there already.
func (s *Sandbox) makeSpare() error {
	return diskError("write a record ahead", os.WriteFile(filepath.Join(s.dir, recordFile+spareSuffix),
		make([]byte, spareSize), 0o600))
}

// spareSize is what most records do not exceed, in bytes: a block of the disk.
const spareSize = 4096

func (s *Sandbox) write(record api.Sandbox, replace func(path string, v any) error) error {
	s.mu.Lock()
	sp, exposed, unready := s.spec, s.exposed, s.unready
	s.mu.Unlock()
	s.saving.Lock()
	defer s.saving.Unlock()
	if s.struck {
		return &fs.PathError{Op: "write", Path: filepath.Join(s.dir, recordFile), Err: fs.ErrNotExist}
	}
	return replace(filepath.Join(s.dir, recordFile), saved{
		Record: record, Spec: sp, Root: s.root, Clock: s.execs.Clock.State(), User: s.user,
		Project: s.meter.Disk().ByProject(),
		Layers:  s.kept.Layers, Base: s.kept.Base, Folders: s.folders.IDs, Next: s.kept.Next, Ports: exposed,
		Template: s.templated, Unready: unready,
	})
}

// parseRecord reads the record of a sandbox, which must be of an id.
func parseRecord(data []byte, id string) (saved, error) {
	from, err := readSaved(data)
	if err != nil || from.Root == nil || from.Record.ID != id {
		return from, fmt.Errorf("record.json is not one: %w", cmp.Or(err, errNotRecord))
	}
	return from, nil
}

// errNotRecord is a record that can be read, and says too little, or speaks of another.
var errNotRecord = errors.New("it lacks what it must say, or is another's")
