package e2b

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
	"github.com/hutch-sh/hutch/runtime/rest"
)

// languages are those of code.run by the names that E2B has for them.
var languages = map[string]string{"": "python", "python": "python", "python3": "python", "javascript": "javascript",
	"js": "javascript", "bash": "shell", "sh": "shell", "shell": "shell", "go": "go", "ruby": "ruby"}

// defaultContext names the context of a language that nobody has named.
const defaultContext = "default"

// contexts remembers of contexts what nobody else knows: only for people, and gone with this process.
type contexts struct {
	mu   sync.Mutex
	cwd  map[string]string // of a context, by its sandbox and id
	runs map[string]int    // of an interpreter, by its exec
}

// maxContexts bounds what is remembered.
const maxContexts = 10_000

func (c *contexts) noteCwd(key, cwd string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cwd == nil || len(c.cwd) >= maxContexts {
		c.cwd = map[string]string{}
	}
	c.cwd[key] = cwd
}

func (c *contexts) cwdOf(key, otherwise string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cwd, ok := c.cwd[key]; ok {
		return cwd
	}
	return otherwise
}

// count counts a run of an interpreter.
func (c *contexts) count(exec string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.runs == nil || len(c.runs) >= maxContexts {
		c.runs = map[string]int{}
	}
	c.runs[exec]++
	return c.runs[exec]
}

// codeContext is an interpreter that is kept.
type codeContext struct {
	ID       string `json:"id"`
	Language string `json:"language"`
	Cwd      string `json:"cwd"`
}

// interpreter is what E2B's server for code in a sandbox serves.
type interpreter struct{ *Server }

func (s interpreter) routes() map[string]boxHandler {
	return map[string]boxHandler{
		"POST /execute":                    s.execute,
		"GET /contexts":                    s.listContexts,
		"POST /contexts":                   s.makeContext,
		"DELETE /contexts/{context}":       s.endContext,
		"POST /contexts/{context}/restart": s.restartContext,
	}
}

// kept lists the contexts of a sandbox.
func (s interpreter) kept(ctx context.Context, c *call) ([]codeContext, error) {
	all, err := rest.Do(ctx, s.rest, api.CallCodeContexts, api.SandboxParams{Sandbox: c.sb.ID})
	list := make([]codeContext, 0, len(all.Contexts))
	for _, k := range all.Contexts {
		list = append(list, codeContext{idOfContext(k.Language, k.Context), k.Language,
			s.contexts.cwdOf(c.sb.ID+k.Context, c.sb.Workdir)})
	}
	standing := codeContext{idOfContext("python", ""), "python", c.sb.Workdir}
	if !slices.ContainsFunc(list, func(k codeContext) bool { return k.ID == standing.ID }) {
		list = slices.Insert(list, 0, standing) // code may be sent to it: it begins then
	}
	return list, err
}

// idOfContext is the id of a context: that of a language's default one begins with it.
func idOfContext(language, name string) string {
	if name == defaultContext || name == "" {
		return defaultContext + "-" + language
	}
	return name
}

// nameOfContext is the other way round.
func nameOfContext(id string) string {
	if strings.HasPrefix(id, defaultContext+"-") {
		return ""
	}
	return id
}

// contextOf finds the context that the path of a request names.
func (s interpreter) contextOf(ctx context.Context, c *call, id string) (codeContext, error) {
	all, err := s.kept(ctx, c)
	for _, k := range all {
		if k.ID == id {
			return k, nil
		}
	}
	if err == nil {
		err = api.Errorf(api.NotFound, "Context %s not found", id)
	}
	return codeContext{}, err
}

// run runs code that is ours or the client's. tell, which may be nil, gets what it writes.
func (s interpreter) run(ctx context.Context, c *call, language, id, code string,
	tell func(api.Progress)) (api.CodeResult, error) {
	p := api.CodeParams{Sandbox: c.sb.ID, Language: language, Code: code, User: c.user,
		TimeoutS: api.MaxCodeTimeoutS, OutputBytes: api.DefaultOutputBytes, Progress: tell != nil}
	if api.KeepsContext(language) {
		p.Context = nameOfContext(id)
	} else {
		p.Fresh = true
	}
	return rest.Do(ctx, s.rest, api.CallCodeRun, p, client.WithProgress(tell))
}

