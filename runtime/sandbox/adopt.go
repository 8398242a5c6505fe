package sandbox

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/cleanup"
	"github.com/hutch-sh/hutch/internal/diskuse"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/exec"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
	"github.com/hutch-sh/hutch/runtime/keep"
	"github.com/hutch-sh/hutch/runtime/keep/shelf"
	"github.com/hutch-sh/hutch/runtime/launch/launchapi"
	"github.com/hutch-sh/hutch/runtime/refusals"
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

// adoptTimeout bounds what a new hutchd waits for one PID 1.
const adoptTimeout = 5 * time.Second

// Adopt takes over the sandboxes of a hutchd that was killed, before any call comes in.
// Nothing on disk is believed that hutch-launch, and so the kernel, contradicts: it
// knows which sandboxes there are. What is wrong with one of them ends only that one.
func (m *Manager) Adopt(ctx context.Context, held []launchapi.HeldSandbox) error {
	known := map[string]bool{}
	var wg sync.WaitGroup
	for i := range held {
		known[held[i].ID] = true
		wg.Go(func() {
			if err := m.adopt(ctx, &held[i]); err != nil {
				level := slog.LevelError
				// the hutchd before was making it, or removing it
				if errors.Is(err, errNoRecord) || errors.Is(err, errUnready) {
					level = slog.LevelInfo
				}
				m.cfg.Logger.Log(ctx, level, "take over a sandbox; it is removed", "sandbox", held[i].ID, "err", err)
				m.discard(ctx, held[i].ID)
			}
		})
	}
	wg.Wait()
	if err := m.sweepFolders(ctx, known); err != nil {
		return err
	}
	if err := m.adoptStopped(); err != nil {
		return err
	}
	if err := m.Keep.Collect(); err != nil { // of what a daemon was killed over
		m.cfg.Logger.Warn("remove layers that nothing needs", "err", err)
	}
	m.adoptPools()
	return nil
}

// discard removes a sandbox that cannot be taken over.
func (m *Manager) discard(ctx context.Context, id string) {
	dir := filepath.Join(m.cfg.Dir, id)
	err := m.takeDown(ctx, id)
	if shelf.IsMarked(dir) {
		err = errors.Join(err, m.Keep.Shelve(dir, id))
	} else {
		err = errors.Join(err, removeAll(dir))
	}
	if err != nil {
		m.cfg.Logger.Error("remove a sandbox that cannot be taken over", "sandbox", id, "err", err)
	}
}

// takeDown ends and unmounts what there is of a sandbox, by what its folder says.
func (m *Manager) takeDown(ctx context.Context, id string) error {
	dir := filepath.Join(m.cfg.Dir, id)
	err := m.cfg.Launcher.Destroy(ctx, id)
	return errors.Join(err, m.unmountAbout(dir), m.Workspaces.Unmount(dir, maxMounts), m.unmountOwn(dir))
}

// maxMounts is more than a spec may have.
const maxMounts = 128

// sweepFolders removes the folders of sandboxes that were being made or removed.
func (m *Manager) sweepFolders(ctx context.Context, known map[string]bool) error {
	entries, err := os.ReadDir(m.cfg.Dir)
	if err != nil {
		return fmt.Errorf("look for folders of sandboxes: %w", err)
	}
	for _, e := range entries {
		if !known[e.Name()] && filepath.Join(m.cfg.Dir, e.Name()) != m.cfg.Shelf.Dir() {
			m.discard(ctx, e.Name())
		}
	}
	return nil
}

