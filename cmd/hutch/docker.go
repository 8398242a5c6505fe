package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/runtime/api"
)

// dockerWord is a command that people type who know docker or podman.
type dockerWord struct {
	instead []string // the command that is run, with the arguments behind it
	say     string   // or what to type
}

var dockerWords = map[string]dockerWord{
	"pull": {instead: []string{"image", "pull"}}, "images": {instead: []string{"image", "ls"}}, "rmi": {instead: []string{"image", "rm"}},
	"tag": {instead: []string{"image", "tag"}}, "save": {instead: []string{"image", "save"}}, "import": {instead: []string{"image", "import"}},
	"load": {instead: []string{"image", "import"}}, "unpause": {instead: []string{"resume"}}, "info": {instead: []string{"doctor"}},
	"--version": {instead: []string{"version"}}, "-v": {instead: []string{"version"}},

	"attach":  {say: "hutch logs -f SANDBOX shows what its background command writes; hutch exec -it SANDBOX sh opens a shell beside it"},
	"build":   {say: "hutch template create --dockerfile Dockerfile NAME . makes a template, and hutch run --template NAME runs it"},
	"compose": {say: "hutch runs one sandbox at a time: hutch run -d -p PORT --name NAME for each, or a template of several steps"},
	"diff":    {say: "hutch workspace diff SANDBOX shows what it has changed in a workspace of mode overlay; hutch snapshot diff what it has changed since a snapshot"},
	"export":  {say: "hutch cp SANDBOX:/ - writes its files as tar; hutch commit makes an image of them"},
	"history": {say: "hutch image inspect IMAGE lists its layers"},
	"rename":  {say: "names are given when a sandbox is made: --name NAME"},
	"restart": {say: "hutch stop SANDBOX && hutch start SANDBOX"},
	"search":  {say: "hutch has no search: look for images at their registry"},
	"swarm":   {say: "hutch runs sandboxes on this machine alone"},
	"service": {say: "hutch runs sandboxes on this machine alone"},

	"container ls": {instead: []string{"ps"}}, "container ps": {instead: []string{"ps"}}, "container list": {instead: []string{"ps"}},
	"container unpause": {instead: []string{"resume"}},
	"container prune":   {say: "hutch ps -aq lists all; hutch rm SANDBOX... removes those that you name"},
	"system df":         {instead: []string{"image", "du"}}, "system info": {instead: []string{"doctor"}}, "system events": {instead: []string{"events"}},
	"system prune":   {say: "hutch image prune removes layers that no image has, hutch rm removes sandboxes, hutch gc what a killed daemon left"},
	"network ls":     {say: "each sandbox has a network of its own: hutch network show SANDBOX"},
	"network create": {say: "each sandbox has a network of its own, and none reaches another: -p publishes a port to this host"},
	"image build":    {say: "hutch template create --dockerfile Dockerfile NAME . makes a template, and hutch run --template NAME runs it"},
	"image history":  {say: "hutch image inspect IMAGE lists its layers"},
	"image list":     {instead: []string{"image", "ls"}}, "image load": {instead: []string{"image", "import"}}, "image rmi": {instead: []string{"image", "rm"}},
}

// fromDocker gives a command line that begins as docker's the words that hutch has.
func fromDocker(args []string) ([]string, error) {
	if len(args) == 0 || slices.ContainsFunc(verbs, func(v verb) bool { return v.name == args[0] }) && args[0] != "network" && args[0] != "image" {
		return args, nil
	}
	if len(args) > 1 {
		if w, ok := dockerWords[args[0]+" "+args[1]]; ok {
			return w.use(strings.Join(args[:2], " "), args[2:])
		}
		if args[0] == "container" {
			return fromDocker(args[1:])
		}
	}
	if w, ok := dockerWords[args[0]]; ok {
		return w.use(args[0], args[1:])
	}
	return args, nil
}

func (w dockerWord) use(words string, rest []string) ([]string, error) {
	if w.say != "" {
		return nil, hinted(cli.Usage("hutch", fmt.Errorf("there is no command %q", words)), w.say)
	}
	return append(slices.Clone(w.instead), rest...), nil
}

// hinted replaces what a usage error says to try.
func hinted(err error, hint string) error {
	var known *api.Error
	if errors.As(err, &known) {
		return known.WithHint("%s", hint)
	}
	return err
}

// dockerFlags are flags of docker run that hutch has not, and what there is instead.
var dockerFlags = map[string]string{
	"privileged":   "no command has privileges outside of its sandbox; inside it is root unless the image or -u says otherwise",
	"cap-add":      "inside a command has the capabilities that a sandbox can give without a risk: leave it out",
	"cap-drop":     "capabilities count inside the sandbox only, and none that reaches this host is given; -u 1000 runs a command without any",
	"security-opt": "no_new_privs is always set; --seccomp, --landlock and --apparmor choose the walls, and none of them can be left out unseen",
	"userns":       "each daemon has a user namespace of its own; --ids chooses how users inside are made",
	"pid":          "each sandbox has processes of its own", "ipc": "each sandbox has its own", "uts": "each sandbox has its own; --hostname names it",
	"cgroupns": "each sandbox has its own", "dns": "names are looked up by this host; --allow says which",
	"add-host": "names are looked up by this host; --allow host:PORT reaches a server on it", "link": "-p publishes a port to this host",
	"device": "sandboxes have no devices of this host", "gpus": "sandboxes have no devices of this host",
	"tmpfs":     "every folder can be written to, and goes with the sandbox; /dev/shm is in memory",
	"shm-size":  "/dev/shm has 64 MiB; a file in /tmp has as much as --disk allows",
	"read-only": "what is written goes with the sandbox; --workspace DIR:ro and -v ...:ro keep your folders as they are",
	"restart":   "hutch starts nothing again by itself", "log-driver": "hutch logs reads what a background command has written",
	"publish-all": "-p PORT for each", "expose": "-p PORT", "health-cmd": "a template waits for a server: hutch template create --help",
	"cidfile":          "hutch create and hutch run -d print the id",
	"oom-kill-disable": "a sandbox over its memory limit is always ended", "memory-reservation": "--memory-high SIZE slows down above it",
	"volumes-from": "hutch volume create, and -v NAME:PATH in each sandbox", "runtime": "hutch is its own", "cgroup-parent": "hutch makes its cgroups itself",
	"isolation": "each command is in all of the walls that this machine has: hutch doctor",
}

// unknownFlag is a usage error of a flag that docker has.
func unknownFlag(err error, text string) error {
	name, ok := strings.CutPrefix(text, "unknown flag: --")
	if !ok {
		return err
	}
	if say, ok := dockerFlags[name]; ok {
		return hinted(err, say)
	}
	return err
}