// ours runs code that prepares an interpreter.
func (s interpreter) ours(ctx context.Context, c *call, language, id, code string) error {
	res, err := s.run(ctx, c, language, id, code, nil)
	if err == nil && res.Error != nil {
		err = api.Errorf(api.InvalidArgument, "%s: %s", res.Error.Name, res.Error.Value)
	}
	return err
}

// begin begins a context in a folder.
func (s interpreter) begin(ctx context.Context, c *call, k codeContext) error {
	where, err := json.Marshal(k.Cwd) // a literal in both languages
	if err != nil {
		return err
	}
	code := fmt.Sprintf("import os; os.chdir(%s)", where)
	if k.Language == "javascript" {
		code = fmt.Sprintf("process.chdir(%s)", where)
	}
	return s.ours(ctx, c, k.Language, k.ID, code)
}

func (s interpreter) listContexts(w http.ResponseWriter, r *http.Request, c *call) error {
	all, err := s.kept(r.Context(), c)
	if err == nil {
		reply(w, http.StatusOK, all)
	}
	return err
}

func (s interpreter) makeContext(w http.ResponseWriter, r *http.Request, c *call) error {
	var asked struct{ Language, Cwd string }
	if err := decode(w, r, &asked); err != nil {
		return err
	}
	k := codeContext{ID: strings.ToLower(rand.Text()), Language: languages[asked.Language], Cwd: c.sb.Workdir}
	if !api.KeepsContext(k.Language) {
		return api.Errorf(api.InvalidArgument, "language: there are no contexts of %.40q", asked.Language).
			WithHint("use python or javascript")
	}
	if asked.Cwd != "" {
		k.Cwd = pathOf(c, asked.Cwd)
	}
	if err := s.begin(r.Context(), c, k); err != nil {
		return err
	}
	s.contexts.noteCwd(c.sb.ID+k.ID, k.Cwd)
	reply(w, http.StatusOK, k)
	return nil
}

func (s interpreter) endContext(w http.ResponseWriter, r *http.Request, c *call) error {
	k, err := s.contextOf(r.Context(), c, r.PathValue("context"))
	if err == nil {
		err = s.end(r.Context(), c, k)
	}
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}

func (s interpreter) end(ctx context.Context, c *call, k codeContext) error {
	_, err := rest.Do(ctx, s.rest, api.CallCodeEnd, api.CodeContextParams{Sandbox: c.sb.ID, Language: k.Language,
		Context: nameOfContext(k.ID)})
	if api.ErrorCode(err) == api.NotFound { // it has not begun
		return nil
	}
	return err
}

func (s interpreter) restartContext(w http.ResponseWriter, r *http.Request, c *call) error {
	k, err := s.contextOf(r.Context(), c, r.PathValue("context"))
	if err == nil {
		err = s.end(r.Context(), c, k)
	}
	if err == nil {
		err = s.begin(r.Context(), c, k)
	}
	if err == nil {
		reply(w, http.StatusOK, k)
	}
	return err
}

// execution asks for code to be run.
type execution struct {
	Code      string            `json:"code"`
	ContextID *string           `json:"context_id"`
	Language  *string           `json:"language"`
	EnvVars   map[string]string `json:"env_vars"`
}

// where is the language of code, and the context that runs it.
func (s interpreter) where(ctx context.Context, c *call, e *execution) (language, id string, err error) {
	if e.ContextID != nil && *e.ContextID != "" {
		k, err := s.contextOf(ctx, c, *e.ContextID)
		return k.Language, k.ID, err
	}
	asked := ""
	if e.Language != nil {
		asked = strings.ToLower(*e.Language)
	}
	language, ok := languages[asked]
	if !ok {
		return "", "", api.Errorf(api.InvalidArgument, "language: %.40q cannot be run", asked).
			WithHint("use python, javascript, bash, go or ruby")
	}
	return language, defaultContext + "-" + language, nil
}

