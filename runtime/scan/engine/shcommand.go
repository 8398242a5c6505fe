package engine

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// shCommand is a command with where its input comes from.
type shCommand struct {
	words  []shWord
	piped  bool             // from another command
	here   *shWord          // from a text
	hereAt *syntax.Redirect // where that is
	at     *syntax.CallExpr // nil of a command that no shell reads
	file   *shFile
}

// about reports the command.
func (c *shCommand) about(r rule) {
	if c.at == nil {
		c.file.report(r, 0, 0, c.file.src)
		return
	}
	c.file.about(r, c.at)
}

// inside looks through code that the command runs.
func (c *shCommand) inside(language, code string) {
	if c.at == nil {
		c.file.inside(language, code, 0, 0)
		return
	}
	line, col := c.file.where(c.at)
	c.file.inside(language, code, line, col)
}

// run reports what a command does.
func (f *shFile) run(c *shCommand) {
	if len(c.words) == 0 {
		return
	}
	first := c.words[0]
	if first.dynamic {
		c.about(shVariable)
		return
	}
	if first.pieces {
		c.about(shPieces)
	}
	name := base(first.text)
	if first.text == "" || c.at == nil && strings.Contains(first.text, "/") &&
		!strings.HasPrefix(first.text, "/bin/") && !strings.HasPrefix(first.text, "/usr/bin/") ||
		strings.HasPrefix(first.text, ".") && name != "." || strings.HasPrefix(first.text, "/") &&
		!standard(first.text) {
		c.about(shUnknown) // whatever its name says
		return
	}
	if f.functions[first.text] {
		return // what it does is reported where it stands
	}
	if skip, ok := shWrappers[name]; ok {
		f.wrapped(c, name, skip)
		return
	}
	if in, ok := shInterpreters[name]; ok {
		f.interpret(c, in.language, in.code)
		return
	}
	switch {
	case name == "eval" || name == "source" || name == ".":
		c.about(shEval)
		f.text(c, "shell", c.words[1:])
	case name == "trap" && len(c.words) > 1:
		c.about(shRules.exact[name])
		f.text(c, "shell", c.words[1:2])
	case name == "find":
		f.find(c)
	case shPure[name]:
		f.pure(c, name)
	case shReaders[name]:
		f.reads(c, c.words[1:])
	default:
		f.known(c, name)
	}
}

// standard says that a program lies where a system keeps them.
func standard(p string) bool {
	for _, dir := range []string{"/bin/", "/usr/bin/", "/sbin/", "/usr/sbin/", "/usr/local/bin/"} {
		if rest, ok := strings.CutPrefix(p, dir); ok && !strings.Contains(rest, "/") {
			return true
		}
	}
	return false
}

// text looks through words that are run as code, if they can be told.
func (f *shFile) text(c *shCommand, language string, words []shWord) {
	var all []string
	for _, w := range words {
		if w.dynamic {
			return
		}
		all = append(all, w.text)
	}
	if len(all) > 0 && c.words[0].text != "source" && c.words[0].text != "." {
		c.inside(language, strings.Join(all, " "))
	}
}

func (f *shFile) known(c *shCommand, name string) {
	r, ok := shRules.exact[name]
	if !ok {
		r, ok = shRules.prefix(name)
	}
	if !ok {
		r = shUnknown
	}
	c.about(r)
}

