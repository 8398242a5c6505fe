package sandbox

import (
	"context"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/exec"
	"github.com/hutch-sh/hutch/runtime/files"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// filesHost is the Manager as package files uses it.
type filesHost struct{ m *Manager }

func (h filesHost) Enter(ctx context.Context, ref string) (files.Sandbox, func(), error) {
	s, err := h.m.find(ref)
	if err != nil {
		return nil, nil, err
	}
	leave, err := h.m.Pauses.Enter(ctx, pauseBox{h.m, s})
	return filesBox{h.m, s}, leave, err
}

// filesBox is a sandbox as package files uses it.
type filesBox struct {
	m *Manager
	s *Sandbox
}

func (b filesBox) ID() string              { return b.s.id }
func (b filesBox) Dir() string             { return b.s.dir }
func (b filesBox) Record() api.Sandbox     { return b.s.Record() }
func (b filesBox) Workers() *files.Workers { return &b.s.files }
func (b filesBox) Again() (leave func())   { return b.s.gate.Again() }
func (b filesBox) BeginCall()              { b.s.beginCall() }
func (b filesBox) EndCall()                { b.s.endCall(b.m) }

func (b filesBox) DiskError(op string, err error) error { return diskError(op, err) }

func (b filesBox) Audited(kind api.AuditKind) (wanted, whole bool) {
	return b.m.cfg.Audit.Wants(kind), b.m.cfg.Audit.Full()
}

func (b filesBox) Audit(ctx context.Context, kind api.AuditKind, f api.AuditFile, size int) {
	b.m.audit(ctx, b.s, "", kind, f, size)
}

func (b filesBox) Admit(writes bool) error { return b.s.meter.Admit(writes) }

func (b filesBox) Explain(writes bool) error {
	if writes {
		if err := b.s.meter.Full(); err != nil {
			return err
		}
	}
	return b.s.mustRun()
}

func (b filesBox) StartWorker(ctx context.Context, user string, conn *os.File) (files.Process, error) {
	s := b.s
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	req := guestapi.Request{
		Worker: guestapi.WorkerFiles, User: user, Env: []string{"HOME=/"},
		Rlimits: []guestapi.Rlimit{{Resource: unix.RLIMIT_NPROC, Soft: s.nproc, Hard: s.nproc}},
	}
	if size, bounded := s.meter.WorkerFileSize(); bounded {
		req.Rlimits = append(req.Rlimits, guestapi.Rlimit{Resource: unix.RLIMIT_FSIZE, Soft: size, Hard: size})
	}
	if req.Cgroup, err = b.group(); err != nil {
		return nil, err
	}
	worker, err := s.guest.Start(ctx, req, []*os.File{conn, null, null})
	if err != nil {
		_, err = exec.StartError(ctx, err)
		return nil, err
	}
	return worker, nil
}

// group is the cgroup of all files workers of a sandbox. It lies beside PID 1's, so
// that whoever takes a worker over is frozen and killed with the sandbox.
func (b filesBox) group() (string, error) {
	s := b.s
	if !s.grouped {
		return "", nil
	}
	s.mu.Lock()
	name := s.workersGroup
	s.mu.Unlock()
	if name != "" {
		return name, nil
	}
	name = newID("files_") // another hutchd may have killed the one before
	if err := b.m.cfg.Cgroups.Make(s.cgroup, name, api.Limits{}); err != nil {
		return "", api.Errorf(api.ResourceExhausted, "%w", err).WithHint("allow more cgroups (cgroup.max.descendants)")
	}
	s.mu.Lock()
	s.workersGroup = name // of two that are made at once the later one goes on
	s.mu.Unlock()
	return name, nil
}