// execute runs code, and answers with one JSON object a line: what it writes, as it does, what it shows, how it failed.
func (s interpreter) execute(w http.ResponseWriter, r *http.Request, c *call) error {
	var e execution
	if err := decode(w, r, &e); err != nil {
		return err
	}
	language, id, err := s.where(r.Context(), c, &e)
	if err != nil {
		return err
	}
	ahead, back, err := s.setEnv(r.Context(), c, language, id, e.EnvVars)
	if err != nil {
		return err
	}
	res, out := api.CodeResult{}, ndjson{w: w, told: map[string]bool{}}
	if strings.TrimSpace(e.Code) != "" {
		res, err = s.run(r.Context(), c, language, id, ahead+e.Code, out.tell)
	}
	back() // also where the client has gone
	if err != nil && !out.begun {
		return err
	}
	if err != nil {
		res.Error = &api.CodeError{Name: "Error", Value: err.Error()} // its status has gone already
	}
	out.rest(&res)
	lines := linesOf(&res, e.Code)
	if res.Exec != "" {
		lines = append(lines, map[string]any{"type": "number_of_executions",
			"execution_count": s.contexts.count(res.Exec)})
	}
	for _, line := range append(lines, map[string]any{"type": "end_of_execution"}) {
		out.send(line)
	}
	return nil
}

// ndjson is an answer of lines. What cannot be sent is for nobody: the client is gone.
type ndjson struct {
	w     http.ResponseWriter
	begun bool
	told  map[string]bool // of a stream something was
}

func (o *ndjson) send(line map[string]any) {
	if !o.begun {
		o.begun = true
		o.w.Header().Set("Content-Type", "application/x-ndjson")
	}
	_ = json.NewEncoder(o.w).Encode(line)
}

// tell sends what code has written.
func (o *ndjson) tell(p api.Progress) {
	if p.Kind == api.ProgressOutput {
		o.wrote(string(p.Stream), p.Text)
		_ = http.NewResponseController(o.w).Flush()
	}
}

func (o *ndjson) wrote(stream, text string) {
	o.told[stream] = true
	o.send(map[string]any{"type": stream, "text": text, "timestamp": time.Now().UnixNano()})
}

// omitted begins what a result has instead of the middle of a stream.
const omitted = "\n[hutch: "

// rest sends what a result has of the streams and nobody was told: all, or the end of more than is told.
func (o *ndjson) rest(res *api.CodeResult) {
	for _, s := range []struct{ name, text string }{{"stdout", res.Stdout}, {"stderr", res.Stderr}} {
		if o.told[s.name] {
			s.text = s.text[max(0, strings.LastIndex(s.text, omitted)):]
			if !res.Truncated || !strings.HasPrefix(s.text, omitted) {
				continue
			}
		}
		if s.text != "" {
			o.wrote(s.name, s.text)
		}
	}
}

// variableName is a name that a shell knows.
var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// exported is code of a shell's that sets variables, ahead of the client's on its first line.
func exported(env map[string]string) (string, error) {
	var code strings.Builder
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if !variableName.MatchString(name) {
			return "", api.Errorf(api.InvalidArgument, "env_vars: %.64q is no name of a variable", name)
		}
		code.WriteString("export " + name + "='" + strings.ReplaceAll(env[name], "'", `'\''`) + "'; ")
	}
	return code.String(), nil
}

