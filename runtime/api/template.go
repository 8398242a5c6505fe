package api

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
)

// The most that a template may have.
const (
	MaxTemplateSteps = 128
	MaxTemplateText  = 64 << 10 // bytes of one command of a template
	// MaxTemplateContext bounds the files that the steps of one template copy, in bytes.
	MaxTemplateContext = 1 << 30
	MaxTemplates       = 1000
	MaxPassEnv         = 64 // names of variables
)

// The seconds that a step, a build and a ready check have when the template says nothing else.
const (
	DefaultStepS  = 1800
	DefaultReadyS = 60
)

// TemplateSpec is what template.create asks for: what sandboxes are made by that name it.
type TemplateSpec struct {
	Name        string `json:"name"` // unique among templates
	Description string `json:"description,omitempty"`
	// Exactly one of Image and Template is what it begins with; of another template it has all that it does not say
	// itself.
	Image    string            `json:"image,omitempty"`
	Template string            `json:"template,omitempty"`
	Platform string            `json:"platform,omitempty"`
	Env      map[string]string `json:"env,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	// PassEnv are names of variables, such as an API key's, that `hutch agent` passes from its user's environment where
	// they are set. Nothing else does.
	PassEnv []string  `json:"pass_env,omitempty"`
	Workdir string    `json:"workdir,omitempty"`
	User    string    `json:"user,omitempty"`
	Limits  Limits    `json:"limits,omitzero"`
	Network NetPolicy `json:"network,omitzero"`
	// WritableUsr and Seccomp are those of a sandbox; steps that install into /usr need the first with the image
	// "host".
	WritableUsr bool           `json:"writable_usr,omitempty"`
	Seccomp     SeccompProfile `json:"seccomp,omitempty"`
	// Steps are run once, in a sandbox of what the template begins with; what they have written is below all sandboxes
	// of it.
	Steps []TemplateStep `json:"steps,omitempty"`
	Build TemplateBuild  `json:"build,omitzero"`
	// Entrypoint and Cmd are the command of `hutch run` without one, in the place of the image's. An empty list, [], is
	// none.
	Entrypoint []string `json:"entrypoint,omitzero"`
	Cmd        []string `json:"cmd,omitzero"`
	// Start runs in the background of each sandbox, Ready is waited for before somebody gets it, and Ports are then
	// reached from the host.
	Start *TemplateStart `json:"start,omitempty"`
	Ready *TemplateReady `json:"ready,omitempty"`
	Ports []TemplatePort `json:"ports,omitempty"`
	// PoolSize is how many sandboxes wait in a pool of the template's name, with all that is started in them ready.
	PoolSize int `json:"pool_size,omitempty"`
}

// TemplateStep is one step of a build: exactly one of Run, Argv, Copy and Folder. It runs as the user of the image that
// the template begins with, mostly root, unless it names one.
type TemplateStep struct {
	Run  string        `json:"run,omitempty"`  // for the sandbox's shell
	Argv []string      `json:"argv,omitempty"` // a command
	Copy *TemplateCopy `json:"copy,omitempty"`
	// Folder is one to be made, with those above it, where it is missing.
	Folder string `json:"folder,omitempty"`
	// Env, Cwd and User are the step's own, over those of the template; Cwd is made where it is missing.
	Env      map[string]string `json:"env,omitempty"`
	Cwd      string            `json:"cwd,omitempty"`
	User     string            `json:"user,omitempty"`
	TimeoutS float64           `json:"timeout_s,omitempty"` // default DefaultStepS
	Line     int               `json:"line,omitempty"`      // of the file that has it, for errors
}

// String is the step on one line, for people.
func (s *TemplateStep) String() string {
	text := strings.Join(s.Argv, " ")
	switch {
	case s.Copy != nil:
		text = "copy " + strings.Join(append(slices.Clone(s.Copy.Sources), s.Copy.Target), " ")
	case s.Folder != "":
		text = "folder " + s.Folder
	case s.Run != "":
		text = s.Run
	}
	const most = 200
	if text = strings.Join(strings.Fields(text), " "); len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "..."
	}
	return text
}

// TemplateCopy puts files of the client's into the sandbox: those of template.create's archive whose names begin with
// the number of the step, from 0, and a slash.
type TemplateCopy struct {
	Sources []string `json:"sources,omitempty"` // what they are called, for people
	Target  string   `json:"target"`            // the folder that they are put in, absolute; made where it is missing
	// Digest is that of names, modes and contents, which template.create sets.
	Digest string `json:"digest,omitempty"`
}

// TemplateBuild is what steps have and sandboxes of the template need not have.
type TemplateBuild struct {
	Network NetPolicy `json:"network,omitzero"` // default: the template's
	Limits  Limits    `json:"limits,omitzero"`  // the same, each
}

// TemplateStart is a command: exactly one of Argv and Command.
type TemplateStart struct {
	Argv    []string          `json:"argv,omitempty"`
	Command string            `json:"command,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	Cwd     string            `json:"cwd,omitempty"`
	User    string            `json:"user,omitempty"`
}

