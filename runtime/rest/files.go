package rest

import (
	"context"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
)

func fileRoutes() []route {
	where := []parameter{pathQuery, userQuery}
	return []route{
		{method: "GET", path: files, name: "readFile", tag: "files", media: []string{octets}, code: http.StatusOK,
			query: where, headers: []parameter{
				{name: "Range", kind: "string", doc: "a part of it, such as bytes=0-99"},
				{name: "If-None-Match", kind: "string",
					doc: "an ETag: the answer is 304 where the file is still that"}},
			summary: "Reads a file.",
			also: map[int]string{http.StatusPartialContent: "The part that was asked for.",
				http.StatusNotModified: "It is the one that the client has."},
			serve: readFile},
		{method: "GET", path: files + "/list", name: "listFiles", tag: "files", answer: of[api.FileList](),
			query:   append(where, parameter{name: "depth", kind: "integer", doc: "levels of folders; default 1"}),
			summary: "Lists a folder: each folder before what it holds, names in order.",
			paged:   true, serve: listFiles},
		{method: "GET", path: files + "/stat", name: "statFile", tag: "files", query: where, answer: of[api.File](),
			summary: "Describes a file or folder.",
			serve: plain(func(s *Server, r *http.Request) (any, error) {
				return answered(do(r.Context(), s, api.CallFSStat,
					api.FileStatParams{FileParams: fileOf(r), Follow: true}))
			})},
		{method: "PUT", path: files, name: "writeFile", tag: "files", bodies: []string{octets}, query: append(where,
			parameter{name: "mode", kind: "string", doc: "permissions, octal; default those it has, else 0644"}),
			answer: of[WrittenFile](), code: http.StatusOK,
			summary: "Writes a file, in a single step: readers see the old or the new one.",
			headers: []parameter{
				{name: "If-Match", kind: "string", doc: "an ETag: fails with 412 where the file is another"},
				{name: "If-None-Match", kind: "string", doc: "*: fails with 412 where there is a file"}},
			notes: "Missing folders above it are made.",
			serve: putFile},
		{method: "POST", path: files, name: "uploadFiles", tag: "files", bodies: []string{formData, octets},
			query: []parameter{{name: "path", kind: "string",
				doc: "where the file goes: its path, or a folder's with / " +
					"at its end; a part of the form named path says the same for the files after it"}, userQuery},
			answer: of[Written](), code: http.StatusCreated, summary: "Writes the files of a form, or the body as one.",
			serve: upload},
		{method: "PATCH", path: files, name: "changeFiles", tag: "files", body: of[FileChange](),
			summary: "Makes a folder, or renames a file or folder.", serve: asked(changeFile)},
		{method: "DELETE", path: files, name: "removeFile", tag: "files", query: append(where,
			parameter{name: "recursive", kind: "boolean", doc: "a folder with all that is in it"}),
			summary: "Removes a file or folder.",
			serve: plain(func(s *Server, r *http.Request) (any, error) {
				_, err := do(r.Context(), s, api.CallFSRemove, api.FileRemoveParams{FileParams: fileOf(r),
					Recursive: isTrue(r.URL.Query().Get("recursive"))})
				return nil, err
			})},
	}
}

const formData = "multipart/form-data"

// fileOf is the file of a request.
func fileOf(r *http.Request) api.FileParams {
	q := r.URL.Query()
	return api.FileParams{Sandbox: ref(r), Path: q.Get("path"), User: q.Get("user")}
}

func isTrue(text string) bool { v, err := strconv.ParseBool(text); return err == nil && v }

func readFile(s *Server, w http.ResponseWriter, r *http.Request) (any, error) {
	return nil, s.SendFile(w, r, fileOf(r))
}

