package launch

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/hutch-sh/hutch/internal/sys"
)

// Names of seccomp profiles that every sandbox needs.
const (
	initProfile    = "init"
	defaultProfile = "default"
)

// payload is what goes into every sandbox: the PID 1 binary and seccomp
// programs, each in one sealed memfd made on first use.
type payload struct {
	init     *os.File
	stateDir string
	compile  func(stateDir, profile string) ([]byte, error)

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
		init: mem, stateDir: stateDir, compile: c.Filter, filters: map[string]*os.File{},
	}, nil
}

// filter returns a description of its own, the caller's, of a profile's program:
// processes that shared one would share its read offset.
func (p *payload) filter(profile string) (*os.File, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	mem, ok := p.filters[profile]
	if !ok {
		program, err := p.compile(p.stateDir, profile)
		if err != nil {
			return nil, fmt.Errorf("seccomp profile %s: %w", profile, err)
		}
		if len(program) == 0 {
			return nil, fmt.Errorf("seccomp profile %s: empty program", profile)
		}
		mem, err = sys.SealedMemfd("seccomp-"+profile, bytes.NewReader(program), sys.MemfdData)
		if err != nil {
			return nil, fmt.Errorf("seccomp profile %s: %w", profile, err)
		}
		p.filters[profile] = mem
	}
	return sys.ReopenReadOnly(mem)
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