// unmountOwn unmounts the file system of a sandbox's own, where it has one.
func (m *Manager) unmountOwn(dir string) error {
	if err := m.unmount(filepath.Join(dir, "fs")); !errors.Is(err, unix.EINVAL) && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// errNotRecord is a record that can be read, and says too little, or speaks of another.
var errNotRecord = errors.New("it lacks what it must say, or is another's")

// errNoRecord is a sandbox whose record is not written yet, or not there any more.
var errNoRecord = errors.New("it has no record: it was being made, or removed")

// errUnready is a sandbox whose build, or creation, ended with the hutchd before.
var errUnready = errors.New("it was being built, or what its template starts was not ready")

// adopt takes over one sandbox. It owns what it returns no error for.
func (m *Manager) adopt(ctx context.Context, h *launchapi.HeldSandbox) (err error) {
	ctx, cancel := context.WithTimeout(ctx, adoptTimeout)
	defer cancel()
	var own cleanup.Stack
	defer own.Run(&err)
	own.Add(func() error { h.Close(); return nil })
	dir := filepath.Join(m.cfg.Dir, h.ID)
	data, err := os.ReadFile(filepath.Join(dir, recordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return errNoRecord
	}
	if err != nil {
		return err
	}
	from, err := readSaved(data)
	if err != nil || from.Root == nil || from.Record.ID != h.ID {
		return fmt.Errorf("record.json is not one: %w", cmp.Or(err, errNotRecord))
	}
	if from.Unready {
		return errUnready
	}
	if shelf.IsMarked(dir) {
		return errors.New("it was being stopped or started, and is stopped now")
	}
	s := m.newSandbox(from.Record, from.Spec, from.User)
	s.pidfd, s.execs = h.Pidfd, exec.NewSet(from.Clock)
	s.root, s.templated, s.kept, s.exposed = from.Root, from.Template, from.files(), from.Ports
	s.orphaned = from.Spec.Owner == api.OwnerConnection || from.Spec.Scope != nil &&
		from.Spec.Scope.Kind == api.ScopeSession
	s.meter.AdoptDisk(m.diskPlace(s), from.Project)
	if s.record.State == api.Creating {
		s.record.State = api.Running
		if s.record.Pool != "" { // nobody has acquired it
			s.record.State = api.Waiting
		}
	}
	if s.record.State == api.Running || s.record.State == api.Paused || s.record.State == api.Waiting {
		s.record.PID = h.PID
	}
	if err := s.folders.Adopt(&s.spec, dir); err != nil {
		return err
	}
	if s.root.Release, err = m.cfg.Images.Hold(s.root.Lower); err != nil {
		return err
	}
	own.Add(func() error { s.root.Release(); return nil })
	unused, err := m.Keep.Use(s.kept.Layers)
	if err != nil {
		return err
	}
	own.Add(unused)

	if s.record.Network.Mode != api.NetNone {
		if s.net, err = m.cfg.Networks.Adopt(s.id, dir, s.record.Network.NetPolicy); err != nil {
			return err
		}
		own.Add(s.net.Close)
		if err := s.seen.Recall(dir); err != nil {
			return err
		}
	} else {
		if s.plain = m.adoptPlain(s.id, h.PID); s.plain != nil {
			own.Add(s.plain.Close)
		}
		s.execs.NewNetwork(refusals.Routeless(h.PID))
	}

	if s.enforced, err = m.cfg.Networks.Enforce(s.id, s.cgroup, s.net); err != nil {
		return err
	}
	own.Add(s.enforced.Close)
	if err := m.Egress.Adopt(egressBox{m, s}); err != nil {
		return err
	}
	s.record.Network.Enforcement = m.cfg.Host.enforcement(s.record.Network.NetPolicy, s.net)

	execs, err := exec.ReadHeld(h.Execs)
	if err != nil {
		return err
	}
	var ids []uint64
	for i := range execs {
		if !execs[i].Ended() {
			ids = append(ids, execs[i].Guest())
		}
	}
	var guests map[uint64]*guestapi.Exec
	conn, err := m.cfg.Kernel.Channel(h.Guest)
	if err != nil {
		return err
	}
	if s.guest, guests, err = guestapi.Resume(ctx, conn, ids); err != nil {
		return err
	}
	m.audit(ctx, s, "", api.AuditResumed, nil, 0)
	own.Release() // from here on removal takes care of everything
	s.destroy = m.undoAdopted(s, unused)
	m.mu.Lock()
	m.put(s, m.byName[s.name])
	if sc := m.scopeOf(s); sc != nil {
		sc.s = s
	}
	m.mu.Unlock()
	m.Ports.Adopt(portsBox{m, s, h.PID}, s.exposed)
	s.servers.Know(serversBox{m, s})
	m.watchInit(s)
	for i := range execs {
		m.adoptExec(ctx, s, &execs[i], guests[execs[i].Guest()])
	}
	if s.state() == api.Paused {
		if err := m.Pauses.Repause(ctx, pauseBox{m, s}); err != nil {
			m.cfg.Logger.Error("pause again a sandbox that was paused", "sandbox", s.id, "err", err)
		}
	}
	m.startClocks(s)
	m.watchPID1(s)
	s.meter.Watch()
	return nil
}

// adoptPlain has the lookups of a sandbox in mode none refused and told again. Without, they fail as they would have:
// who runs the sandbox hears less of it.
func (m *Manager) adoptPlain(id string, pid int) Namespace {
	ns, err := os.Open(m.cfg.Kernel.Proc(pid) + "/ns/net")
	if err == nil {
		var n Namespace
		if n, err = m.cfg.Networks.AdoptPlain(id, ns); err == nil {
			return n
		}
	}
	m.cfg.Logger.Warn("lookups of a sandbox without a network are not told", "sandbox", id, "err", err)
	return nil
}

// startClocks starts those of an adopted sandbox, as admit does for a new one.
func (m *Manager) startClocks(s *Sandbox) {
	if until := s.Record().Expires; until != nil {
		s.setTTL(m, *until)
	}
	s.rearmIdle(m)
	m.awaitClaim(s)
}

// adoptExec takes over one exec, and the shell that it may be.
func (m *Manager) adoptExec(ctx context.Context, s *Sandbox, h *exec.Held, guest *guestapi.Exec) {
	r := m.Execs.Adopt(ctx, m.execBox(s), h, guestExec{guest})
	switch {
	case r == nil || r.Shell() == "":
	case h.Ended():
		m.Shells.Adopt(r, h.Note(), nil)
	default:
		m.Shells.Adopt(r, h.Note(), r.Channel())
	}
}