// pure reports the few arguments of harmless commands that are not.
func (f *shFile) pure(c *shCommand, name string) {
	if name == "cd" || name == "pushd" || name == "popd" {
		f.leaves(c, name)
		return
	}
	for i, w := range c.words[1:] {
		switch {
		case name == "hash" && len(c.words) > 1 && strings.HasPrefix(w.text, "-"):
			c.about(shRename)
		case shAssigns[name] && (shVars[w.text] || name == "printf" && shVars[strings.TrimPrefix(w.text, "-v")]):
			c.about(shVar)
		case (shAssigns[name] || shSubscripts[name]) && subscript(w.text):
			c.about(shArithText)
		case name == "printf" && c.words[i].text == "-v" && w.dynamic, (name == "test" || name == "[") &&
			c.words[i].text == "-v" && w.dynamic:
			c.about(shIndirect)
		case name == "jobs" && strings.HasPrefix(w.text, "-") && strings.Contains(w.text, "x"):
			c.about(shEval)
		case (name == "read" || name == "mapfile" || name == "readarray") && w.dynamic && !valued[c.words[i].text],
			name == "wait" && c.words[i].text == "-p" && w.dynamic, name == "unset" && w.dynamic:
			c.about(shIndirect)
		case (name == "mapfile" || name == "readarray") && strings.HasPrefix(w.text, "-") &&
			strings.Contains(w.text, "C"):
			c.about(shEval)
		case (name == "export" || name == "declare" || name == "local" || name == "readonly" || name == "typeset") &&
			w.dynamic && !named(w.text):
			c.about(shIndirect)
		}
	}
}

// valued are options of read and mapfile whose values are no names.
var valued = setOf(`-p -t -n -N -d -u -i -O -s -c`)

// subscript says that a text has an array subscript in it that bash evaluates, with the commands that it substitutes
// there.
func subscript(text string) bool {
	_, in, ok := strings.Cut(text, "[")
	return ok && strings.ContainsAny(in, "$`")
}

// leaves reports a change of the working folder that leads out of the first one, as far as one can see.
func (f *shFile) leaves(c *shCommand, name string) {
	var to []shWord
	for _, w := range c.words[1:] {
		if w.dynamic || w.text == "-" || !strings.HasPrefix(w.text, "-") {
			to = append(to, w)
		}
	}
	if name == "cd" && len(to) == 1 && !to[0].dynamic && to[0].text != "-" && to[0].text != "" &&
		!elsewhere(to[0].text) {
		return
	}
	c.about(shLeave)
}

// reads reports which files a command reads, and the options by which readers do more than that.
func (f *shFile) reads(c *shCommand, words []shWord) {
	name := base(c.words[0].text)
	r := shRead
	for i, w := range words {
		switch {
		case w.dynamic || elsewhere(w.text):
			r = shElsewhere
		case name == "sort" && (option(w.text, 'o') || strings.HasPrefix(w.text, "--o") ||
			strings.HasPrefix(w.text, "--c")), (name == "iconv" || name == "tree") && (option(w.text, 'o') ||
			strings.HasPrefix(w.text, "--o")), name == "yq" &&
			(option(w.text, 'i') || strings.HasPrefix(w.text, "--i")),
			name == "rg" && strings.HasPrefix(w.text, "--pre"), name == "xxd" && strings.HasPrefix(w.text, "-r"),
			(name == "uniq" || name == "xxd") && i > 0 && !strings.HasPrefix(w.text, "-") &&
				!strings.HasPrefix(words[i-1].text, "-"): // a second file is written
			c.about(shWrite)
		case (name == "less" || name == "more") && strings.HasPrefix(w.text, "+"):
			c.about(shEval)
		}
	}
	c.about(r)
}

// option says that a word has a short option in it, alone or among others.
func option(word string, letter byte) bool {
	return len(word) > 1 && word[0] == '-' && word[1] != '-' && strings.IndexByte(word, letter) > 0
}

func (f *shFile) find(c *shCommand) {
	for i, w := range c.words {
		switch w.text {
		case "-exec", "-execdir", "-ok", "-okdir":
			c.about(shFind)
			inner := *c
			inner.words, inner.piped, inner.here = c.words[i+1:], false, nil
			f.run(&inner)
			return
		case "-delete", "-fprint", "-fprintf", "-fls", "-fprint0":
			c.about(shFind)
			return
		}
	}
	f.reads(c, c.words[1:])
}