// SendFile answers with a file of a sandbox, or a part of it.
func (s *Server) SendFile(w http.ResponseWriter, r *http.Request, p api.FileParams) error {
	st, err := do(r.Context(), s, api.CallFSStat, api.FileStatParams{FileParams: p, Follow: true})
	if err != nil {
		return err
	}
	if st.Type != api.TypeFile {
		return api.Errorf(api.FailedPrecondition, "%s is a %s", p.Path, st.Type).WithField("path").
			WithHint("only regular files are read; GET .../files/list lists a folder")
	}
	w.Header().Set("ETag", etag(&st))
	// What it is nobody but the sandbox says, so a browser is to save it and not to show it.
	w.Header().Set("Content-Type", octets)
	w.Header().Set("Content-Disposition",
		mime.FormatMediaType("attachment", map[string]string{"filename": path.Base(p.Path)}))
	if strings.Contains(r.Header.Get("Range"), ",") {
		r.Header.Del("Range") // each range of many would be a call (RFC 9110, 14.2: a server may send all)
	}
	f := &remote{s: s, ctx: r.Context(), p: p, size: st.Size}
	defer f.end()
	http.ServeContent(w, r, "", st.MTime, f)
	return nil
}

// etag changes with whatever writes the file or takes its place.
func etag(st *api.File) string { return `"` + st.Version + `"` }

// listFiles lists a page of a folder. The token of the next one is a number of entries: files that come and go
// meanwhile shift it.
func listFiles(s *Server, w http.ResponseWriter, r *http.Request) (any, error) {
	p := fileOf(r)
	limit, last, err := pageOf(r)
	if err != nil {
		return nil, err
	}
	offset := 0
	if last != "" {
		if offset, err = strconv.Atoi(last); err != nil || offset < 0 || offset > api.MaxListOffset {
			return nil, wrongPage(last)
		}
	}
	l := api.FileListParams{FileParams: p, Limit: limit, Offset: &offset}
	depth, err := number(r, "depth")
	if err != nil {
		return nil, err
	}
	if depth != nil && *depth > 1 {
		l.Recursive, l.Depth = true, int(*depth)
	}
	found, err := do(r.Context(), s, api.CallFSList, l)
	if err != nil {
		return nil, err
	}
	for i := range found.Entries { // as every other path here
		found.Entries[i].Path = path.Join(p.Path, found.Entries[i].Path)
	}
	if next := offset + len(found.Entries); found.Truncated && next <= api.MaxListOffset {
		goesOn(w, r, strconv.Itoa(next))
	}
	return found, nil
}

// remote is a file in a sandbox, as http.ServeContent reads it: bytes come through a pipe that the sandbox's worker
// writes into, and no more than a pipe holds is ever here.
type remote struct {
	s    *Server
	ctx  context.Context
	p    api.FileParams
	size int64
	at   int64

	pipe *os.File
	stop context.CancelCauseFunc
	done chan struct{} // closed when nothing more is written, and err is set
	err  error
}

// Seek is where the next Read begins.
func (f *remote) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += f.at
	case io.SeekEnd:
		offset += f.size
	}
	if offset != f.at {
		f.end()
	}
	f.at = offset
	return offset, nil
}

// Read reads from where the last one ended.
func (f *remote) Read(b []byte) (int, error) {
	if f.at >= f.size {
		return 0, io.EOF
	}
	if f.pipe == nil {
		if err := f.begin(); err != nil {
			return 0, err
		}
	}
	n, err := f.pipe.Read(b)
	f.at += int64(n)
	if errors.Is(err, io.EOF) {
		if <-f.done; f.err != nil {
			err = f.err
		}
	}
	return n, err
}

// begin has the rest of the file sent.
func (f *remote) begin() error {
	c, err := f.s.waits.client(f.ctx, f.s.cfg.Connect) // as long as its reader likes
	if err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(f.ctx)
	f.pipe, f.stop, f.done = r, stop, make(chan struct{})
	p := api.FileReadParams{FileParams: f.p, Offset: f.at, Limit: f.size - f.at}
	go func() {
		defer close(f.done)
		_, f.err = c.ReadFile(ctx, p, w)
		w.Close() // the call's end is that of the pipe
	}()
	return nil
}

// errEnough is why the rest of a file is not sent.
var errEnough = errors.New("the client has what it wants of the file")

// end stops what is under way.
func (f *remote) end() {
	if f.pipe == nil {
		return
	}
	f.stop(errEnough)
	_ = f.pipe.Close()
	<-f.done
	f.pipe = nil
}

