package monitor

import (
	"errors"
	"os"

	"github.com/hutch-sh/hutch/internal/config"
	"github.com/hutch-sh/hutch/internal/yamltree/yamlread"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/monitor/monitorapi"
)

// settings are what hutchd is told about the configuration file.
func (m *monitor) settings() monitorapi.Settings {
	m.mu.Lock()
	defer m.mu.Unlock()
	return monitorapi.Settings{
		Exec: m.file.Exec, Defaults: m.file.Defaults, Quotas: m.file.Quotas, Network: m.file.Network,
		Audit: m.file.Audit, Mode: m.file.Mode, Host: m.file.Host, Ready: m.file.Ready, Pools: m.file.Pools,
		Templates: m.file.Templates, Runtimes: m.file.Runtimes, Tokens: m.file.Tokens,
	}
}

// reload reads the configuration file again. One that is not understood changes nothing.
func (m *monitor) reload() *monitorapi.Reloaded {
	c, err := m.load()
	if err != nil {
		m.log.Warn("read the configuration again; the one before stays in force", "err", err)
		e := &api.Error{Code: api.Internal, Msg: err.Error()}
		errors.As(err, &e)
		return &monitorapi.Reloaded{Failed: &monitorapi.Failed{Code: e.Code, Msg: err.Error(), Hint: e.Hint}}
	}
	m.mu.Lock()
	m.file = c
	m.mu.Unlock()
	if m.opts.Private == nil {
		m.publish(&c)
	}
	s := m.settings()
	return &monitorapi.Reloaded{Settings: &s}
}

// load reads the file, and says what of it is not in force.
func (m *monitor) load() (config.Config, error) {
	c, err := config.LoadApproved(m.opts.Paths.Config, m.opts.Paths.Approved(), yamlread.Parse)
	if note := config.HeldNote(c.Held); note != "" {
		m.log.Warn(note + "; hutch config approve does")
	}
	return c, err
}

// publish leaves the digest for command lines, which else have the file read each for itself.
func (m *monitor) publish(c *config.Config) {
	if err := c.Publish(m.opts.Paths.ConfigDigest()); err != nil {
		m.log.Warn("leave a digest of the configuration; command lines take longer", "err", err)
	}
}

// reloads reads the file again at each signal, until done.
func (m *monitor) reloads(hup <-chan os.Signal, done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case <-hup:
		}
		r := m.reload()
		m.mu.Lock()
		h := m.hutchd
		m.mu.Unlock()
		if h == nil {
			continue // the next one is told when it serves
		}
		if err := h.send(monitorapi.Message{Reloaded: r}); err != nil {
			m.log.Debug("tell hutchd the configuration", "err", err)
		}
	}
}

// retell tells a hutchd that serves from now on what may have been read since it began.
func (m *monitor) retell(h *hutchd) {
	s := m.settings()
	_ = h.send(monitorapi.Message{Reloaded: &monitorapi.Reloaded{Settings: &s, Again: true}}) // it ends: another comes
}
