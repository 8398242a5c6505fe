package monitor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/internal/paths"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/launch/bootstrap"
	"github.com/hutch-sh/hutch/runtime/launch/launchapi"
	"github.com/hutch-sh/hutch/runtime/monitor/monitorapi"
)

// launch starts a hutch-launch of this monitor's own.
func (m *monitor) launch(ctx context.Context) error {
	binaries, closeAll, err := open("hutch-launch", "hutch-init")
	if err != nil {
		return err
	}
	defer closeAll()
	mount, err := m.mountPoint()
	if err != nil {
		return err
	}
	socket, err := m.bindTakeover()
	if err != nil {
		return err
	}
	if socket != nil {
		defer socket.Close()
	}
	m.launcher, err = bootstrap.Start(ctx, bootstrap.Options{
		Binary: binaries[0], Init: binaries[1],
		IDMap:  m.ids,
		Stderr: os.Stderr,
		Env:    launchEnv(),
		Socket: socket,
		Hold:   m.tree.Locks(),
		Boot:   launchapi.Boot{StateDir: m.dataDir(), Mount: mount, Socket: m.takeoverPath(".sock")},
	})
	return err
}

// open opens binaries of this build.
func open(names ...string) (files []*os.File, closeAll func(), err error) {
	defer func() {
		if err != nil {
			packet.CloseAll(files)
		}
	}()
	for _, name := range names {
		path, err := paths.Sibling(name)
		if err != nil {
			return files, nil, err
		}
		f, err := os.Open(path)
		if err != nil {
			return files, nil, fmt.Errorf("open %s: %w", name, err)
		}
		files = append(files, f)
	}
	return files, func() { packet.CloseAll(files) }, nil
}

// launchEnv is hutch-launch's own environment: empty but for the fault seam, which
// only builds for tests have.
func launchEnv() []string {
	if v, ok := os.LookupEnv("HUTCH_FAULT_LAUNCH"); ok {
		return []string{"HUTCH_FAULT_LAUNCH=" + v}
	}
	return nil
}

// daemonEnv is the part of the environment that hutchd's libraries read: where
// registries' settings and credentials are, proxies and certificates. Started by
// root, the daemon is somebody else and cannot read root's own files, so it gets
// a home of its own below data and reads the settings in /etc.
func daemonEnv(data string) []string {
	names := []string{
		"PATH", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
		"SSL_CERT_FILE", "SSL_CERT_DIR", "TZ", "LANG", "HUTCH_LOG", "HUTCH_IDLE_S", "HUTCH_NETWORK_RESOLVER",
		"HUTCH_NETWORK_WAY", "HUTCH_FAULT_STEP",
	}
	var env []string
	if os.Geteuid() == 0 {
		env = append(env, "HOME="+filepath.Join(data, "home"))
	} else {
		names = append(names, "HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "DOCKER_CONFIG", "REGISTRY_AUTH_FILE",
			"CONTAINERS_REGISTRIES_CONF")
	}
	for _, name := range names {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

func (m *monitor) config() *monitorapi.Config {
	p := m.opts.Paths
	mount, _ := m.mountPoint()
	// Of the socket and the config only the files: they may lie in any folder.
	forbidden := []string{p.State, p.Runtime, p.Socket, p.Config, mount}
	if exe, err := os.Executable(); err == nil {
		forbidden = append(forbidden, filepath.Dir(exe))
	}
	// The daemon looks at these again for each mount; as root's, it lives as another user, who may not see them all.
	for _, place := range slices.Clone(forbidden) {
		if _, real := paths.Way(place); !slices.Contains(forbidden, real) {
			forbidden = append(forbidden, real)
		}
	}
	return &monitorapi.Config{
		Data:         mount,
		Paths:        api.Paths{Socket: p.Socket, State: p.State, Runtime: p.Runtime, Config: p.Config, Log: p.Log},
		Forbidden:    forbidden,
		Cgroups:      m.tree,
		IDBase:       m.ids.UIDs[0].Outside,
		Owner:        uint32(os.Getuid()),
		SingleReason: m.ids.Reason,
		Private:      m.opts.Private != nil,
		Settings:     m.settings(),
		PID:          os.Getpid(),
		Projects:     m.hasProjects(),
		EBPF:         m.ebpf,
	}
}