func putFile(s *Server, w http.ResponseWriter, r *http.Request) (any, error) {
	p := fileOf(r)
	q := api.FileWriteParams{FileParams: p, Mode: r.URL.Query().Get("mode"), Parents: true,
		Exclusive: r.Header.Get("If-None-Match") == "*"}
	if err := s.precondition(r, &q); err != nil {
		return nil, err
	}
	size := r.ContentLength
	if size > s.cfg.MaxUpload {
		return nil, &http.MaxBytesError{Limit: s.cfg.MaxUpload}
	}
	if size >= 0 {
		q.SizeBytes = &size
	}
	written, err := s.Store(w, r, q, nil)
	var e *api.Error
	switch {
	case q.Exclusive && api.ErrorCode(err) == api.AlreadyExists:
		err = problem(http.StatusPreconditionFailed, codeConflict, "leave out If-None-Match to replace it",
			"%s exists", p.Path)
	case errors.As(err, &e) && (e.Field == "if_version" || q.Create != nil && e.Code == api.NotFound):
		err = otherFile(p.Path)
	}
	return answered(written, err)
}

// precondition makes If-Match the condition of a write. It is held against the file that is there now, so that a body
// need not be sent for nothing, and again where the new file takes its place.
func (s *Server) precondition(r *http.Request, p *api.FileWriteParams) error {
	want := r.Header.Get("If-Match")
	if want == "" {
		return nil
	}
	if p.Exclusive {
		return api.Errorf(api.InvalidArgument, "If-Match: given together with If-None-Match").WithField("If-Match").
			WithHint("give one of them")
	}
	st, err := do(r.Context(), s, api.CallFSStat, api.FileStatParams{FileParams: p.FileParams, Follow: true})
	switch {
	case api.ErrorCode(err) == api.NotFound || err == nil && want != "*" && !isOneOf(want, etag(&st)):
		return otherFile(p.Path)
	case err != nil:
		return err
	case want == "*":
		there := false
		p.Create = &there
	default:
		p.IfVersion = st.Version
	}
	return nil
}

func otherFile(path string) error {
	return problem(http.StatusPreconditionFailed, codeConflict, "read it again, and send the ETag of that",
		"%s is another file than If-Match says", path)
}

func isOneOf(header, tag string) bool {
	for part := range strings.SplitSeq(header, ",") {
		if strings.TrimSpace(part) == tag {
			return true
		}
	}
	return false
}

// Store writes one file out of src, or the body where that is nil, through a pipe: no more of it than a pipe holds is
// ever here. A client that goes in the middle leaves the old file.
func (s *Server) Store(w http.ResponseWriter, r *http.Request, p api.FileWriteParams, src io.Reader) (*WrittenFile,
	error) {
	c, err := s.waits.client(r.Context(), s.cfg.Connect) // as long as its sender likes
	if err != nil {
		return nil, err
	}
	if src == nil {
		src = s.Upload(w, r)
	}
	pr, pw, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	copied, answered := make(chan struct{}), make(chan struct{})
	go func() {
		_, err := io.Copy(pw, src)
		if err != nil && !errors.Is(err, syscall.EPIPE) {
			cancel(err)
			<-answered // or the end of the pipe would be taken for the end of the file
		}
		pw.Close()
		close(copied)
	}()
	written, err := c.WriteFile(ctx, p, pr)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause // why the copy has failed
	}
	close(answered)
	pr.Close() // nobody reads any more: the copy ends
	if err != nil {
		// A client that sends on is not waited for, and its connection is not used again.
		w.Header().Set("Connection", "close")
		_ = http.NewResponseController(w).SetReadDeadline(time.Now())
	}
	<-copied
	if err != nil {
		return nil, err
	}
	return &WrittenFile{Path: p.Path, Size: written.Size, Created: written.Created}, nil
}

// Upload is the body of a request that holds files, as it comes: not too slowly, and not too much of it.
func (s *Server) Upload(w http.ResponseWriter, r *http.Request) io.Reader {
	return http.MaxBytesReader(w, io.NopCloser(slowReader{r, http.NewResponseController(w)}), s.cfg.MaxUpload)
}

