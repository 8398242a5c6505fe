package define

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"strconv"
	"strings"

	"github.com/hutch-sh/hutch/runtime/api"
)

// supported are the instructions of Dockerfiles that a template can have.
const supported = "FROM, ARG, ENV, RUN, COPY, WORKDIR, USER, EXPOSE, CMD and ENTRYPOINT"

// instead says what to do about what Dockerfiles can say beside that.
var instead = map[string]string{
	"ADD":         "use COPY, and RUN for downloads and archives",
	"HEALTHCHECK": "use ready of a template in YAML, with dockerfile: for the rest",
	"LABEL":       "use labels of a template in YAML, with dockerfile: for the rest",
	"MAINTAINER":  "leave it out",
	"ONBUILD":     "put its instruction into the Dockerfile that begins with this image",
	"SHELL":       `use the exec form: RUN ["bash", "-c", "..."]`,
	"STOPSIGNAL":  "leave it out: hutch run --stop-signal says it for a sandbox, and without it the image does",
	"VOLUME":      "use a mount of the sandbox: -v NAME:PATH",
}

// dockerfile is one that is being read.
type dockerfile struct {
	t       *Template
	given   map[string]string // build args
	base    func() (map[string]string, error)
	baseEnv map[string]string // of the image, once somebody needs it
	global  map[string]string // args before FROM
	args    map[string]string // in force
	env     map[string]string
	used    map[string]bool
	from    bool
	workdir string
	user    string
	entry   []string
	cmd     []string
	hasCmd  bool
	ports   []api.TemplatePort
	bytes   int // of all values so far
}

// keep bounds what the values of a file can grow to by referring to each other.
func (d *dockerfile) keep(line int, value string) error {
	if d.bytes += len(value); d.bytes > MaxFile {
		return wrong(line, "the values of all ENV and ARG have more than %d bytes", MaxFile).
			WithHint("use shorter ones")
	}
	return nil
}

// Dockerfile reads a part of what Dockerfiles can say, and names, with its line, whatever it does not understand. args
// are build args; base, which may be nil, gives the environment of the image, which ENV may refer to.
func Dockerfile(data []byte, args map[string]string, base func(image string) (map[string]string, error)) (*Template,
	error) {
	if len(data) > MaxFile {
		return nil, api.Errorf(api.InvalidArgument, "%d bytes are more than %d", len(data), MaxFile)
	}
	lines, err := join(string(data))
	if err != nil {
		return nil, err
	}
	d := &dockerfile{t: &Template{}, given: args, global: map[string]string{}, args: map[string]string{},
		env: map[string]string{}, used: map[string]bool{}}
	d.base = func() (map[string]string, error) {
		if base == nil {
			return nil, nil
		}
		return base(d.t.Spec.Image)
	}
	for _, l := range lines {
		if err := d.instruction(l); err != nil {
			return nil, err
		}
	}
	if !d.from {
		return nil, api.Errorf(api.InvalidArgument, "there is no FROM").WithHint("begin with FROM IMAGE")
	}
	for name := range args {
		if !d.used[name] {
			return nil, api.Errorf(api.InvalidArgument, "no ARG %s takes the value that is given for it", name).
				WithHint("correct the name, or add ARG %s", name)
		}
	}
	d.finish()
	return d.t, nil
}

// instructionLine is one instruction, whose lines are joined.
type instructionLine struct {
	number int
	text   string
}

