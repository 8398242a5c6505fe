package images

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
)

// maxConfigBytes bounds an image configuration; containers/image reads no more
// than 4 MiB itself.
const maxConfigBytes = 4 << 20

// imageConfig is what an image's configuration blob says, in the words of the
// OCI image specification (config.md), which Docker's format shares. Unknown
// fields are ignored as the specification asks.
type imageConfig struct {
	Created      *time.Time `json:"created"`
	Architecture string     `json:"architecture"`
	Variant      string     `json:"variant"`
	OS           string     `json:"os"`
	Config       struct {
		User         string              `json:"User"`
		Env          []string            `json:"Env"`
		Entrypoint   []string            `json:"Entrypoint"`
		Cmd          []string            `json:"Cmd"`
		Volumes      map[string]struct{} `json:"Volumes"`
		WorkingDir   string              `json:"WorkingDir"`
		Labels       map[string]string   `json:"Labels"`
		StopSignal   string              `json:"StopSignal"`
		ExposedPorts map[string]struct{} `json:"ExposedPorts"`
	} `json:"config"`
	RootFS struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
}

// parseConfig reads a configuration blob. What would surprise a later execve
// or mount (NUL bytes, environment without a name, relative paths) is refused
// or left out here, once.
func parseConfig(blob []byte) (*imageConfig, error) {
	if len(blob) > maxConfigBytes {
		return nil, fmt.Errorf("image configuration has %d bytes, more than %d", len(blob), maxConfigBytes)
	}
	var c imageConfig
	if err := json.Unmarshal(blob, &c); err != nil {
		return nil, fmt.Errorf("image configuration: %w", err)
	}
	if len(c.RootFS.DiffIDs) == 0 {
		return nil, api.Errorf(api.InvalidArgument,
			"the reference names no runnable image: its configuration lists no layers").
			WithHint("Charts, signatures and other artifacts cannot be run.")
	}
	for _, d := range c.RootFS.DiffIDs {
		if err := checkDigest(d); err != nil {
			return nil, fmt.Errorf("image configuration: layer: %w", err)
		}
	}
	return &c, c.check()
}

func (c *imageConfig) check() error {
	cfg := &c.Config
	strs := slices.Concat(cfg.Env, cfg.Entrypoint, cfg.Cmd, []string{cfg.User, cfg.WorkingDir, cfg.StopSignal})
	for _, s := range strs {
		if strings.IndexByte(s, 0) >= 0 {
			return fmt.Errorf("image configuration: NUL byte in %.80q", s)
		}
	}
	cfg.Env = slices.DeleteFunc(cfg.Env, func(e string) bool {
		name, _, ok := strings.Cut(e, "=")
		return !ok || name == ""
	})
	return nil
}

// config is the part that a sandbox honours.
func (c *imageConfig) config() Config {
	cfg := &c.Config
	out := Config{
		Env: cfg.Env, User: cfg.User, Entrypoint: cfg.Entrypoint, Cmd: cfg.Cmd,
		StopSignal: cfg.StopSignal, Labels: cfg.Labels,
		ExposedPorts: slices.Sorted(maps.Keys(cfg.ExposedPorts)),
	}
	if cfg.WorkingDir != "" {
		out.WorkingDir = path.Join("/", cfg.WorkingDir)
	}
	for v := range cfg.Volumes {
		if p := path.Join("/", v); p != "/" && strings.IndexByte(p, 0) < 0 {
			out.Volumes = append(out.Volumes, p)
		}
	}
	slices.Sort(out.Volumes)
	return out
}

func (c *imageConfig) platform() platform {
	return platform{OS: c.OS, Arch: c.Architecture, Variant: c.Variant}
}

func (c *imageConfig) created() time.Time {
	if c.Created == nil {
		return time.Time{}
	}
	return c.Created.UTC()
}
