// Package config reads the configuration file: what a user sets once for all
// sandboxes. The command line and the monitor share it; hutchd, which may not
// be able to open the file, is told by the monitor.
//
//	image: debian:12        # of a command line that names none; default "host"
//	exec:
//	  timeout_s: 180        # of commands that name none
//	  max_timeout_s: 1800   # the most that a command may ask for
package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"

	"gopkg.in/yaml.v3"

	"github.com/hutch-sh/hutch/runtime/api"
)

// HostImage is the image that needs no registry: the host's own programs.
const HostImage = "host"

// The defaults of Exec, in seconds.
const (
	DefaultTimeoutS = 180
	DefaultMaxS     = 1800
)

// Config is the file. To add a field: add it here with its yaml name, its default
// in Load, its check in check, and a line in the package comment. Sections that
// this build does not know are for another one; fields of known sections are not.
type Config struct {
	Image string `yaml:"image"`
	Exec  Exec   `yaml:"exec"`
}

// Exec bounds commands.
type Exec struct {
	TimeoutS    float64 `yaml:"timeout_s"`
	MaxTimeoutS float64 `yaml:"max_timeout_s"`
}

// UnmarshalYAML refuses unknown fields: a misspelt limit must not pass for one.
func (e *Exec) UnmarshalYAML(node *yaml.Node) error {
	text, err := yaml.Marshal(node)
	if err != nil {
		return err
	}
	type plain Exec // without this method
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	return dec.Decode((*plain)(e))
}

// Load reads the file at path; one that does not exist is all defaults.
func Load(path string) (Config, error) {
	var c Config
	f, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return c, api.Errorf(api.FailedPrecondition, "%w", err).WithOp("read configuration")
	default:
		defer f.Close()
		if err := yaml.NewDecoder(f).Decode(&c); err != nil && !errors.Is(err, io.EOF) {
			return c, refused(path, err)
		}
	}
	if err := c.check(); err != nil {
		return c, refused(path, err)
	}
	if c.Image == "" {
		c.Image = HostImage
	}
	if c.Exec.MaxTimeoutS == 0 {
		c.Exec.MaxTimeoutS = math.Max(DefaultMaxS, c.Exec.TimeoutS)
	}
	if c.Exec.TimeoutS == 0 {
		c.Exec.TimeoutS = math.Min(DefaultTimeoutS, c.Exec.MaxTimeoutS)
	}
	return c, nil
}

func refused(path string, err error) error {
	return api.Errorf(api.InvalidArgument, "%s: %w", path, err).WithOp("read configuration").
		WithHint("it may hold image, exec.timeout_s and exec.max_timeout_s; delete a line to have its default")
}

// check wants both times possible; 0 is the default.
func (c *Config) check() error {
	for name, v := range map[string]float64{"exec.timeout_s": c.Exec.TimeoutS, "exec.max_timeout_s": c.Exec.MaxTimeoutS} {
		if math.IsNaN(v) || v < 0 || v > api.MaxSeconds {
			return fmt.Errorf("%s: %g seconds are not possible", name, v)
		}
	}
	if e := c.Exec; e.MaxTimeoutS > 0 && e.TimeoutS > e.MaxTimeoutS {
		return fmt.Errorf("exec.timeout_s: %g is more than exec.max_timeout_s, %g", e.TimeoutS, e.MaxTimeoutS)
	}
	return nil
}
