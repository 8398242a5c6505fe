package images

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"

	"github.com/hutch-sh/hutch/runtime/api"
)

// A pin keeps folders of the store as a lease does, and outlives processes: it is the file pins/<name>.json with their
// names. What is stopped, or kept as a snapshot, has one, since no daemon may run meanwhile that would hold leases.

const pinsDir = "pins"

var pinName = regexp.MustCompile(`^[a-z0-9_-]{1,64}$`)

// Pin keeps the named folders, each as in Rootfs.Lower, until Unpin; the caller has them leased, so that none is gone
// by now. A pin of that name is replaced.
func (s *folder) Pin(name string, lower []string) error {
	if !pinName.MatchString(name) {
		return api.Errorf(api.InvalidArgument, "%q is no name of a pin", name)
	}
	if err := os.Mkdir(s.path(pinsDir), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return storeError(err, "pin layers", s.dir)
	}
	data, err := json.Marshal(lower)
	if err != nil {
		return fmt.Errorf("pin layers: %w", err)
	}
	return storeError(s.writeFile(path.Join(pinsDir, name+".json"), data, true), "pin layers", s.dir)
}

// Unpin ends a pin. One that is not there is none.
func (s *folder) Unpin(name string) error {
	err := os.Remove(s.path(path.Join(pinsDir, name+".json")))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Pins are the names of all pins.
func (s *folder) Pins() ([]string, error) {
	entries, err := os.ReadDir(s.path(pinsDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".json"))
	}
	return names, nil
}

// markPinned adds the folders of all pins.
func (s *folder) markPinned(marked map[string]bool) error {
	names, err := s.Pins()
	if err != nil {
		return err
	}
	for _, name := range names {
		data, err := os.ReadFile(s.path(path.Join(pinsDir, name+".json")))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var lower []string
		if err == nil {
			err = json.Unmarshal(data, &lower)
		}
		if err != nil { // better too much is kept
			return fmt.Errorf("pin %s: %w", name, err)
		}
		for _, l := range lower {
			marked[unit(l)] = true
		}
	}
	return nil
}
