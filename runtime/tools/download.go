package tools

import (
	"context"
	"crypto/rand"
	"fmt"
	"mime"
	"net/http"
	"os"
	"path"
	"strings"
	"time"
	"unicode"

	"github.com/hutch-sh/hutch/runtime/api"
)

func (s *Set) downloadURL() (*tool, error) {
	return define[api.ToolDownloadURL, api.ToolDownload](api.Tool{
		Name: api.ToolNameDownloadURL, Title: "Download link",
		Description: "Makes a link on the user's own machine to a file of the sandbox, or to a folder packed as tar.gz or zip. " +
			"It is good for one download and a limited time. Give it to the user; it cannot be reached from the sandbox.",
		ReadOnly: true,
	}, fileTimeout, func(ctx context.Context, c *call, a api.ToolDownloadURL) (answer, error) {
		f, err := c.set.cfg.Sandboxes.Files.Stat(ctx, api.FileStatParams{FileParams: c.file(a.Path), Follow: true})
		if err != nil {
			return answer{}, err
		}
		d, err := newDownload(c, &a, &f)
		if err != nil {
			return answer{}, err
		}
		if a.ExpiresS == 0 {
			a.ExpiresS = api.DefaultDownloadS
		}
		life := time.Duration(a.ExpiresS * float64(time.Second))
		address, err := s.downloads.offer(d, life)
		if err != nil {
			return answer{}, err
		}
		r := api.ToolDownload{
			URL: address, Filename: d.filename, MIMEType: d.mimeType, Size: d.size,
			Expires: time.Now().Add(life).UTC().Format(time.RFC3339),
		}
		return answer{
			text:   fmt.Sprintf("%s\n[%s, good for one download until %s]", r.URL, r.Filename, r.Expires),
			result: r,
			more:   []api.ToolContent{{Type: "link", URI: r.URL, Name: r.Filename, MIMEType: r.MIMEType, Size: r.Size}},
		}, nil
	})
}

// download is a link that was given out.
type download struct {
	file     api.FileParams
	format   string
	filename string // what a browser saves it as
	mimeType string
	size     int64 // 0: not known
	expires  *time.Timer
}

// newDownload decides how a file is sent. The format must fit what the file is now; what it is when somebody
// comes is looked at again.
func newDownload(c *call, a *api.ToolDownloadURL, f *api.File) (*download, error) {
	d := &download{file: c.file(absolute(c.workdir, a.Path)), format: a.Format}
	switch {
	case f.Type == api.TypeFolder && a.Format == "":
		d.format = "tar.gz"
	case f.Type == api.TypeFolder && a.Format == "raw":
		return nil, api.Errorf(api.InvalidArgument, "%s is a folder, which cannot be sent as it is", a.Path).
			WithField("format").WithHint("use tar.gz or zip")
	case f.Type == api.TypeFile && a.Format == "":
		d.format = "raw"
	case f.Type != api.TypeFile && f.Type != api.TypeFolder:
		return nil, api.Errorf(api.FailedPrecondition, "%s is a %s", a.Path, f.Type).
			WithHint("files and folders can be downloaded")
	}
	name := plain(strings.Trim(path.Base(d.file.Path), "/"))
	switch d.format {
	case "raw":
		d.filename, d.mimeType, d.size = name, "application/octet-stream", f.Size
	case "zip":
		d.filename, d.mimeType = name+".zip", "application/zip"
	default:
		d.filename, d.mimeType = name+".tar.gz", "application/gzip"
	}
	return d, nil
}

// absolute keeps a link's path what it was if the sandbox's workdir is another later.
func absolute(workdir, p string) string {
	if path.IsAbs(p) {
		return p
	}
	return path.Join("/", workdir, p)
}

// plain makes a name that any file system and browser takes of one that a sandbox has chosen.
func plain(name string) string {
	name = strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsGraphic(r) || strings.ContainsRune(`/\:*?"<>|`, r) {
			return '_'
		}
		return r
	}, strings.ToValidUTF8(name, "_"))
	if name = strings.Trim(name, ". "); name == "" {
		return "files"
	}
	if len(name) > 200 {
		name = strings.ToValidUTF8(name[:200], "")
	}
	return name
}

// token is a link's secret: 130 bits.
func token() string { return strings.ToLower(rand.Text()) }

// serve sends what a link stands for. The status is out when the first bytes come: an error after that ends the
// connection, so that nobody takes a part for the whole.
func (d *download) serve(ctx context.Context, w http.ResponseWriter, boxes boxes) error {
	from, to, err := os.Pipe()
	if err != nil {
		return err
	}
	defer from.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan error, 1)
	go func() {
		index := 0
		var err error
		if d.format == "raw" {
			_, err = boxes.Read(ctx, api.FileReadParams{FileParams: d.file, FDs: 1, FD: &index}, oneFD{to})
		} else {
			p := api.FilePackParams{FileParams: d.file, As: path.Base(d.file.Path), Follow: true, FDs: 1, FD: &index}
			if p.As == "/" {
				p.As = ""
			}
			_, err = boxes.Pack(ctx, p, oneFD{to})
		}
		_ = to.Close() // where it was not taken
		done <- err
	}()
	sent := &sent{ResponseWriter: w, first: func() {
		h := w.Header()
		h.Set("Content-Type", d.mimeType)
		h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": d.filename}))
	}}
	err = convert(d.format, sent, from)
	if err != nil {
		cancel(err)
		_ = from.Close()
	}
	if packed := <-done; packed != nil {
		err = packed // the cause of the other
	}
	cancel(nil)
	switch {
	case err != nil && sent.begun:
		panic(http.ErrAbortHandler)
	case err == nil:
		sent.begin() // of an empty file
	}
	return err
}

// sent writes the headers when the first byte comes.
type sent struct {
	http.ResponseWriter
	first func()
	begun bool
}

func (s *sent) begin() {
	if !s.begun {
		s.begun = true
		s.first()
	}
}

func (s *sent) Write(b []byte) (int, error) {
	s.begin()
	return s.ResponseWriter.Write(b)
}

// oneFD is the fds of a request that has one.
type oneFD struct{ f *os.File }

func (o oneFD) Take(int) (*os.File, error) { return o.f, nil }