// join joins lines that end with a backslash, and leaves out comments.
func join(text string) (list []instructionLine, err error) {
	var open *instructionLine
	number, directives := 0, true
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimRight(line, "\r\n")
		bare := strings.TrimSpace(line)
		if strings.HasPrefix(bare, "#") {
			if name, value, ok := strings.Cut(strings.TrimSpace(bare[1:]), "="); ok && directives &&
				strings.EqualFold(strings.TrimSpace(name), "escape") && strings.TrimSpace(value) != `\` {
				return nil, wrong(number, "the escape character %q is not supported", strings.TrimSpace(value)).
					WithHint("use a backslash")
			}
			continue
		}
		if directives = false; bare == "" {
			continue // as builders do, also between joined lines
		}
		more := strings.HasSuffix(strings.TrimRight(line, " \t"), `\`)
		if more {
			line = strings.TrimSuffix(strings.TrimRight(line, " \t"), `\`)
		}
		if open == nil {
			open = &instructionLine{number, strings.TrimLeft(line, " \t")}
		} else {
			open.text += line
		}
		if !more {
			list, open = append(list, *open), nil
		}
	}
	if open != nil {
		list = append(list, *open)
	}
	return list, nil
}

func (d *dockerfile) instruction(l instructionLine) error {
	name, rest, _ := strings.Cut(strings.ReplaceAll(l.text, "\t", " "), " ")
	name, rest = strings.ToUpper(name), strings.TrimSpace(rest)
	if i := strings.IndexAny(l.text, " \t"); i >= 0 {
		rest = strings.TrimSpace(l.text[i:]) // with its tabs
	}
	do := map[string]func(int, string) error{
		"FROM": d.doFrom, "ARG": d.doArg, "ENV": d.doEnv, "RUN": d.doRun, "COPY": d.doCopy, "WORKDIR": d.doWorkdir,
		"USER":   d.doUser,
		"EXPOSE": d.doExpose, "CMD": d.doCmd, "ENTRYPOINT": d.doEntrypoint,
	}[name]
	switch {
	case do == nil && instead[name] != "":
		return wrong(l.number, "%s is not supported", name).WithHint("%s; a template has %s", instead[name], supported)
	case do == nil:
		return wrong(l.number, "%q is no instruction", name).WithHint("a template has %s", supported)
	case !d.from && name != "FROM" && name != "ARG":
		return wrong(l.number, "%s comes before FROM", name).WithHint("begin with FROM IMAGE")
	case rest == "":
		return wrong(l.number, "%s says nothing", name).WithHint("complete it, or leave it out")
	case strings.Contains(rest, "<<") && (name == "RUN" || name == "COPY") && isHeredoc(rest):
		return wrong(l.number, "here-documents are not supported").
			WithHint("join the lines with backslashes, or copy a file")
	case strings.ContainsRune(rest, 0):
		return wrong(l.number, "%s holds a NUL byte", name).WithHint("leave it out")
	}
	return do(l.number, rest)
}

// isHeredoc says that a word begins with <<NAME.
func isHeredoc(text string) bool {
	for _, w := range strings.Fields(text) {
		if rest, ok := strings.CutPrefix(w, "<<"); ok {
			rest = strings.Trim(strings.TrimPrefix(rest, "-"), `"'`)
			if rest != "" && strings.Trim(rest,
				"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") == "" {
				return true
			}
		}
	}
	return false
}

// flags refuses the options of an instruction.
func noFlags(line int, name, rest string) error {
	if first, _, _ := strings.Cut(rest, " "); strings.HasPrefix(first, "--") {
		return wrong(line, "%s %s is not supported", name, first).WithHint("leave it out")
	}
	return nil
}

func (d *dockerfile) doFrom(line int, rest string) error {
	if d.from {
		return wrong(line, "a second FROM, of a build in several stages, is not supported").
			WithHint("make the first stage a template of its own")
	}
	words := strings.Fields(rest)
	if p, ok := strings.CutPrefix(words[0], "--platform="); ok {
		platform, err := d.expand(line, p, d.global)
		if err != nil {
			return err
		}
		d.t.Spec.Platform, words = platform, words[1:]
	}
	if len(words) == 3 && strings.EqualFold(words[1], "AS") {
		words = words[:1]
	}
	if len(words) != 1 || strings.HasPrefix(words[0], "--") {
		return wrong(line, "FROM %s is not understood", rest).WithHint("write FROM IMAGE")
	}
	image, err := d.expand(line, words[0], d.global)
	switch {
	case err != nil:
		return err
	case image == "":
		return wrong(line, "FROM names no image").WithHint("write FROM IMAGE")
	case image == "scratch":
		return wrong(line, "FROM scratch is not supported").
			WithHint("import a root file system first: hutch image import")
	}
	d.t.Spec.Image, d.from = image, true
	return nil
}