// TemplateReady is what is waited for: exactly one of Port, Argv and Command.
type TemplateReady struct {
	Port     int      `json:"port,omitempty"`      // that something listens on
	Argv     []string `json:"argv,omitempty"`      // a command that succeeds, tried again and again
	Command  string   `json:"command,omitempty"`   // the same for the shell
	TimeoutS float64  `json:"timeout_s,omitempty"` // default DefaultReadyS
}

// TemplatePort is a port that the host reaches, as port.expose makes it.
type TemplatePort struct {
	Port    int    `json:"port"`
	Address string `json:"address,omitempty"` // default: a free port of 127.0.0.1, which only one sandbox can have otherwise
	Token   bool   `json:"token,omitempty"`   // whether who connects must show one
}

// Template is what is known of one.
type Template struct {
	TemplateSpec
	Created time.Time `json:"created,omitzero"`
	// Shipped says that it comes with hutch or from the configuration file.
	Shipped bool `json:"shipped,omitempty"`
	// Built is what came of its steps; nil where there are none, or before somebody needs them.
	Built *TemplateBuilt `json:"built,omitempty"`
}

// TemplateBuilt is what came of steps.
type TemplateBuilt struct {
	// Image is the reference of what was committed; "" of steps over the image "host", of which no image can be made:
	// their files are kept beside it.
	Image string    `json:"image,omitempty"`
	Key   string    `json:"key"`  // digest of what the steps began with, and of all that makes a difference to them
	Base  string    `json:"base"` // what they began with
	Time  time.Time `json:"time"`
}

// TemplateCreateParams are template.create's params.
type TemplateCreateParams struct {
	TemplateSpec
	// Replace puts it in the place of one of that name.
	Replace bool `json:"replace,omitempty"`
	// Context is the index of an fd: the read end of a pipe with a tar archive of the files that steps copy.
	Context *int `json:"context,omitempty"`
	FDs     int  `json:"fds,omitempty"`
}

// TemplateParams name a template.
type TemplateParams struct {
	Template string `json:"template"`
}

// TemplateBuildParams are template.build's params.
type TemplateBuildParams struct {
	Template string     `json:"template"`
	NoCache  bool       `json:"no_cache,omitempty"` // run the steps although nothing has changed
	Pull     PullPolicy `json:"pull,omitempty"`     // of the image that it begins with; default "missing"
	// Progress asks for image.progress, and template.step: of a step that begins, and of what it writes.
	Progress bool `json:"progress,omitempty"`
}

// TemplateBuildResult is template.build's result.
type TemplateBuildResult struct {
	Template Template `json:"template"`
	Ran      int      `json:"ran"`    // steps that were run
	Cached   bool     `json:"cached"` // there were steps, and nothing was to be done
}

// Templates is template.list's result.
type Templates struct {
	Templates []Template `json:"templates"` // by name
}

// TemplateRemoved is template.remove's result.
type TemplateRemoved struct {
	Image string `json:"image,omitempty"` // that went with it
	// Sandboxes of it go on; those that waited in its pool are removed.
	Sandboxes int `json:"sandboxes"`
	Pooled    int `json:"pooled"` // sandboxes of it that waited in pools
}

