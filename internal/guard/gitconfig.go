package guard

import (
	"slices"
	"strings"
)

// Named is what a git configuration names: files that git obeys as well.
type Named struct {
	Hooks []string // folders of hooks (core.hooksPath), relative to the top of the working tree
	// Commands are files that git runs (core.fsmonitor, filters and the like), by their paths, relative as Hooks.
	Commands []string
	Worktree string // core.worktree, relative to the folder of the repository
	// configuration (include.path, includeIf.*.path), relative to the folder of the file that names it
	Includes []string
}

// GitConfig reads what a git configuration names, as git does (git-config(1), CONFIGURATION FILE). What git would
// refuse is passed over: a file that it does not read does not matter, and one that it reads all the same must be read
// here, too.
func GitConfig(text []byte) Named {
	var n Named
	section := ""
	rest := strings.TrimPrefix(string(text), "\ufeff")
	for rest != "" {
		rest = strings.TrimLeft(rest, " \t\r\n\v\f")
		switch {
		case rest == "":
		case rest[0] == '#' || rest[0] == ';':
			_, rest, _ = strings.Cut(rest, "\n")
		case rest[0] == '[':
			section, rest = gitSection(rest[1:])
		default:
			var key, value string
			key, value, rest = gitVariable(rest)
			if value == "" {
				continue
			}
			switch {
			case section == "core" && key == "hookspath":
				n.Hooks = append(n.Hooks, value)
			case section == "core" && key == "worktree":
				n.Worktree = value
			case section == "core" &&
				slices.Contains([]string{"fsmonitor", "sshcommand", "pager", "editor", "askpass", "gitproxy"}, key),
				section == "credential" || section == "credential.", section == "filter.", section == "diff" ||
					section == "diff.", section == "merge.", section == "gpg" || section == "gpg.",
				section == "pager", section == "sequence", section == "uploadpack":
				if command := strings.TrimPrefix(strings.TrimSpace(value), "!"); strings.Contains(command, "/") {
					n.Commands = append(n.Commands,
						strings.FieldsFunc(command,
							func(c rune) bool { return strings.ContainsRune(" \t;|&<>()\"'`", c) })...)
				}
			case (section == "include" || section == "includeif.") && key == "path":
				n.Includes = append(n.Includes, value)
			}
		}
	}
	// Of a command the words that can be paths in the folder.
	n.Commands = slices.DeleteFunc(n.Commands, func(word string) bool {
		return !strings.Contains(word, "/") ||
			strings.HasPrefix(word, "-")
	})
	return n
}

// gitSection reads a header behind its bracket: the name of the section in lower case, with a dot behind it where there
// is a subsection, whose name is left out, and what follows.
func gitSection(s string) (name, rest string) {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\n':
			return strings.ToLower(name), s[i+1:]
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
			if name != "" && !strings.HasSuffix(name, ".") {
				name += "."
			}
		case quoted:
		case c == ']':
			return strings.ToLower(strings.TrimSpace(name)), s[i+1:]
		case c == ' ' || c == '\t':
			// a subsection follows
		default:
			name += string(rune(c))
		}
		if len(name) > 64 {
			name = name[:64]
		}
	}
	return strings.ToLower(name), ""
}

// gitVariable reads a variable and its value, which is "" where there is none, and what follows.
func gitVariable(s string) (key, value, rest string) {
	i := strings.IndexAny(s, "=\n#;")
	if i < 0 {
		return strings.ToLower(strings.TrimSpace(s)), "", ""
	}
	key = strings.ToLower(strings.TrimSpace(s[:i]))
	if s[i] != '=' {
		_, rest, _ = strings.Cut(s[i:], "\n")
		return key, "", rest
	}
	s = s[i+1:]
	var b strings.Builder
	quoted, kept := false, 0 // kept: without the space at its end
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c == '\r' && i+1 < len(s) && s[i+1] == '\n':
			continue
		case c == '\n':
			return key, b.String()[:kept], s[i+1:]
		case !quoted && (c == ' ' || c == '\t'):
			if b.Len() > 0 {
				b.WriteByte(c)
			}
			continue
		case !quoted && (c == '#' || c == ';'):
			_, rest, _ = strings.Cut(s[i:], "\n")
			return key, b.String()[:kept], rest
		case c == '"':
			quoted = !quoted
			continue
		case c == '\\' && i+1 < len(s):
			i++
			switch s[i] {
			case '\n':
				continue
			case '\r':
				if i+1 < len(s) && s[i+1] == '\n' {
					i++
				}
				continue
			case 't':
				c = '\t'
			case 'n':
				c = '\n'
			case 'b':
				c = '\b'
			default:
				c = s[i]
			}
		}
		b.WriteByte(c)
		kept = b.Len()
	}
	return key, b.String()[:kept], ""
}
