package deptest

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"
)

const module = "github.com/hutch-sh/hutch"

// binary is what one of our programs may not link, or may link alone.
type binary struct {
	name string
	cgo  bool
	tags string
	// forbidden import paths with the reason; what lies below is forbidden too. A
	// trailing "$" means that path alone.
	forbidden map[string]string
	// only, when set, lists prefixes of all that may be linked outside std.
	only []string
}

var binaries = []binary{
	{
		name: "hutch",
		tags: "containers_image_openpgp",
		forbidden: map[string]string{
			"github.com/opencontainers/runc":       "sandboxes are started by hutch-launch",
			"github.com/opencontainers/cgroups":    "limits are hutchd's",
			"go.podman.io":                         "images are hutchd's",
			"github.com/cilium/ebpf":               "eBPF is hutch-netd's",
			"github.com/seccomp/libseccomp-golang": "filters are compiled by hutch-launch",
			"go.yaml.in/yaml":                      "its regular expressions are compiled at each start: hutchd reads for hutch",
			module + "/runtime/sandbox":            "the manager is hutchd's",
			module + "/runtime/exec":               "commands of sandboxes are hutchd's",
			module + "/runtime/server":             "the server is hutchd's",
			module + "/images":                     "images are hutchd's",
			"runtime/cgo":                          "only hutch-launch and hutch-scan are cgo",
			"C":                                    "only hutch-launch and hutch-scan are cgo",
		},
	},
	{
		name: "hutchd",
		tags: "containers_image_openpgp",
		forbidden: map[string]string{
			"github.com/opencontainers/runc/libcontainer$": "only the configuration types: libcontainer itself runs in hutch-launch",
			"github.com/seccomp/libseccomp-golang":         "filters are compiled by hutch-launch: hutchd is not cgo",
			"github.com/cilium/ebpf/link":                  "programs are attached by hutch-netd",
			module + "/netfilter/bpf/program":              "programs are loaded by hutch-netd",
			module + "/netfilter/netd$":                    "hutchd links netdapi only",
			"github.com/spf13/cobra":                       "commands are hutch's",
			module + "/runtime/launch$":                    "hutchd links launchapi only",
			module + "/runtime/guest$":                     "hutchd links guestapi only",
			module + "/runtime/guest/supervisor":           "hutchd links guestapi only",
			module + "/runtime/scan/engine":                "parsers run in hutch-scan",
			module + "/internal/hostexec":                  "the daemon runs nothing on the host: clients do",
			"github.com/tree-sitter":                       "parsers run in hutch-scan",
			"mvdan.cc/sh":                                  "parsers run in hutch-scan",
			"runtime/cgo":                                  "only hutch-launch and hutch-scan are cgo",
			"C":                                            "only hutch-launch and hutch-scan are cgo",
		},
	},
	{
		name: "hutch-launch",
		cgo:  true,
		tags: "seccomp,netgo,osusergo",
		forbidden: map[string]string{
			"go.podman.io":              "every linked package is paid on every sandbox start",
			module + "/images":          "every linked package is paid on every sandbox start",
			module + "/netfilter":       "every linked package is paid on every sandbox start",
			module + "/runtime/server":  "requests end in hutchd",
			module + "/runtime/sandbox": "the manager is hutchd's",
			"github.com/spf13/cobra":    "every linked package is paid on every sandbox start",
			"github.com/cilium/ebpf":    "rules for devices, which nobody in a user namespace can load",
			"net/http":                  "every linked package is paid on every sandbox start",
		},
	},
	{
		name: "hutch-netd",
		forbidden: map[string]string{
			"runtime/cgo":          "it gives up rights in all threads, which Go does only without C",
			"C":                    "it gives up rights in all threads, which Go does only without C",
			"net$":                 "it reads one inherited socket",
			"crypto/tls":           "it reads one inherited socket",
			"encoding/gob":         "what it is asked is one byte and one fd",
			module + "/netfilter$": "what runs privileged stays small",
			module + "/runtime":    "what runs privileged stays small",
		},
		only: []string{"golang.org/x/sys/", "github.com/cilium/ebpf", module + "/netfilter/netd", module +
			"/netfilter/bpf", module + "/internal/sys", module + "/cmd/hutch-netd"},
	},
	{
		name: "hutch-mcp",
		forbidden: map[string]string{
			module + "/runtime/sandbox": "it is a client",
			module + "/runtime/launch":  "it is a client",
			module + "/images":          "it is a client",
			"github.com/spf13/cobra":    "hutch mcp has parsed the flags",
		},
	},
	{
		name: "hutch-web",
		forbidden: map[string]string{
			module + "/runtime/sandbox": "it is a client",
			module + "/runtime/launch":  "it is a client",
			module + "/images":          "it is a client",
			"github.com/spf13/cobra":    "hutch web has parsed the flags",
		},
	},
	{
		name: "hutch-scan",
		cgo:  true,
		tags: "netgo,osusergo",
		forbidden: map[string]string{
			"net$":                     "it reads one pipe",
			"crypto/tls":               "it reads one pipe",
			"os/exec":                  "it starts nothing",
			module + "/runtime/scan$":  "that is hutchd's side",
			module + "/runtime/client": "it reads one pipe",
		},
		only: []string{"golang.org/x/sys/", "golang.org/x/text/", "github.com/tree-sitter/",
			"github.com/mattn/go-pointer", "mvdan.cc/sh/v3/", module + "/runtime/scan/", module + "/runtime/api",
			module + "/internal/", module + "/cmd/hutch-scan"},
	},
	{
		name: "hutch-init",
		forbidden: map[string]string{
			"runtime/cgo":  "PID 1 is static and has no C in it",
			"C":            "PID 1 is static and has no C in it",
			"net/http":     "PID 1 reads one inherited socket",
			"crypto/tls":   "PID 1 reads one inherited socket",
			"encoding/gob": "what comes from a sandbox is decoded strictly, into known types",
			"os/exec":      "commands start through the exec stub, with the order that needs",
			"plugin":       "PID 1 runs no code but its own",
		},
		only: []string{"golang.org/x/sys/", module + "/runtime/guest", module + "/runtime/api", module + "/internal/",
			module + "/cmd/hutch-init"},
	},
}