// FailedStep is what failed in a sandbox on behalf of a template, part of an error's data.
type FailedStep struct {
	What     string  `json:"what"`           // "step", "start" or "ready"
	Step     int     `json:"step,omitempty"` // from 1
	Line     int     `json:"line,omitempty"`
	Text     string  `json:"text,omitempty"`
	ExitCode int     `json:"exit_code"`
	Verdict  Verdict `json:"verdict,omitempty"`
	Output   string  `json:"output,omitempty"` // the end of what it has written
}

// Validate refuses a template that no sandbox could be made by. The error is an *Error with the field at fault.
func (t *TemplateSpec) Validate() error {
	if !isName(t.Name) {
		return invalid("name", "%q is not a name", t.Name).
			WithHint("use 1 to 63 of a-z A-Z 0-9 _ . - and start with a letter or digit")
	}
	if t.Template == t.Name {
		return invalid("template", "template %q cannot begin with itself", t.Name).
			WithHint("name another template, or an image")
	}
	if t.Template != "" && !isName(t.Template) {
		return invalid("template", "%q is no name of a template", t.Template).WithHint("hutch template ls lists them")
	}
	if len(t.Description) > maxComment {
		return invalid("description", "longer than %d bytes", maxComment).WithHint("keep it short")
	}
	sp := t.sandbox()
	if err := sp.Validate(); err != nil {
		return err
	}
	if err := t.validatePassEnv(); err != nil {
		return err
	}
	if len(t.Steps) > MaxTemplateSteps {
		return invalid("steps", "%d steps are more than %d", len(t.Steps), MaxTemplateSteps).
			WithHint("put several commands into one step, with && between them")
	}
	for i := range t.Steps {
		if err := t.Steps[i].validate(fmt.Sprintf("steps[%d]", i)); err != nil {
			return err
		}
	}
	if err := t.Build.validate(); err != nil {
		return err
	}
	return t.validateStart()
}

func (t *TemplateSpec) validatePassEnv() error {
	if len(t.PassEnv) > MaxPassEnv {
		return invalid("pass_env", "%d names are more than %d", len(t.PassEnv), MaxPassEnv)
	}
	for i, name := range t.PassEnv {
		if name == "" || len(name) > 255 || strings.Trim(name, letters+digits+"_") != "" {
			return invalid(fmt.Sprintf("pass_env[%d]", i), "%.300q is no name of a variable", name).
				WithHint("names have letters, digits and _; values are never written into a template")
		}
	}
	return nil
}

// sandbox is the part that sandbox.create takes, too.
func (t *TemplateSpec) sandbox() Spec {
	return Spec{
		Image: t.Image, Template: t.Template, Platform: t.Platform, Env: t.Env, Labels: t.Labels, Workdir: t.Workdir,
		User:   t.User,
		Limits: t.Limits, Network: t.Network, WritableUsr: t.WritableUsr, Seccomp: t.Seccomp,
	}
}

func (b *TemplateBuild) validate() error {
	sp := Spec{Image: "host", Limits: b.Limits, Network: b.Network}
	if err := sp.Validate(); err != nil {
		if e, ok := err.(*Error); ok { //nolint:errorlint // it is Validate's own
			e.Field = "build." + e.Field
		}
		return err
	}
	return nil
}

func (t *TemplateSpec) validateStart() error {
	if t.Start != nil {
		if err := checkCommand("start", t.Start.Argv, t.Start.Command); err != nil {
			return err
		}
		if err := checkRunAs("start", t.Start.Env, t.Start.Cwd, t.Start.User); err != nil {
			return err
		}
	}
	if err := t.Ready.validate(); err != nil {
		return err
	}
	seen := map[int]bool{}
	for i, p := range t.Ports {
		field := fmt.Sprintf("ports[%d]", i)
		if err := checkPort(p.Port); err != nil || seen[p.Port] {
			return invalid(field+".port", "%d is no TCP port, or is there twice", p.Port).
				WithHint("use 1 to 65535, each once")
		}
		seen[p.Port] = true
		if _, err := ParsePortAddress(p.Address); err != nil {
			return err
		}
	}
	if len(t.Ports) > MaxPorts {
		return invalid("ports", "%d are more than %d", len(t.Ports), MaxPorts).
			WithHint("expose others with port.expose")
	}
	if t.PoolSize < 0 || t.PoolSize > MaxPoolSize {
		return invalid("pool_size", "%d sandboxes", t.PoolSize).WithHint("use 0, for no pool, to %d", MaxPoolSize)
	}
	for name, list := range map[string][]string{"entrypoint": t.Entrypoint, "cmd": t.Cmd} {
		if err := checkWords(name, list); err != nil {
			return err
		}
	}
	return nil
}

