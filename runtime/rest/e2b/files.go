package e2b

import (
	"compress/gzip"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"path"
	"strings"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/rest"
)

// maxParts bounds the files of one form.
const maxParts = 1000

// written is a file that was written.
type written struct {
	Name string `json:"name"`
	Type string `json:"type"`
	Path string `json:"path"`

	Metadata map[string]string `json:"metadata,omitempty"`
}

// ofFiles finds the sandbox whose files a request is about: by its token, or by the signature of a URL.
func (s envd) ofFiles(operation string, h boxHandler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		named := func(w http.ResponseWriter, r *http.Request, c *call) error {
			if name := q.Get("username"); name != "" {
				c.user = userOf(name)
			}
			return h(w, r, c)
		}
		if r.Header.Get(accessHeader) != "" || q.Get("signature") == "" {
			s.inSandbox("", named).ServeHTTP(w, r)
			return
		}
		c, err := s.signer(r, signatureOf(q, operation))
		if err == nil {
			c.w = w
			err = named(w, r, c)
		}
		if err != nil {
			s.boxFail(w, r, r.Header.Get(sandboxHeader), err)
		}
	})
}

func (s envd) readFile(w http.ResponseWriter, r *http.Request) {
	s.ofFiles("read", func(w http.ResponseWriter, r *http.Request, c *call) error {
		err := s.rest.SendFile(w, r, fileOf(c, r.URL.Query().Get("path")))
		if api.ErrorCode(err) == api.FailedPrecondition { // no regular file
			p := rest.ProblemOf(err)
			err = api.Errorf(api.InvalidArgument, "%s", messageOf(&p))
		}
		return err
	}).ServeHTTP(w, r)
}

func (s envd) writeFiles(w http.ResponseWriter, r *http.Request) {
	s.ofFiles("write", func(w http.ResponseWriter, r *http.Request, c *call) error {
		done, err := s.received(w, r, c)
		if api.ErrorCode(err) == api.ResourceExhausted {
			p := rest.ProblemOf(err)
			refuse(w, http.StatusInsufficientStorage, messageOf(&p))
			return nil
		}
		if err == nil {
			reply(w, http.StatusOK, done)
		}
		return err
	}).ServeHTTP(w, r)
}

// received writes the files of a request, which is a form or the bytes of one file.
func (s envd) received(w http.ResponseWriter, r *http.Request, c *call) ([]written, error) {
	src, err := unpacked(s.rest.Upload(w, r), r.Header.Get("Content-Encoding"), s.rest.MaxUpload())
	if err != nil {
		return nil, err
	}
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	to := r.URL.Query().Get("path")
	if err == nil && kind == "multipart/form-data" {
		return s.parts(w, r, c, multipart.NewReader(src, params["boundary"]), to)
	}
	one, err := s.stored(w, r, c, to, src)
	if err != nil {
		return nil, err
	}
	return []written{one}, nil
}

// unpacked is a body as it was before it was compressed, of which no more than limit bytes are read either.
func unpacked(body io.Reader, encoding string, limit int64) (io.Reader, error) {
	switch encoding {
	case "", "identity":
		return body, nil
	case "gzip":
		z, err := gzip.NewReader(body)
		if err != nil {
			return nil, rest.FormError(err)
		}
		return &bounded{z, limit, limit}, nil
	}
	return nil, api.Errorf(api.InvalidArgument, "Content-Encoding: %.40q is not known", encoding).
		WithHint("send gzip, or leave it out")
}

// bounded ends with an error where there is more than it may have.
type bounded struct {
	io.Reader
	left, limit int64
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, &http.MaxBytesError{Limit: b.limit}
	}
	return n, err
}

// parts writes the files of a form as they come: each to the path that is its name, or a single one to that of the URL.
func (s envd) parts(w http.ResponseWriter, r *http.Request, c *call, form *multipart.Reader, to string) ([]written,
	error) {
	done := []written{}
	for range maxParts {
		part, err := form.NextPart()
		if errors.Is(err, io.EOF) {
			return done, nil
		}
		if err != nil {
			return nil, rest.FormError(err)
		}
		// part.FileName has no more than the last name.
		_, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
		if err != nil || params["name"] != "file" {
			continue
		}
		at := params["filename"]
		if to != "" {
			at = to
		}
		one, err := s.stored(w, r, c, at, part)
		if err != nil {
			return nil, rest.FormError(err)
		}
		done = append(done, one)
	}
	return nil, api.Errorf(api.InvalidArgument, "the form has more than %d parts", maxParts).
		WithHint("send the files in several requests")
}

func (s envd) stored(w http.ResponseWriter, r *http.Request, c *call, to string, src io.Reader) (written, error) {
	if to == "" {
		return written{}, api.Errorf(api.InvalidArgument, "path: missing").WithHint("say where the file goes")
	}
	metadata, attributes, err := metadataFrom(r.Header)
	if err != nil {
		return written{}, err
	}
	f, err := s.rest.Store(w, r, api.FileWriteParams{FileParams: fileOf(c, to), Parents: true,
		Attributes: attributes}, src)
	if err != nil {
		return written{}, err
	}
	return written{path.Base(f.Path), "file", f.Path, metadata}, nil
}

// metadataHeader begins the names of headers that are metadata of all files of a request.
const metadataHeader = "X-Metadata-"

// metadataFrom is the metadata that a request has for its files, and the attributes that keep it.
func metadataFrom(h http.Header) (metadata, attributes map[string]string, err error) {
	metadata, attributes = map[string]string{}, map[string]string{}
	for name := range h {
		key, ok := strings.CutPrefix(name, metadataHeader)
		if !ok {
			continue
		}
		key, value := strings.ToLower(key), h.Get(name)
		if key == "" || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
			return nil, nil, api.Errorf(api.InvalidArgument, "%.64q is no metadata", name).WithField("metadata").
				WithHint("give it a name, and a value of printable ASCII")
		}
		metadata[key], attributes[metadataSpace+key] = value, value
	}
	return metadata, attributes, nil
}
