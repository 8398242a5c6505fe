package ask

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hutch-sh/hutch/runtime/api"
)

// maxAlways bounds what is kept, in entries.
const maxAlways = 10_000

// entryOf is the entry of a policy that a flag says.
func entryOf(flag string) api.NetLists {
	if cidr, ok := strings.CutPrefix(flag, "--allow-cidr "); ok {
		return api.NetLists{AllowCIDRs: []string{cidr}}
	}
	name, _ := strings.CutPrefix(flag, "--allow ")
	return api.NetLists{Allow: []string{name}}
}

// isAlways says whether an entry is to be allowed always.
func (d *Approvals) isAlways(entry api.NetLists) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return holds(d.always, entry)
}

func holds(all, entry api.NetLists) bool {
	in := func(list, some []string) bool {
		return !slices.ContainsFunc(some, func(s string) bool { return !slices.Contains(list, s) })
	}
	return in(all.Allow, entry.Allow) && in(all.AllowCIDRs, entry.AllowCIDRs)
}

// remember keeps an entry that is to be allowed always.
func (d *Approvals) remember(entry api.NetLists) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if holds(d.always, entry) {
		return nil
	}
	next := api.NetLists{Allow: append(slices.Clone(d.always.Allow), entry.Allow...),
		AllowCIDRs: append(slices.Clone(d.always.AllowCIDRs), entry.AllowCIDRs...)}
	if n := len(next.Allow) + len(next.AllowCIDRs); n > maxAlways {
		return api.Errorf(api.ResourceExhausted, "%d entries are always allowed, as many as there may be", n-1).
			WithHint("answer session, or network.forget some")
	}
	return d.keep(next)
}

// Forget forgets entries that were to be allowed always.
func (d *Approvals) Forget(p api.ForgetParams) (api.Asks, error) {
	if err := d.forget(p.Entries); err != nil {
		return api.Asks{}, err
	}
	return d.List(), nil
}

func (d *Approvals) forget(entries []string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	next := api.NetLists{Allow: slices.Clone(d.always.Allow), AllowCIDRs: slices.Clone(d.always.AllowCIDRs)}
	for _, e := range entries {
		is := func(s string) bool { return s == e }
		n := len(next.Allow) + len(next.AllowCIDRs)
		next.Allow, next.AllowCIDRs = slices.DeleteFunc(next.Allow, is), slices.DeleteFunc(next.AllowCIDRs, is)
		if len(next.Allow)+len(next.AllowCIDRs) == n {
			return api.Errorf(api.NotFound, "%.80q is not always allowed", e).WithField("entries").
				WithHint("network.asks lists what is")
		}
	}
	return d.keep(next)
}

// keep puts next in the place of what is always allowed; mu is held.
func (d *Approvals) keep(next api.NetLists) error {
	data, err := json.Marshal(next)
	if err == nil {
		err = replaceFile(d.cfg.File, data)
	}
	if err != nil {
		return api.Errorf(api.Internal, "keep what is always allowed: %w", err).
			WithHint("nothing has changed; is the disk full?")
	}
	d.always = next
	return nil
}

// replaceFile writes a file that is there as a whole or not at all, also after a power cut: what was forgotten must not
// come back.
func replaceFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".tmp")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// readAlways reads the file. What is no entry any more is left out.
func readAlways(path string) (api.NetLists, error) {
	var all api.NetLists
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &all)
	}
	if err != nil {
		return api.NetLists{}, fmt.Errorf("read what is always allowed: %w", err)
	}
	bad := func(p api.NetPolicy) bool {
		p.Mode = api.NetAllow
		return p.Validate("always") != nil
	}
	return api.NetLists{
		Allow: slices.DeleteFunc(all.Allow, func(s string) bool { return bad(api.NetPolicy{Allow: []string{s}}) }),
		AllowCIDRs: slices.DeleteFunc(all.AllowCIDRs,
			func(s string) bool { return bad(api.NetPolicy{AllowCIDRs: []string{s}}) }),
	}, nil
}
