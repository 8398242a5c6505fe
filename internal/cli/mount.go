package cli

import (
	"fmt"
	"path"
	"strings"

	"github.com/hutch-sh/hutch/runtime/api"
)

// ParseMount reads the value of --mount, KEY=VALUE pairs as docker has them, and mode=overlay.
func ParseMount(s string) (api.Mount, error) {
	kind, src, mode := "volume", "", "rw"
	var m api.Mount
	for pair := range strings.SplitSeq(s, ",") {
		key, value, has := strings.Cut(pair, "=")
		switch key {
		case "type":
			kind = value
		case "source", "src":
			src = value
		case "target", "dst", "destination":
			m.Target = value
		case "readonly", "ro":
			if mode = "ro"; has && value != "true" && value != "1" {
				mode = "rw"
			}
		case "mode":
			mode = value
		case "tmpfs-size", "tmpfs-mode":
			if err := tmpfsOption(&m, strings.TrimPrefix(pair, "tmpfs-")); err != nil {
				return m, fmt.Errorf("--mount %q: %w", s, err)
			}
		case "relabel", "consistency": // see cutMode
		default:
			return m, fmt.Errorf("%q of --mount %q: keys are type, src, dst, readonly, mode, tmpfs-size and tmpfs-mode",
				pair, s)
		}
	}
	dst := m.Target
	switch {
	case kind != "bind" && kind != "volume" && kind != "tmpfs":
		return m, fmt.Errorf("--mount %q: type %q is none of bind, volume and tmpfs", s, kind)
	case kind != "tmpfs" && (m.SizeBytes != 0 || m.Permissions != ""):
		return m, fmt.Errorf("--mount %q: tmpfs-size and tmpfs-mode are for type=tmpfs", s)
	case kind == "tmpfs" && (src != "" || mode != "rw"):
		return m, fmt.Errorf("--mount %q: a tmpfs has no src, and can be written", s)
	case kind == "tmpfs":
		return tmpfs(s, m)
	case src == "" || !strings.HasPrefix(dst, "/"):
		return m, fmt.Errorf("--mount %q wants src=SRC,dst=DST, and an absolute DST", s)
	case strings.Contains(dst, ":"):
		return m, fmt.Errorf("--mount %q: no colon can be in DST", s)
	case kind == "bind" && !strings.ContainsRune(src, '/'):
		src = "./" + src
	case kind == "volume" && strings.ContainsRune(src, '/'):
		return m, fmt.Errorf("--mount %q: %q is no name of a volume; a folder has type=bind", s, src)
	}
	return ParseVolume(src + ":" + dst + ":" + mode)
}

// ParseTmpfs reads the value of --tmpfs, DST[:OPTION,...].
func ParseTmpfs(s string) (api.Mount, error) {
	dst, options, has := strings.Cut(s, ":")
	m := api.Mount{Target: dst}
	if !has {
		return tmpfs(s, m)
	}
	for option := range strings.SplitSeq(options, ",") {
		if err := tmpfsOption(&m, option); err != nil {
			return m, fmt.Errorf("--tmpfs %q: %w", s, err)
		}
	}
	return tmpfs(s, m)
}

// tmpfs completes m, which was read from s.
func tmpfs(s string, m api.Mount) (api.Mount, error) {
	if !strings.HasPrefix(m.Target, "/") || path.Clean(m.Target) == "/" {
		return m, fmt.Errorf("%q: a folder in memory wants an absolute path, and not /", s)
	}
	m.Target, m.Mode = path.Clean(m.Target), api.ModeTmpfs
	return m, nil
}

// tmpfsOption reads one as mount(8) has it.
func tmpfsOption(m *api.Mount, option string) (err error) {
	key, value, _ := strings.Cut(option, "=")
	switch key {
	case "size":
		if m.SizeBytes, err = ParseSize(value); err == nil && m.SizeBytes == 0 {
			err = fmt.Errorf("%q is no size", option)
		}
	case "mode":
		m.Permissions = value
	case "noexec":
		m.NoExec = true
	case "exec":
		m.NoExec = false
	case "rw", "nosuid", "nodev", "noatime", "relatime": // as it is
	default:
		err = fmt.Errorf("%q: options are size, mode, exec and noexec", option)
	}
	return err
}