func (d *dockerfile) doArg(line int, rest string) error {
	words, err := split(line, rest)
	if err != nil {
		return err
	}
	to := d.args
	if !d.from {
		to = d.global
	}
	for _, w := range words {
		name, value, has := strings.Cut(w, "=")
		if !isVariable(name) {
			return wrong(line, "%q is no name of an ARG", name).WithHint("use letters, digits and _")
		}
		given, isGiven := d.given[name]
		before, isBefore := d.global[name]
		switch d.used[name] = true; {
		case isGiven:
			to[name] = given
		case has:
			if to[name], err = d.expand(line, value, d.scope()); err != nil {
				return err
			}
		case isBefore:
			to[name] = before
		}
		if err := d.keep(line, to[name]); err != nil {
			return err
		}
	}
	return nil
}

// scope are the variables that may be referred to.
func (d *dockerfile) scope() map[string]string {
	if !d.from {
		return d.global
	}
	all := maps.Clone(d.args)
	maps.Copy(all, d.env) // goes before ARG
	return all
}

func (d *dockerfile) doEnv(line int, rest string) error {
	words, err := split(line, rest)
	if err != nil {
		return err
	}
	if !strings.Contains(words[0], "=") { // the old form: ENV NAME all the rest
		name, value, _ := strings.Cut(strings.ReplaceAll(rest, "\t", " "), " ")
		words = []string{name + "=" + strings.TrimSpace(value)}
	}
	scope, set := d.scope(), map[string]string{} // all of one instruction refer to what was before
	for _, w := range words {
		name, value, has := strings.Cut(w, "=")
		if !has || name == "" {
			return wrong(line, "ENV %s has no =", w).WithHint("write ENV NAME=VALUE")
		}
		if set[name], err = d.expand(line, value, scope); err != nil {
			return err
		}
		if err := d.keep(line, set[name]); err != nil {
			return err
		}
	}
	maps.Copy(d.env, set)
	return nil
}

func (d *dockerfile) doRun(line int, rest string) error {
	if err := noFlags(line, "RUN", rest); err != nil {
		return err
	}
	step := api.TemplateStep{Line: line, Cwd: d.workdir, User: d.user, Env: d.scope()}
	if len(step.Env) == 0 {
		step.Env = nil
	}
	if step.Argv = execForm(rest); step.Argv == nil {
		step.Run = rest
	}
	d.t.Spec.Steps = append(d.t.Spec.Steps, step)
	return nil
}

// execForm is a JSON array of strings; nil for everything else, which is the shell's.
func execForm(text string) (argv []string) {
	if !strings.HasPrefix(text, "[") || json.Unmarshal([]byte(text), &argv) != nil || len(argv) == 0 {
		return nil
	}
	return argv
}

func (d *dockerfile) doCopy(line int, rest string) error {
	if err := noFlags(line, "COPY", rest); err != nil {
		return err
	}
	words := execForm(rest)
	if words == nil {
		var err error
		if words, err = split(line, rest); err != nil {
			return err
		}
	}
	if len(words) < 2 {
		return wrong(line, "COPY needs a source and a target").WithHint("write COPY FILE... FOLDER/")
	}
	scope := d.scope()
	for i := range words {
		var err error
		if words[i], err = d.expand(line, words[i], scope); err != nil {
			return err
		}
	}
	target := words[len(words)-1]
	if !path.IsAbs(target) {
		slash := strings.HasSuffix(target, "/") || target == "." || target == "./"
		if target = path.Join("/", d.workdir, target); slash {
			target = strings.TrimSuffix(target, "/") + "/"
		}
	}
	words[len(words)-1] = target
	c, err := newCopy(words)
	if err != nil {
		return wrong(line, "%v", err)
	}
	c.Step, c.Line = len(d.t.Spec.Steps), line
	d.t.Copies = append(d.t.Copies, *c)
	d.t.Spec.Steps = append(d.t.Spec.Steps,
		api.TemplateStep{Line: line, Copy: &api.TemplateCopy{Sources: c.Sources, Target: c.Target}})
	return nil
}

