package image_test

import (
	"archive/tar"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/images/imagetest"
	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// layerRow is a row of the table of layers in docs/images.md.
type layerRow struct {
	text   string
	layers [][]imagetest.File
	want   string
}

// layerRows reads the table. In its first column are layers, the lowest first and each behind a semicolon: NAME,
// NAME=CONTENT, FOLDER/, LINK->TARGET, HARDLINK=>FILE, and any with %MODE behind its name. In the second is what a
// sandbox sees.
func layerRows(t *testing.T) (rows []layerRow) {
	t.Helper()
	root, err := testenv.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(world.Read(t, filepath.Join(root, "docs/images.md"))) {
		cells := strings.Split(line, "|")
		if len(cells) != 9 || !strings.Contains(cells[1], ";") {
			continue
		}
		r := layerRow{text: strings.Trim(cells[1], " `"), want: strings.Trim(cells[2], " `")}
		for l := range strings.SplitSeq(r.text, ";") {
			var files []imagetest.File
			for _, word := range strings.Fields(l) {
				files = append(files, parseEntry(t, word))
			}
			r.layers = append(r.layers, files)
		}
		rows = append(rows, r)
	}
	if len(rows) < 30 {
		t.Fatalf("only %d rows", len(rows))
	}
	return rows
}

func parseEntry(t *testing.T, word string) imagetest.File {
	t.Helper()
	f := imagetest.File{Name: word}
	if name, to, ok := strings.Cut(word, "->"); ok {
		f = imagetest.Symlink(name, to)
	} else if name, to, ok := strings.Cut(word, "=>"); ok {
		f = imagetest.Hardlink(name, to)
	} else if name, content, ok := strings.Cut(word, "="); ok {
		f = imagetest.Text(name, content)
	}
	if name, mode, ok := strings.Cut(f.Name, "%"); ok {
		m, err := strconv.ParseInt(mode, 8, 32)
		if err != nil {
			t.Fatal(err)
		}
		f.Name, f.Mode = name, m
	}
	if strings.HasSuffix(f.Name, "/") {
		f.Type = tar.TypeDir
	}
	return f
}

// below moves a row's entries into a folder.
func (r layerRow) below(dir string, layer int) (files []imagetest.File) {
	if layer == 0 {
		files = append(files, imagetest.Dir(dir))
	}
	for _, f := range r.layers[layer] {
		f.Name = dir + "/" + f.Name
		if f.Type == tar.TypeLink {
			f.Link = dir + "/" + f.Link
		}
		files = append(files, f)
	}
	return files
}

// alone says that the row's meaning is another one below a folder, or that it takes no image.
func (r layerRow) alone() bool {
	return r.want == "refused" || strings.Contains(r.text, " .wh..wh.")
}

// seen prints what is in a folder as the table has it. find names what is listed and not there on stderr.
const seen = `cd $1 && find . -xdev >/dev/null && find . -xdev | sort | while read -r p; do p=${p#./}
case $p in .|keep|bin|bin/*|dev*|proc|sys|etc*|tmp|run*|root|home|var) continue;; esac
if [ -L "$p" ]; then printf ' %s' "$p->$(readlink "$p")"
elif [ -d "$p" ]; then printf ' %s/' "$p"; [ "$(stat -c %a "$p")" = 755 ] || printf '%%%s' "$(stat -c %a "$p")"
else printf ' %s' "$p"; [ -s "$p" ] && printf '=%s' "$(cat "$p")"; fi; done; echo
`

// TestLayerTable: layers that tools do not agree about show what docs/images.md says, in sandboxes and when exported,
// and nothing is listed that is not there.
func TestLayerTable(t *testing.T) {
	testenv.Axes(t, testenv.User, testenv.Kernel)
	t.Parallel()
	w := world.New(t)
	dir := w.Sub(t, "layers")
	shell := imagetest.Tar(imagetest.Dir("bin"), imagetest.Exec("bin/sh", world.StaticShell(t)))
	load := func(name string, layers ...[]imagetest.File) world.Result {
		t.Helper()
		img := imagetest.Image{Config: imagetest.Config{Cmd: []string{"/bin/sh"}}}
		for _, l := range layers {
			img.Layers = append(img.Layers, imagetest.NewLayer(imagetest.Tar(l...), imagetest.None))
		}
		img.Layers = append(img.Layers, imagetest.NewLayer(shell, imagetest.None))
		file := filepath.Join(dir, name+".tar")
		world.Write(t, file, string(imagetest.Archive(imagetest.OCILayout(name+":1", img))))
		return w.Run(t, "image", "import", "-q", "oci-archive:"+file, name+":1")
	}
	see := func(image string, folders ...string) []string {
		t.Helper()
		script := "look() {\n" + seen + "}\nfor d in " + strings.Join(folders, " ") +
			"; do (look $d) || echo failed; done"
		r := w.Run(t, "run", "--rm", "--pull", "never", image, "/bin/sh", "-c", script).Want(t, 0)
		if r.Stderr != "" {
			t.Errorf("%s: %s", image, r.Stderr)
		}
		return strings.Split(strings.TrimSuffix(r.Stdout, "\n"), "\n")
	}
	check := func(r layerRow, got string) {
		t.Helper()
		if got = strings.TrimSpace(got); got == "" {
			got = "nothing"
		}
		if got != r.want {
			t.Errorf("%s\nshows %s, want %s", r.text, got, r.want)
		}
	}
	var together []layerRow
	var lower, upper []imagetest.File
	var folders []string
	for i, r := range layerRows(t) {
		name := fmt.Sprintf("row%d", i)
		if !r.alone() {
			lower, upper = append(lower, r.below(name, 0)...), append(upper, r.below(name, 1)...)
			together, folders = append(together, r), append(folders, name)
			continue
		}
		made := load(name, append(r.layers[0], imagetest.Text("keep", "")), r.layers[1])
		if r.want == "refused" {
			made.Want(t, 125)
			continue
		}
		made.Want(t, 0)
		check(r, see(name+":1", "/")[0])
	}
	load("rows", lower, upper).Want(t, 0)
	shown := see("rows:1", folders...)
	if len(shown) != len(together) {
		t.Fatalf("shown %q", shown)
	}
	for i, r := range together {
		check(r, shown[i])
	}
	// As one layer.
	flat := filepath.Join(dir, "flat.tar")
	w.OK(t, "image", "export", "-o", flat, "rows:1")
	w.OK(t, "image", "import", "-q", flat, "flat:1")
	if got := see("flat:1", folders...); !slices.Equal(got, shown) {
		t.Errorf("exported it shows %q, want %q", got, shown)
	}
	w.RemoveLayers(t)
}
