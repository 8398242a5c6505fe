package sandbox

import (
	"context"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/files"
	"github.com/hutch-sh/hutch/runtime/history"
	"github.com/hutch-sh/hutch/runtime/keep"
	"github.com/hutch-sh/hutch/runtime/meter"
	"github.com/hutch-sh/hutch/runtime/refusals"
	"github.com/hutch-sh/hutch/runtime/spec"
	"github.com/hutch-sh/hutch/runtime/warm"
	"github.com/hutch-sh/hutch/runtime/workspace"
)

// keepHost is the Manager as package keep uses it.
type keepHost struct{ m *Manager }

func (h keepHost) Find(ref string) (keep.Sandbox, error) {
	s, err := h.m.find(ref)
	return keepBox{h.m, s}, err
}

func (h keepHost) Turn(ctx context.Context, ref string) (keep.Sandbox, func(), error) {
	s, done, err := h.m.takeTurn(ctx, ref)
	return keepBox{h.m, s}, done, err
}

func (h keepHost) Room(user uint32, l *api.Limits, more int) error {
	h.m.mu.Lock()
	defer h.m.mu.Unlock()
	return h.m.checkQuota(user, l, nil, more)
}

func (h keepHost) Limits(asked, now api.Limits) api.Limits { return meter.Overlay(asked, now) }

// early is a generic sandbox that is launched for the first fork beside the copy of what it goes on from.
type early = warm.Early[*generic, aheadKey]

func (h keepHost) Early(sp api.Spec) keep.Early {
	if _, err := h.m.Meters.Grant(&sp.Limits, true); err != nil || !(&CreateRequest{Spec: sp}).fits() {
		return (*early)(nil)
	}
	return aheadHost(h).of(&sp).Early()
}

func (h keepHost) Fork(ctx context.Context, r keep.Fork) (api.Sandbox, error) {
	req := CreateRequest{Spec: r.Spec, FDs: r.FDs, User: r.By.User, Conn: r.By.Conn, Progress: func(api.Progress) {},
		origin: &origin{Origin: r.Origin}}
	req.early, _ = r.Early.(*early)
	return h.m.createNew(ctx, req)
}

func (h keepHost) Remove(ctx context.Context, id string) { h.m.removeNow(ctx, id) }

func (h keepHost) Behind(remove func() error) bool {
	m := h.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed || m.Removing() >= maxBehind {
		return false
	}
	m.afterwards(func() {
		if err := remove(); err != nil {
			m.cfg.Logger.Error("remove layers of snapshots", "err", err)
		}
	})
	return true
}

// keepBox is a sandbox as package keep uses it.
type keepBox struct {
	m *Manager
	s *Sandbox
}

func (b keepBox) Dir() string        { return b.s.dir }
func (b keepBox) Files() *keep.Files { return &b.s.kept }
func (b keepBox) Save() error        { return b.s.saveKept() }
func (b keepBox) ID() string         { return b.s.id }
func (b keepBox) User() uint32       { return b.s.user }
func (b keepBox) Root() *spec.Root   { return b.s.root }
func (b keepBox) Stopped() bool      { return b.s.stopped }
func (b keepBox) MustRun() error     { return b.s.mustRun() }

func (b keepBox) Now() (api.Spec, api.Sandbox) {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	return b.s.spec, b.s.record
}

func (b keepBox) Folders() (map[string]workspace.ID, error) { return b.s.foldersNow() }

// foldersNow says which folders of the host's a sandbox has.
func (s *Sandbox) foldersNow() (map[string]workspace.ID, error) {
	if s.stopped {
		return s.folders.IDs, nil
	}
	return workspace.IDsNow(&s.spec, s.dir)
}

func (b keepBox) Still(ctx context.Context, reason string, use func() error) error {
	return b.m.Pauses.Still(ctx, pauseBox(b), reason, use)
}

func (b keepBox) Audit(ctx context.Context, kind api.AuditKind, data any) {
	b.m.audit(ctx, b.s, "", kind, data, 0)
}

func (b keepBox) Stop(ctx context.Context, grace time.Duration, reason string) (keep.Sandbox, api.Ended, error) {
	s, ended, err := b.stopAndKeep(ctx, grace, reason)
	return keepBox{b.m, s}, ended, err
}

func (b keepBox) Start(ctx context.Context, sp api.Spec, by keep.Caller) (api.Sandbox, error) {
	return b.start(ctx, CreateRequest{Spec: sp, FDs: by.FDs, User: b.s.user, Conn: by.Conn})
}

// stoppedNames are what of a sandbox's folder is kept beside its files while it is stopped: creation.folders says what
// it is.
var stoppedNames = []string{"names", refusals.Learned, history.Dir, files.PatchesDir, outputDir}
