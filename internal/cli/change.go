package cli

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/hutch-sh/hutch/runtime/api"
)

// ParseChange reads one instruction as docker commit --change takes it, and adds it to
// what there is.
func ParseChange(s string, to *api.ConfigChanges) error {
	word, rest, _ := strings.Cut(strings.TrimSpace(s), " ")
	rest = strings.TrimSpace(rest)
	if rest == "" {
		return fmt.Errorf("%q says nothing", s)
	}
	var err error
	switch strings.ToUpper(word) {
	case "CMD":
		to.Cmd, err = parseArgv(rest)
	case "ENTRYPOINT":
		to.Entrypoint, err = parseArgv(rest)
	case "ENV":
		err = addPair(&to.Env, rest)
	case "LABEL":
		err = addPair(&to.Labels, rest)
	case "EXPOSE":
		to.ExposedPorts = append(to.ExposedPorts, ports(rest)...)
	case "VOLUME":
		to.Volumes, err = addVolumes(to.Volumes, rest)
	case "STOPSIGNAL":
		to.StopSignal = rest
	case "USER":
		to.User = rest
	case "WORKDIR":
		to.WorkingDir = rest
	default:
		return fmt.Errorf("%q is not CMD, ENTRYPOINT, ENV, EXPOSE, LABEL, STOPSIGNAL, USER, VOLUME or WORKDIR", word)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", strings.ToUpper(word), err)
	}
	return nil
}

// parseArgv reads a JSON array, or a line for the shell.
func parseArgv(s string) ([]string, error) {
	if !strings.HasPrefix(s, "[") {
		return []string{"/bin/sh", "-c", s}, nil
	}
	argv := []string{}
	if err := json.Unmarshal([]byte(s), &argv); err != nil {
		return nil, fmt.Errorf("%s is no JSON array of strings: %w", s, err)
	}
	return argv, nil
}

// addPair reads NAME=VALUE. The value goes to the end; it may be quoted as a whole.
func addPair(to *map[string]string, s string) error {
	name, value, found := strings.Cut(s, "=")
	if !found || name == "" || strings.ContainsAny(name, " \t") {
		return fmt.Errorf("%q is not NAME=VALUE", s)
	}
	if n := len(value); n >= 2 && (value[0] == '"' || value[0] == '\'') && value[n-1] == value[0] {
		value = value[1 : n-1]
	}
	if *to == nil {
		*to = make(map[string]string)
	}
	(*to)[name] = value
	return nil
}

func ports(s string) []string {
	list := strings.Fields(s)
	for i, p := range list {
		if !strings.Contains(p, "/") {
			list[i] = p + "/tcp"
		}
	}
	return list
}

func addVolumes(to []string, s string) ([]string, error) {
	if !strings.HasPrefix(s, "[") {
		return append(to, strings.Fields(s)...), nil
	}
	var list []string
	if err := json.Unmarshal([]byte(s), &list); err != nil {
		return nil, fmt.Errorf("%s is no JSON array of strings: %w", s, err)
	}
	return append(to, list...), nil
}