// setEnv sets variables for one run: by code ahead of the client's, or in the interpreter, which goes on with those
// that it had.
func (s interpreter) setEnv(ctx context.Context, c *call, language, id string, env map[string]string) (ahead string,
	back func(), err error) {
	if len(env) == 0 {
		return "", func() {}, nil
	}
	text, err := json.Marshal(env)
	if err != nil {
		return "", nil, err
	}
	set := "import os as _o\n_hutch_env = [_o.environ.copy()]; _o.environ.update(" + string(text) + ")"
	unset := "_o.environ.clear(); _o.environ.update(_hutch_env.pop())"
	switch language {
	case "shell": // whose runs have nothing in common
		exports, err := exported(env)
		return exports, func() {}, err
	case "javascript":
		set = "globalThis._hutchEnv = {...process.env}; Object.assign(process.env, " + string(text) + "); undefined"
		unset = "for (const k in process.env) delete process.env[k]; " +
			"Object.assign(process.env, globalThis._hutchEnv); undefined"
	case "python":
	default:
		return "", nil, api.Errorf(api.InvalidArgument, "env_vars: not for %s", language).
			WithHint("set them in the code")
	}
	if err := s.ours(ctx, c, language, id, set); err != nil {
		return "", nil, err
	}
	return "", func() { _ = s.ours(context.WithoutCancel(ctx), c, language, id, unset) }, nil // of one that has ended
}

// linesOf is what became of code, in E2B's words.
func linesOf(res *api.CodeResult, code string) (lines []map[string]any) {
	shown := []map[string]any{}
	for i := range res.Artifacts {
		if r := resultOf(&res.Artifacts[i]); r != nil {
			shown = append(shown, r)
		}
	}
	if res.Text != "" {
		main := map[string]any{"type": "result"}
		// The only thing that is shown is how the value shows, unless the code has displayed another one.
		if len(shown) == 1 && !strings.Contains(code, "display(") && res.Artifacts[0].Kind != "figure" {
			main, shown = shown[0], nil
		}
		main["text"], main["is_main_result"] = unquoted(res.Text), true
		shown = append(shown, main)
	}
	lines = append(lines, shown...)
	if res.Error != nil {
		lines = append(lines, map[string]any{"type": "error", "name": res.Error.Name, "value": res.Error.Value,
			"traceback": res.Error.Traceback})
	}
	return lines
}

// unquoted is how E2B shows a text that is the value of code: without the quotes that Python and Node put around it.
func unquoted(text string) string {
	if n := len(text); n >= 2 && text[0] == '\'' && text[n-1] == '\'' {
		return text[1 : n-1]
	}
	return text
}

// formats are the members of a result that hold a media type.
var formats = map[string]string{"image/png": "png", "image/jpeg": "jpeg", "image/svg+xml": "svg", "text/html": "html",
	"text/markdown": "markdown", "text/latex": "latex", "application/pdf": "pdf"}

// resultOf is an artifact as a result; nil of a file, which is none there.
func resultOf(a *api.Artifact) map[string]any {
	r := map[string]any{"type": "result", "is_main_result": false}
	switch {
	case a.Kind == "file" || a.Data == "":
		return nil
	case a.Kind == "table":
		r["data"] = columns(a.Data)
	case a.MIMEType == "application/json":
		r["json"] = json.RawMessage(a.Data)
		if !json.Valid([]byte(a.Data)) {
			return nil
		}
	case formats[a.MIMEType] != "":
		r[formats[a.MIMEType]] = a.Data
	default:
		r["extra"] = map[string]string{path.Clean(a.MIMEType): a.Data}
	}
	return r
}

// maxCells bounds a table that is turned. A row may be shorter than the columns are many.
const maxCells = 1 << 20

// columns is a table by its columns. What no table is, which only code in the sandbox can send, has none.
func columns(text string) map[string][]any {
	var table struct {
		Columns []any
		Data    [][]any
	}
	byName := map[string][]any{}
	if json.Unmarshal([]byte(text), &table) != nil {
		return byName
	}
	if len(table.Columns)*len(table.Data) > maxCells {
		return byName
	}
	for i, name := range table.Columns {
		values := make([]any, 0, len(table.Data))
		for _, row := range table.Data {
			if i < len(row) {
				values = append(values, row[i])
			}
		}
		byName[fmt.Sprint(name)] = values
	}
	return byName
}