// wrapped looks at the command that another one runs.
func (f *shFile) wrapped(c *shCommand, name string, skip int) {
	switch name {
	case "sudo", "doas", "su", "runuser", "setpriv":
		c.about(shIdentity)
	case "unshare", "chroot", "strace", "ltrace", "script", "ld.so":
		c.about(shWrapper)
	}
	rest := c.words[1:]
	for len(rest) > 0 {
		w := rest[0]
		switch {
		case strings.HasPrefix(w.text, "-"):
			if name == "env" && (strings.HasPrefix(w.text, "-S") || strings.HasPrefix(w.text, "--split")) {
				c.about(shCodeDyn)
			}
			if name == "command" && (w.text == "-v" || w.text == "-V") {
				return
			}
			// An option may have an argument of its own: what follows is looked at as one and as the other.
			if len(w.text) == 2 && len(rest) > 2 && !rest[1].dynamic && !f.isCommand(rest[1].text) {
				rest = rest[1:]
			}
		case name == "env" && strings.Contains(w.text, "="):
			if v, _, _ := strings.Cut(w.text, "="); shVars[v] {
				c.about(shVar)
			}
		case skip > 0:
			skip--
		default:
			inner := *c
			inner.words = rest
			if name == "xargs" || name == "parallel" { // arguments come from elsewhere
				inner.words = append(append([]shWord{}, rest...), shWord{dynamic: true})
				inner.piped = false
			}
			f.run(&inner)
			return
		}
		rest = rest[1:]
	}
	if name == "env" {
		c.about(shRules.exact["env"])
	}
	if name == "sudo" || name == "su" || name == "script" || name == "parallel" || name == "watch" {
		f.stdin(c, "shell")
	}
}

// isCommand says that something is known by this name.
func (f *shFile) isCommand(name string) bool {
	name = base(name)
	_, wraps := shWrappers[name]
	_, interprets := shInterpreters[name]
	_, rule := shRules.exact[name]
	return wraps || interprets || rule || shPure[name] || shReaders[name] || name == "find" || f.functions[name]
}

// interpret reports what an interpreter runs. code are the letters of the options that a text follows.
func (f *shFile) interpret(c *shCommand, language, code string) {
	for i, w := range c.words[1:] {
		rest := c.words[i+2:]
		switch {
		case w.dynamic:
			c.about(shCodeDyn)
			return
		case w.text == "-" || w.text == "-s" && language == "shell":
			f.stdin(c, language)
			return
		case w.text == "--version" || w.text == "-V" && language == "python" || w.text == "-v" &&
			language == "javascript":
			return
		case w.text == "-m" && language == "python":
			c.about(shScript)
			return
		case strings.HasPrefix(w.text, "--eval="), strings.HasPrefix(w.text, "--print="):
			_, text, _ := strings.Cut(w.text, "=")
			f.code(c, language, &shWord{text: text})
			return
		case w.text == "--eval" || w.text == "--print" || strings.HasPrefix(w.text, "-") &&
			!strings.HasPrefix(w.text, "--") && strings.ContainsAny(w.text, code):
			at := strings.IndexAny(w.text, code)
			switch {
			case language != "shell" && !strings.HasPrefix(w.text, "--") && at >= 0 && at+1 < len(w.text) &&
				language != "javascript":
				// python3 -c'...'
				f.code(c, language, &shWord{text: w.text[at+1:]})
			case len(rest) > 0:
				f.code(c, language, &rest[0])
			default:
				c.about(shCodeDyn)
			}
			return
		case strings.HasPrefix(w.text, "-"), strings.HasPrefix(w.text, "+"):
		case w.text == "/dev/stdin" || strings.HasPrefix(w.text, "/dev/fd/") || strings.HasPrefix(w.text, "/proc/"):
			f.stdin(c, language)
			c.about(shCodeDyn)
			return
		default:
			c.about(shScript)
			return
		}
	}
	f.stdin(c, language)
}

// stdin reports what an interpreter reads from its input.
func (f *shFile) stdin(c *shCommand, language string) {
	switch {
	case c.here != nil && !c.here.dynamic && language != "":
		f.about(shHere, c.hereAt)
		c.inside(language, c.here.text)
	case c.here != nil:
		f.about(shHereDyn, c.hereAt)
	case c.piped:
		c.about(shPiped)
	default:
		c.about(shCodeDyn)
	}
}

// code reports a text that an interpreter runs.
func (f *shFile) code(c *shCommand, language string, w *shWord) {
	if w.dynamic || language == "" {
		c.about(shCodeDyn)
		return
	}
	c.about(shCode)
	c.inside(language, w.text)
}
