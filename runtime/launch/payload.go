package launch

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/hutch-sh/hutch/internal/sys"
)

// defaultProfile is the seccomp profile of commands for which nobody names one.
const defaultProfile = "default"

// payload is what goes into every sandbox: the PID 1 binary and seccomp
// programs, each in one sealed memfd made on first use.
type payload struct {
	init     *os.File
	stateDir string
	config   Config

	mu      sync.Mutex
	filters map[string]*os.File // by profile; owned
}

// loadPayload copies initBin, so that a sandbox that reaches the file of its
// /proc/1/exe reaches no file of the host.
func loadPayload(c Config, stateDir string, initBin *os.File) (*payload, error) {
	content, err := readAll(initBin)
	if err != nil {
		return nil, fmt.Errorf("read hutch-init: %w", err)
	}
	mem, err := sys.SealedMemfd("hutch-init", content, sys.MemfdProgram)
	if err != nil {
		return nil, fmt.Errorf("copy hutch-init: %w", err)
	}
	return &payload{
		init: mem, stateDir: stateDir, config: c, filters: map[string]*os.File{},
	}, nil
}

// filter returns a description of its own, the caller's, of a profile's program:
// processes that shared one would share its read offset.
func (p *payload) filter(profile string) (*os.File, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	mem, ok := p.filters[profile]
	if !ok {
		program, err := p.config.Filter(p.stateDir, profile)
		if err != nil {
			return nil, fmt.Errorf("seccomp profile %s: %w", profile, err)
		}
		if mem, err = sealFilter(profile, program); err != nil {
			return nil, err
		}
		p.filters[profile] = mem
	}
	return sys.ReopenReadOnly(mem)
}

// custom is filter for a profile of the caller's own. It is compiled, in about 2 ms, for each
// sandbox: a cache would be as large as callers like.
func (p *payload) custom(text string) (*os.File, error) {
	program, err := p.config.Custom(text)
	if err != nil {
		return nil, err
	}
	mem, err := sealFilter("custom", program)
	if err != nil {
		return nil, err
	}
	defer mem.Close()
	return sys.ReopenReadOnly(mem)
}

// sealFilter is a program in a memfd that nobody can change.
func sealFilter(profile string, program []byte) (*os.File, error) {
	if len(program) == 0 {
		return nil, fmt.Errorf("seccomp profile %s: empty program", profile)
	}
	mem, err := sys.SealedMemfd("seccomp-"+profile, bytes.NewReader(program), sys.MemfdData)
	if err != nil {
		return nil, fmt.Errorf("seccomp profile %s: %w", profile, err)
	}
	return mem, nil
}

func (p *payload) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.init.Close()
	for _, f := range p.filters {
		err = errors.Join(err, f.Close())
	}
	p.filters = nil
	return err
}
