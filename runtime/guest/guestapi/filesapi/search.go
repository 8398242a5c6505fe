package filesapi

import "fmt"

// GrepArgs ask for the lines below a folder, or of a file, that match.
type GrepArgs struct {
	Pattern    string   `json:"pattern"`
	Literal    bool     `json:"literal,omitempty"`
	IgnoreCase bool     `json:"ignore_case,omitempty"`
	Globs      []string `json:"globs,omitempty"`
	Context    int      `json:"context,omitempty"` // lines
	Hidden     bool     `json:"hidden,omitempty"`
	NoIgnore   bool     `json:"no_ignore,omitempty"`
	FilesOnly  bool     `json:"files_only,omitempty"`
	Max        int      `json:"max"`              // matches
	Offset     int      `json:"offset,omitempty"` // matches to leave out
	LineSize   int      `json:"line_bytes"`       // of a line; a longer one is cut
}

// Match is one line: untrusted. With FilesOnly it is a file.
type Match struct {
	Path   []byte   `json:"path"` // below the folder; empty of the file that was asked for
	Line   int64    `json:"line,omitempty"`
	Text   []byte   `json:"text,omitempty"`
	Before [][]byte `json:"before,omitempty"`
	After  [][]byte `json:"after,omitempty"`
}

// MaxMatches bounds the texts and paths of a grep's reply in bytes, and MaxGrep its payload.
const (
	MaxMatches = 512 << 10
	MaxGrep    = 2 << 20
)

// ParseMatches parses the payload of a reply to args. The reply's Count is how many files were searched, Skipped how
// many could not be.
func ParseMatches(data []byte, args *GrepArgs) ([]Match, error) {
	return parseList(data, args.Max, func(m *Match) error {
		if len(m.Path) >= 4096 || m.Line < 0 || m.Line > maxOffset || len(m.Before) > args.Context ||
			len(m.After) > args.Context {
			return fmt.Errorf("line %d with a path of %d bytes and %d and %d lines around it", m.Line, len(m.Path),
				len(m.Before), len(m.After))
		}
		for _, l := range append(append([][]byte{m.Text}, m.Before...), m.After...) {
			if len(l) > args.LineSize+maxCut {
				return fmt.Errorf("line %d of %d bytes", m.Line, len(l))
			}
		}
		return nil
	})
}

// maxCut is how long the text is that says that a line was cut.
const maxCut = 64

// FindArgs ask for files and folders below a folder by their names.
type FindArgs struct {
	Query    string `json:"query,omitempty"`
	Files    bool   `json:"files,omitempty"`
	Folders  bool   `json:"folders,omitempty"`
	Hidden   bool   `json:"hidden,omitempty"`
	NoIgnore bool   `json:"no_ignore,omitempty"`
	Max      int    `json:"max"`
}

// Found is a file or folder: untrusted.
type Found struct {
	Path   []byte `json:"path"`
	Folder bool   `json:"folder,omitempty"`
	Score  int    `json:"score,omitempty"`
}

// ParseFound parses the payload of a reply to args. The reply's Count is how many there are.
func ParseFound(data []byte, args *FindArgs) ([]Found, error) {
	return parseList(data, args.Max, func(f *Found) error {
		if len(f.Path) == 0 || len(f.Path) >= 4096 || f.Score < 0 || f.Score > 1<<31 {
			return fmt.Errorf("a path of %d bytes with a score of %d", len(f.Path), f.Score)
		}
		return nil
	})
}
