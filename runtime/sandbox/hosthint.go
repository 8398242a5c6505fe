package sandbox

import (
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/spec"
)

// hostHint is what to do when a command fails that installs something, where the image shows the host's own programs:
// what these say then is about files that they miss, and not why they miss them.
type hostHint struct {
	programs []string // any of these
	words    []string // and one of these behind it, in the same command; none means any
	readOnly bool     // only while /usr cannot be written to
	hint     string
}

var hostHints = []hostHint{
	{
		programs: []string{"apt", "apt-get", "aptitude", "dpkg", "dnf", "yum", "rpm", "zypper", "apk", "pacman"},
		hint: "the image host has the host's programs, but no records of its package manager: " +
			"install in an image of a distribution (hutch run debian:12 ...), or install it on the host",
	},
	{
		programs: []string{"pip", "pip3"}, words: []string{"install"}, readOnly: true,
		hint: "in the image host /usr is read-only: install into a virtual environment (python3 -m venv /tmp/venv && /tmp/venv/bin/pip install ...), " +
			"or run the sandbox with --writable-usr and pip with --break-system-packages",
	},
	{
		programs: []string{"npm", "pnpm", "yarn"}, words: []string{"-g", "--global", "global", "--location=global"},
		readOnly: true,
		hint: "in the image host /usr is read-only: install into the project, into a folder (npm install -g --prefix /tmp/npm ...), " +
			"or run the sandbox with --writable-usr",
	},
	{
		programs: []string{"gem"}, words: []string{"install"}, readOnly: true,
		hint: "in the image host /usr is read-only: gem install --user-install ..., or run the sandbox with --writable-usr",
	},
	{
		programs: []string{"make", "ninja", "cmake", "meson"}, words: []string{"install", "--install"}, readOnly: true,
		hint: "in the image host /usr is read-only: install into another folder (PREFIX, DESTDIR), or run the sandbox with --writable-usr",
	},
}

// hintOf is what to do about a command that failed, if the image host explains that.
func hintOf(argv []string, writableUsr bool) string {
	for command := range strings.FieldsFuncSeq(strings.Join(argv, " "),
		func(r rune) bool { return strings.ContainsRune(";&|()\n`", r) }) {
		words := strings.Fields(command)
		for i, w := range words {
			program := w[strings.LastIndexByte(w, '/')+1:]
			for _, h := range hostHints {
				if !slices.Contains(h.programs, program) || h.readOnly && writableUsr {
					continue
				}
				if len(h.words) == 0 ||
					slices.ContainsFunc(words[i+1:], func(w string) bool { return slices.Contains(h.words, w) }) {
					return h.hint
				}
			}
		}
	}
	return ""
}

// killedByProfile is what a caller's own profile may have to do with SIGSYS.
const killedByProfile = "the sandbox's seccomp profile kills what calls that have SCMP_ACT_KILL, KILL_PROCESS or TRAP in it, and what calls the " +
	"kernel as another architecture does: `journalctl -k -g type=1326` on the host shows the number of the call (syscall=)"

// hint is what to do about a command of the sandbox that ended so.
func (s *Sandbox) hint(exitCode int, argv ...string) string {
	switch {
	case exitCode == 128+int(unix.SIGSYS) && s.spec.Seccomp == api.SeccompCustom:
		return killedByProfile
	case exitCode == 0 || s.spec.Image != spec.HostImage:
		return ""
	}
	return hintOf(argv, s.spec.WritableUsr)
}
