package api

import (
	"encoding/json"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/internal/testenv/cost"
)

// wireEnd is the longest time there is.
var wireEnd = time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC)

func page(after string, more bool, names ...string) *FileSyncParams {
	p := &FileSyncParams{FileParams: FileParams{Sandbox: "x", Path: "/d"}, After: after, More: more,
		Files: []SyncFile{}}
	for _, n := range names {
		f := SyncFile{Type: TypeFile}
		if s, ok := strings.CutSuffix(n, "/"); ok {
			n, f.Type = s, TypeFolder
		}
		f.Path, f.PathBase64 = SyncName(n)
		p.Files = append(p.Files, f)
	}
	return p
}

// TestSyncPages: pages are in the order of a walk, each folder before what it holds, and nothing else is taken.
func TestSyncPages(t *testing.T) {
	for _, good := range []*FileSyncParams{
		page("", false), page("", true, "a"), page("a", false), page("", false, "a/", "a/b", "a.c"),
		page("a/b", true, "a/c/", "a/c/d", "a.c"),
		page("a/b/c", false, "a/b/d", "a/c", "b"), page("a", false, "a/b"), page("", false, "a", "b\xff", "c\n\"<"),
		page("\xff/x", false, "\xff/y"),
	} {
		if err := good.Validate(); err != nil {
			t.Errorf("%+v: %v", good, err)
		}
	}
	both := page("", false, "a")
	both.Files[0].PathBase64 = "YQ=="
	bad64 := page("", false, "a")
	bad64.Files[0].Path, bad64.Files[0].PathBase64 = "", "?"
	nul64 := page("", false, "a")
	nul64.Files[0].Path, nul64.Files[0].PathBase64 = "", "AA=="
	fifo := page("", false, "a")
	fifo.Files[0].Type = TypeFifo
	long := page("", false)
	for i := range 300 {
		long.Files = append(long.Files, SyncFile{Path: strings.Repeat("x", 3700) + string(rune('a'+i/26)) +
			string(rune('a'+i%26)), Type: TypeFile})
	}
	for want, bad := range map[string]*FileSyncParams{
		"empty page": page("", true), "no path below": page("", false, ".."), "behind \"b\"": page("b", false, "a"),
		"behind \"a.c\"": page("", false, "a.c", "a/"),
		"behind \"a\"":   page("", false, "a", "a"), "without its folder": page("", false, "a/b"),
		"comes without":      page("a/b", false, "a/c/d"),
		"text and as base64": both, "no base64": bad64, "base64 of a name": nul64, "does not travel": fifo,
		"more than 1048576":   long,
		"\"/etc\" is no path": page("/etc", false), "\"a/\" is no path": page("a/", false),
		"too many":              {Files: make([]SyncFile, MaxSyncFiles+1)},
		"NUL\\x00\" is no path": page("NUL\x00", false),
	} {
		if err := bad.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

// TestSyncPageFits: a page of the worst names, and of many, goes into a request line.
func TestSyncPageFits(t *testing.T) {
	for _, name := range []string{"\x01", "<", "\xff", "é", "\u2028", `\`, "a"} {
		p := page("", true)
		for i := range MaxSyncFiles {
			text := name + strings.Repeat(name, (MaxSyncBytes/MaxSyncFiles-10)/len(name))
			f := SyncFile{Type: TypeSymlink, Size: 1 << 62, MTime: wireEnd}
			f.Path, f.PathBase64 = SyncName(path.Join(text[:min(len(text), 200)], "") + string(rune('0'+i/5000)))
			p.Files = append(p.Files, f)
		}
		if data, err := json.Marshal(p); err != nil || len(data) > 4<<20-1000 {
			t.Errorf("%q: %d bytes, %v", name, len(data), err)
		}
	}
}

// FuzzSyncPage: what a page may be has its names in order and below the folder, each behind its folder.
func FuzzSyncPage(f *testing.F) {
	for _, seed := range []string{
		`{"sandbox":"x","path":"/d","files":[{"path":"a","type":"folder"},{"path":"a/b","type":"file"}],"more":true,"after":"A"}`,
		`{"sandbox":"x","path":"/d","files":[{"path_base64":"/w==","type":"symlink","target_base64":"/w=="}],"after_base64":"YQ=="}`,
		`{"sandbox":"x","path":"/d","files":[{"path":"../a","type":"folder"}],"delete":true}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var p FileSyncParams
		if json.Unmarshal(data, &p) != nil {
			return
		}
		valid := false
		cost.Of(t, len(data), func() { valid = p.Validate() == nil })
		if !valid {
			return
		}
		var page *SyncPage
		var err error
		cost.Of(t, len(data), func() { page, err = p.Page() })
		if err != nil || len(page.Paths) != len(p.Files) {
			t.Fatalf("%d names, %v", len(page.Paths), err)
		}
		// The order of a walk is that of the names' parts.
		parts := func(name string) []string { return strings.Split(name, "/") }
		for i, name := range page.Paths {
			if !belowFolder(name) {
				t.Errorf("%q", name)
			}
			before := page.After
			if i > 0 {
				before = page.Paths[i-1]
			}
			if before != "" && slices.Compare(parts(before), parts(name)) >= 0 {
				t.Errorf("%q, %q", before, name)
			}
			if dir := path.Dir(name); dir != "." && !slices.Contains(page.Paths[:i], dir) && dir != page.After &&
				!strings.HasPrefix(page.After, dir+"/") {
				t.Errorf("%q has no folder", name)
			}
		}
	})
}