func (r *TemplateReady) validate() error {
	if r == nil {
		return nil
	}
	if r.TimeoutS < 0 || r.TimeoutS > MaxSeconds {
		return invalid("ready.timeout_s", "%g", r.TimeoutS).
			WithHint("give seconds, 0 for the default of %d", DefaultReadyS)
	}
	if r.Port != 0 {
		if len(r.Argv) > 0 || r.Command != "" {
			return invalid("ready", "has a port and a command").WithHint("give one of port, argv and command")
		}
		return checkPort(r.Port)
	}
	return checkCommand("ready", r.Argv, r.Command)
}

// checkCommand wants exactly one of two ways to name a command.
func checkCommand(field string, argv []string, command string) error {
	if (len(argv) > 0) == (command != "") {
		return invalid(field, "has %d words of argv, and the command %q", len(argv), command).
			WithHint("give exactly one of argv and command")
	}
	return checkWords(field, append(slices.Clone(argv), command))
}

func checkWords(field string, list []string) error {
	n := 0
	for _, w := range list {
		if strings.ContainsRune(w, 0) {
			return invalid(field, "holds a NUL byte").WithHint("leave it out")
		}
		n += len(w)
	}
	if n > MaxTemplateText {
		return invalid(field, "%d bytes are more than %d", n, MaxTemplateText).
			WithHint("put it into a file, and copy that")
	}
	return nil
}

func checkRunAs(field string, env map[string]string, cwd, user string) error {
	if err := checkEnv(field+".env", env); err != nil {
		return err
	}
	if err := checkAbs(field+".cwd", cwd); err != nil {
		return err
	}
	return checkUser(field+".user", user)
}

func (s *TemplateStep) validate(field string) error {
	if s.TimeoutS < 0 || s.TimeoutS > MaxSeconds {
		return invalid(field+".timeout_s", "%g", s.TimeoutS).
			WithHint("give seconds, 0 for the default of %d", DefaultStepS)
	}
	if err := checkRunAs(field, s.Env, s.Cwd, s.User); err != nil {
		return err
	}
	kinds := 0
	for _, has := range []bool{len(s.Argv) > 0, s.Run != "", s.Copy != nil, s.Folder != ""} {
		if has {
			kinds++
		}
	}
	switch {
	case kinds != 1:
		return invalid(field, "has %d of run, argv, copy and folder", kinds).
			WithHint("give exactly one; make several steps of several")
	case s.Folder != "":
		return checkAbs(field+".folder", s.Folder)
	case s.Copy == nil:
		return checkCommand(field, s.Argv, s.Run)
	}
	if !path.IsAbs(s.Copy.Target) {
		return invalid(field+".copy.target", "%q is not an absolute path", s.Copy.Target).WithHint("start it with /")
	}
	return checkWords(field+".copy", append(slices.Clone(s.Copy.Sources), s.Copy.Target))
}

// Validate refuses what no template could be.
func (p *TemplateCreateParams) Validate() error {
	if err := p.TemplateSpec.Validate(); err != nil {
		return err
	}
	copies := slices.ContainsFunc(p.Steps, func(s TemplateStep) bool { return s.Copy != nil })
	switch {
	case copies && p.Context == nil:
		return invalid("context", "missing, and steps copy files").
			WithHint("send a tar archive of them with the request: hutch template create does")
	case !copies && p.Context != nil:
		return invalid("context", "given, and no step copies files").WithHint("leave it out")
	}
	return nil
}

// StepProgress tells of a step of a build.
type StepProgress struct {
	Template string `json:"template"`
	Step     int    `json:"step"`             // from 1; Steps + 1 is the commit
	Steps    int    `json:"steps"`            // how many there are
	Text     string `json:"text,omitempty"`   // of one that begins
	Output   string `json:"output,omitempty"` // what it has written since
}
