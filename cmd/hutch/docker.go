package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/runtime/api"
)

// dockerWord is a command that people type who know docker or podman.
type dockerWord struct {
	instead []string // the command that is run, with the arguments behind it
	say     string   // or what to type
}

var dockerWords = map[string]dockerWord{
	"pull": {instead: []string{"image", "pull"}}, "images": {instead: []string{"image", "ls"}},
	"rmi": {instead: []string{"image", "rm"}},
	"tag": {instead: []string{"image", "tag"}}, "save": {instead: []string{"image", "save"}},
	"import":  {instead: []string{"image", "import"}},
	"unpause": {instead: []string{"resume"}}, "info": {instead: []string{"doctor"}},
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

	"container ls": {instead: []string{"ps"}}, "container ps": {instead: []string{"ps"}},
	"container list":    {instead: []string{"ps"}},
	"container unpause": {instead: []string{"resume"}},
	"container prune":   {say: "hutch ps -aq lists all; hutch rm SANDBOX... removes those that you name"},
	"system df":         {instead: []string{"image", "du"}}, "system info": {instead: []string{"doctor"}},
	"system events":   {instead: []string{"events"}},
	"system prune":    {say: "hutch image prune removes layers that no image has, hutch rm removes sandboxes, hutch gc what a killed daemon left"},
	"network ls":      {say: "each sandbox has a network of its own: hutch network get SANDBOX"},
	"network create":  {say: "each sandbox has a network of its own, and none reaches another: -p publishes a port to this host"},
	"image build":     {say: "hutch template create --dockerfile Dockerfile NAME . makes a template, and hutch run --template NAME runs it"},
	"image history":   {say: "hutch image inspect IMAGE lists its layers"},
	"network rm":      {say: "each sandbox has a network of its own, which goes with it: hutch rm SANDBOX"},
	"network inspect": {say: "each sandbox has a network of its own: hutch network get SANDBOX"},
	"network connect": {say: "no sandbox reaches another: -p publishes a port to this host, and hutch network update changes a policy"},
	"volume inspect":  {say: "hutch volume ls --json has all that is known of volumes"},
	"volume prune":    {say: "hutch volume ls lists them with the sandboxes that use them; hutch volume rm NAME... removes those that you name"},
	"image list":      {instead: []string{"image", "ls"}}, "image rmi": {instead: []string{"image", "rm"}},
}

// fromDocker gives a command line that begins as docker's the words that hutch has.
func fromDocker(args []string) ([]string, error) {
	if len(args) == 0 || slices.ContainsFunc(verbs, func(v verb) bool { return v.name == args[0] }) &&
		!slices.Contains([]string{"network", "image", "volume"}, args[0]) {
		return hasWords(args), nil
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
	return hasWords(args), nil
}

// hasWords gives commands that docker has with other arguments those that hutch has.
func hasWords(args []string) []string {
	if len(args) > 1 && args[0] == "image" && args[1] == "load" {
		args = args[1:]
	}
	if len(args) > 0 && args[0] == "load" { // docker load [-q] [-i FILE]
		from, rest, names := "-", []string{"image", "import"}, []string(nil)
		for i := 1; i < len(args); i++ {
			switch arg := args[i]; {
			case (arg == "-i" || arg == "--input") && i+1 < len(args):
				i++
				from = args[i]
			case strings.HasPrefix(arg, "--input="):
				from = strings.TrimPrefix(arg, "--input=")
			case arg == "-qi" && i+1 < len(args):
				i++
				from, rest = args[i], append(rest, "-q")
			case !strings.HasPrefix(arg, "-") && from == "-":
				from = arg
			case !strings.HasPrefix(arg, "-"):
				names = append(names, arg)
			default:
				rest = append(rest, arg)
			}
		}
		return append(append(rest, string(api.FormatArchive)+":"+from), names...)
	}
	if (len(args) == 2 || len(args) == 3) && args[0] == "port" &&
		!slices.Contains([]string{"ls", "list", "expose", "close", "help"}, args[1]) &&
		!strings.HasPrefix(args[1], "-") {
		return []string{"port", "ls", args[1]}
	}
	return args
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

// dockerFlags are flags of docker run that hutch has not, and what there is instead; with another command in front,
// that one's.
var dockerFlags = map[string]string{
	"logs since":      "output has no times: -n LINES prints the last ones, hutch events tells when commands started and ended",
	"logs until":      "output has no times: -n LINES prints the last ones",
	"logs t":          "output has no times: hutch events tells when commands started and ended",
	"logs timestamps": "output has no times: hutch events tells when commands started and ended",
	"P":               "-p PORT for each",
	"stop-timeout":    "hutch stop -t SECONDS",
	"privileged":      "no command has privileges outside of its sandbox; inside it is root unless the image or -u says otherwise",
	"userns":          "each daemon has a user namespace of its own; --ids chooses how users inside are made",
	"pid":             "each sandbox has processes of its own", "ipc": "each sandbox has its own",
	"uts":      "each sandbox has its own; --hostname names it",
	"cgroupns": "each sandbox has its own", "dns": "names are looked up by this host; --allow says which",
	"link":   "-p publishes a port to this host",
	"device": "sandboxes have no devices of this host", "gpus": "sandboxes have no devices of this host",
	"log-driver":  "hutch logs reads what a background command has written",
	"publish-all": "-p PORT for each", "expose": "-p PORT",
	"health-cmd":         "a template waits for a server: hutch template create --help",
	"cidfile":            "hutch create and hutch run -d print the id",
	"oom-kill-disable":   "a sandbox over its memory limit is always ended",
	"memory-reservation": "--memory-high SIZE slows down above it",
	"volumes-from":       "hutch volume create, and -v NAME:PATH in each sandbox", "runtime": "hutch is its own",
	"cgroup-parent": "hutch makes its cgroups itself",
	"isolation":     "each command is in all of the walls that this machine has: hutch doctor",
}

// unknownFlag is a usage error of a flag of a command that docker has.
func unknownFlag(command string, err error, text string) error {
	name, ok := strings.CutPrefix(text, "unknown flag: --")
	if short, isShort := strings.CutPrefix(text, "unknown shorthand flag: '"); isShort {
		name, _, ok = strings.Cut(short, "'")
	}
	if !ok {
		return err
	}
	for _, key := range []string{strings.TrimPrefix(command, "hutch ") + " " + name, name} {
		if say, ok := dockerFlags[key]; ok {
			return hinted(err, say)
		}
	}
	return err
}

// ignored adds flags of docker's that say what is so anyway.
func ignored(fs *pflag.FlagSet, names ...string) {
	for _, name := range names {
		long, short, _ := strings.Cut(name, ",")
		fs.BoolP(long, short, false, "as it is anyway")
		_ = fs.MarkHidden(long)
	}
}