// TestBinaries compares what each binary links with what it may.
func TestBinaries(t *testing.T) {
	for _, b := range binaries {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			for _, pkg := range deps(t, b) {
				if why := b.refuses(pkg); why != "" {
					t.Errorf("cmd/%s links %s: %s\n(see `go list -deps` or `go mod why` for the path)", b.name,
						pkg.path, why)
				}
			}
		})
	}
}

// dependency is a linked package; std says that it comes with Go.
type dependency struct {
	path string
	std  bool
}

// deps lists everything that b links.
func deps(t *testing.T, b binary) []dependency {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-tags", b.tags, "-f",
		"{{.Standard}} {{.ImportPath}}", module+"/cmd/"+b.name)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if b.cgo {
		cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, stderr.Bytes())
	}
	var all []dependency
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		std, path, _ := strings.Cut(lines.Text(), " ")
		all = append(all, dependency{path: path, std: std == "true"})
	}
	if len(all) == 0 {
		t.Fatalf("%s printed nothing", strings.Join(cmd.Args, " "))
	}
	return all
}

// refuses says why b may not link d, or nothing.
func (b binary) refuses(d dependency) string {
	for path, why := range b.forbidden {
		exact, isExact := strings.CutSuffix(path, "$")
		switch {
		case isExact && d.path == exact:
			return why
		case !isExact && (d.path == path || strings.HasPrefix(d.path, path+"/")):
			return why
		}
	}
	if b.only == nil || d.std {
		return ""
	}
	for _, prefix := range b.only {
		if strings.HasPrefix(d.path, prefix) {
			return ""
		}
	}
	return "it may link std, golang.org/x/sys, its own packages and what its list names only"
}

// TestRefuses proves that the rules can fail, with the allowed twin beside each
// refusal.
func TestRefuses(t *testing.T) {
	byName := map[string]binary{}
	for _, b := range binaries {
		byName[b.name] = b
	}
	for _, tt := range []struct {
		binary string
		dep    dependency
		refuse bool
	}{
		{"hutchd", dependency{path: "github.com/opencontainers/runc/libcontainer"}, true},
		{"hutchd", dependency{path: "github.com/opencontainers/runc/libcontainer/configs"}, false},
		{"hutch-init", dependency{path: "github.com/spf13/cobra"}, true},
		{"hutch-init", dependency{path: "golang.org/x/sys/unix"}, false},
		{"hutch-init", dependency{path: "net/http/internal", std: true}, true},
		{"hutch-init", dependency{path: "encoding/json", std: true}, false},
		{"hutchd", dependency{path: module + "/netfilter/bpf/program"}, true},
		{"hutchd", dependency{path: module + "/netfilter/netd/netdapi"}, false},
		{"hutch-netd", dependency{path: module + "/netfilter/proxy"}, true},
		{"hutch-netd", dependency{path: module + "/netfilter/bpf/program"}, false},
		{"hutch", dependency{path: module + "/images/unpack"}, true},
		{"hutch", dependency{path: module + "/runtime/client"}, false},
	} {
		if why := byName[tt.binary].refuses(tt.dep); (why != "") != tt.refuse {
			t.Errorf("cmd/%s with %s: %q, want a refusal: %v", tt.binary, tt.dep.path, why, tt.refuse)
		}
	}
}