func upload(s *Server, w http.ResponseWriter, r *http.Request) (any, error) {
	if !isMedia(r.Header.Get("Content-Type"), formData) {
		p := fileOf(r)
		if strings.HasSuffix(p.Path, "/") {
			return nil, api.Errorf(api.InvalidArgument, "path: %q is a folder, and the body has no name", p.Path).
				WithField("path").WithHint("give the path of the file itself, or send a form")
		}
		f, err := s.Store(w, r, api.FileWriteParams{FileParams: p, Parents: true}, nil)
		if err != nil {
			return nil, err
		}
		return Written{Files: []WrittenFile{*f}}, nil
	}
	_, given, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || given["boundary"] == "" {
		return nil, api.Errorf(api.InvalidArgument, "the form has no boundary").WithField("Content-Type").
			WithHint("let the HTTP library make the header")
	}
	form := multipart.NewReader(s.Upload(w, r), given["boundary"])
	return s.parts(w, r, form)
}

// maxParts bounds the files of one form.
const maxParts = 1000

// parts writes the files of a form as they come.
func (s *Server) parts(w http.ResponseWriter, r *http.Request, form *multipart.Reader) (any, error) {
	to := r.URL.Query().Get("path")
	done := Written{Files: []WrittenFile{}}
	for range maxParts {
		part, err := form.NextPart()
		if errors.Is(err, io.EOF) {
			if len(done.Files) == 0 {
				return nil, api.Errorf(api.InvalidArgument, "the form has no file").WithField("file").
					WithHint("curl -F path=/workspace/data.csv -F file=@data.csv")
			}
			return done, nil
		}
		if err != nil {
			return nil, FormError(err)
		}
		if part.FileName() == "" {
			text, err := io.ReadAll(io.LimitReader(part, 4096))
			if err != nil {
				return nil, FormError(err)
			}
			if part.FormName() == "path" {
				to = string(text)
			}
			continue
		}
		p := fileOf(r)
		if p.Path = target(to, part.FileName()); p.Path == "" {
			return nil, api.Errorf(api.InvalidArgument, "path: missing").WithField("path").
				WithHint("say where the file goes: ?path=/workspace/data.csv, or a part named path before it")
		}
		f, err := s.Store(w, r, api.FileWriteParams{FileParams: p, Parents: true}, part)
		if err != nil {
			return nil, FormError(err)
		}
		done.Files = append(done.Files, *f)
	}
	return nil, api.Errorf(api.InvalidArgument, "the form has more than %d parts", maxParts).
		WithHint("send the files in several requests")
}

// target is where a file of a form goes: below a folder under the last name that it has (part.FileName has no more).
func target(to, name string) string {
	if strings.HasSuffix(to, "/") {
		return to + path.Base("/"+name)
	}
	return to
}

// FormError makes an error of the form itself the client's.
func FormError(err error) error {
	var e *api.Error
	var p *Problem
	var large *http.MaxBytesError
	if errors.As(err, &e) || errors.As(err, &p) || errors.As(err, &large) {
		return err
	}
	return api.Errorf(api.InvalidArgument, "the form cannot be read: %w", err).WithHint("let the HTTP library make it")
}

func changeFile(s *Server, r *http.Request, c *FileChange) (any, error) {
	switch {
	case c.Make != "" && c.From == "" && c.To == "":
		_, err := do(r.Context(), s, api.CallFSMkdir, api.FileMkdirParams{FileParams: api.FileParams{Sandbox: ref(r),
			Path: c.Make, User: c.User}, Parents: true})
		return nil, err
	case c.Make == "" && c.From != "" && c.To != "":
		_, err := do(r.Context(), s, api.CallFSMove, api.FileMoveParams{FileParams: api.FileParams{Sandbox: ref(r),
			Path: c.From, User: c.User}, To: c.To})
		return nil, err
	}
	return nil, api.Errorf(api.InvalidArgument, "nothing to change").
		WithHint(`give {"mkdir": PATH}, or {"from": PATH, "to": PATH}`)
}
