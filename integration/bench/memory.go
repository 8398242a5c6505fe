package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

// idleSandboxes is how many of them the memory is measured with.
const idleSandboxes = 200

// Memory is what a daemon and its sandboxes take while nothing runs, in kB.
type Memory struct {
	Sandboxes int `json:"sandboxes"`
	// Hutchd is the resident set of hutchd.
	Hutchd int `json:"hutchd_rss_kb"`
	// Sandbox is the PSS (proc_pid_smaps(5)) of the processes of one sandbox, the mean
	// of all; First is that of the first when it was alone. 0 where they may not be read:
	// hutch-init cannot be traced, so it takes root.
	Sandbox int            `json:"sandbox_pss_kb,omitempty"`
	First   int            `json:"first_pss_kb,omitempty"`
	Network *NetworkMemory `json:"network,omitempty"` // of -memory only
}

func (m *Memory) String() string {
	s := fmt.Sprintf("%d idle sandboxes: hutchd %.1f MB RSS", m.Sandboxes, float64(m.Hutchd)/1000)
	if m.Sandbox > 0 {
		s += fmt.Sprintf("; a sandbox %.2f MB PSS, %.2f MB when it is the only one", float64(m.Sandbox)/1000,
			float64(m.First)/1000)
	}
	if n := m.Network; n != nil {
		s += fmt.Sprintf("\nwith a network each: hutchd %.1f MB RSS, %.0f kB a sandbox more than without",
			float64(n.Hutchd)/1000, float64(n.Hutchd-m.Hutchd)/float64(m.Sandboxes))
		s += "\n" + n.idle()
	}
	return s
}

// memory measures a daemon of its own.
func (h *Host) memory(ctx context.Context) (m *Memory, err error) {
	hutch, err := h.hutchCommand()
	if err != nil {
		return nil, err
	}
	env, err := h.hutchEnv("memory")
	if err != nil {
		return nil, err
	}
	if err := h.needOwnDaemon(); err != nil {
		return nil, err
	}
	if _, err := h.output(ctx, env, hutch, "rpc", "system.info"); err != nil {
		return nil, err
	}
	defer func() {
		_, end := h.output(context.WithoutCancel(ctx), env, hutch, "rpc", "system.shutdown", `{"mode":"kill"}`)
		err = errors.Join(err, end)
	}()
	c, err := client.Dial(ctx, h.path("run", "memory.sock"))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	m = &Memory{Sandboxes: idleSandboxes}
	pids, err := createMany(ctx, c, 1, api.NetPolicy{})
	if err != nil {
		return nil, err
	}
	// record.pid is of the daemon's pid namespace, which is ours.
	if m.First, err = pss(pids[0]); err != nil {
		return nil, err
	}
	more, err := createMany(ctx, c, idleSandboxes-1, api.NetPolicy{})
	if err != nil {
		return nil, err
	}
	pids = append(pids, more...)
	for _, pid := range pids {
		kb, err := pss(pid)
		if err != nil {
			return nil, err
		}
		m.Sandbox += kb
	}
	m.Sandbox /= idleSandboxes
	hutchd, err := hutchdOf(pids[0])
	if err != nil {
		return nil, err
	}
	// Idle, not just made: hutchd gives back what that took after two seconds.
	select {
	case <-time.After(4 * time.Second):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	m.Hutchd, err = rss(hutchd)
	return m, err
}

// createMany creates n sandboxes at once and returns their PIDs 1.
func createMany(ctx context.Context, c *client.Client, n int, p api.NetPolicy) ([]int, error) {
	pids, errs := make([]int, n), make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			sb, err := c.CreateSandbox(ctx, api.CreateParams{Spec: api.Spec{Image: "host", Network: p}}, nil, nil)
			pids[i], errs[i] = sb.PID, err
		})
	}
	wg.Wait()
	return pids, errors.Join(errs...)
}

// pss is the proportional set size of a process in kB, 0 where it may not be read.
func pss(pid int) (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if errors.Is(err, fs.ErrPermission) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return kilobytes(string(text), "Pss")
}

// kilobytes is the value of a line "KEY: N kB".
func kilobytes(text, key string) (int, error) {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, key+":"); ok {
			return strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")))
		}
	}
	return 0, fmt.Errorf("no line %q", key)
}

func parent(pid int) (int, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, _, ppid, ok := parseStat(string(stat))
	if !ok {
		return 0, fmt.Errorf("/proc/%d/stat: %q", pid, stat)
	}
	return ppid, nil
}

// childOf is the child of that name.
func childOf(ppid int, name string) (int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if of, err := parent(pid); err == nil && of == ppid && field(fmt.Sprintf("/proc/%d/status", pid), "Name",
			":") == name {
			return pid, nil
		}
	}
	return 0, fmt.Errorf("process %d has no child %s", ppid, name)
}

// rss is the resident set of a process in kB.
func rss(pid int) (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	return kilobytes(string(text), "VmRSS")
}