func (d *dockerfile) doWorkdir(line int, rest string) error {
	dir, err := d.word(line, rest)
	if err != nil {
		return err
	}
	if !path.IsAbs(dir) {
		dir = path.Join("/", d.workdir, dir)
	}
	d.workdir = path.Clean(dir)
	d.t.Spec.Steps = append(d.t.Spec.Steps, api.TemplateStep{Line: line, Folder: d.workdir})
	return nil
}

func (d *dockerfile) doUser(line int, rest string) (err error) {
	d.user, err = d.word(line, rest)
	return err
}

// word is the only argument of an instruction.
func (d *dockerfile) word(line int, rest string) (string, error) {
	words, err := split(line, rest)
	if err != nil {
		return "", err
	}
	w, err := d.expand(line, strings.Join(words, " "), d.scope())
	if err == nil && w == "" {
		err = wrong(line, "%s is empty", rest).WithHint("complete it, or leave it out")
	}
	return w, err
}

func (d *dockerfile) doExpose(line int, rest string) error {
	for _, w := range strings.Fields(rest) {
		w, err := d.expand(line, w, d.scope())
		if err != nil {
			return err
		}
		number, protocol, has := strings.Cut(w, "/")
		port, perr := strconv.Atoi(number)
		if perr != nil || port < 1 || port > 65535 || has && !strings.EqualFold(protocol, "tcp") {
			return wrong(line, "EXPOSE %s is not supported", w).WithHint("a port is a number, of TCP: EXPOSE 8080")
		}
		d.ports = append(d.ports, api.TemplatePort{Port: port})
	}
	return nil
}

func (d *dockerfile) doCmd(_ int, rest string) error {
	d.cmd, d.hasCmd = command(rest), true
	return nil
}

func (d *dockerfile) doEntrypoint(_ int, rest string) error {
	if d.entry = command(rest); !d.hasCmd {
		d.cmd = nil
	}
	return nil
}

// command is the command of CMD or ENTRYPOINT.
func command(rest string) []string {
	if argv := execForm(rest); argv != nil {
		return argv
	}
	if strings.ReplaceAll(rest, " ", "") == "[]" {
		return []string{}
	}
	return []string{"/bin/sh", "-c", rest}
}

// finish makes the rest of the template. A command in a file that exposes ports is a server, which is started and
// waited for; any other is what hutch run starts.
func (d *dockerfile) finish() {
	sp := &d.t.Spec
	sp.Workdir, sp.User = d.workdir, d.user
	if len(d.env) > 0 {
		sp.Env = d.env
	}
	seen := map[int]bool{}
	for _, p := range d.ports {
		if !seen[p.Port] {
			sp.Ports = append(sp.Ports, p)
		}
		seen[p.Port] = true
	}
	if all := append(append([]string{}, d.entry...), d.cmd...); len(sp.Ports) > 0 && len(all) > 0 {
		sp.Start, sp.Ready = &api.TemplateStart{Argv: all}, &api.TemplateReady{Port: sp.Ports[0].Port}
		return
	}
	sp.Entrypoint, sp.Cmd = d.entry, d.cmd
}

func isVariable(name string) bool {
	if name == "" || name[0] >= '0' && name[0] <= '9' {
		return false
	}
	return strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") == ""
}

// lookup finds a variable, the image's own last of all.
func (d *dockerfile) lookup(name string, scope map[string]string) (value string, ok bool, err error) {
	if value, ok = scope[name]; ok || !d.from {
		return value, ok, nil
	}
	if d.baseEnv == nil {
		if d.baseEnv, err = d.base(); err != nil {
			return "", false, fmt.Errorf("the environment of %s, which $%s may be in: %w", d.t.Spec.Image, name, err)
		}
		if d.baseEnv == nil {
			d.baseEnv = map[string]string{}
		}
	}
	value, ok = d.baseEnv[name]
	return value, ok, nil
}
