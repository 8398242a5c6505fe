package network_test

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/images/imagetest"
	"github.com/hutch-sh/hutch/integration/world"
)

// packaged is the package that every registry of the test has, in version 1.0.0.
const packaged = "hutchtest"

// registries serves a package in the protocol of each package manager, below a folder for
// each. Python's index has its files under another name, as big ones do.
func registries(t testing.TB, files *string) http.Handler {
	t.Helper()
	has := map[string]string{}
	wheel := packaged + "-1.0.0-py3-none-any.whl"
	info := packaged + "-1.0.0.dist-info/"
	has["/files/"+wheel] = zipped(t, map[string]string{
		packaged + ".py": "print('installed')\n", info + "RECORD": "",
		info + "METADATA": "Metadata-Version: 2.1\nName: " + packaged + "\nVersion: 1.0.0\n",
		info + "WHEEL":    "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
	})

	npm := gzipped(t, imagetest.Tar(
		imagetest.Text("package/package.json", `{"name":"`+packaged+`","version":"1.0.0"}`),
		imagetest.Text("package/index.js", "console.log('installed')\n")))
	has["/npm/package.tgz"] = npm

	module := "m.test/" + packaged
	has["/go/"+module+"/@v/list"] = "v1.0.0\n"
	has["/go/"+module+"/@v/v1.0.0.info"] = `{"Version":"v1.0.0"}`
	has["/go/"+module+"/@v/v1.0.0.mod"] = "module " + module + "\n"
	has["/go/"+module+"/@v/v1.0.0.zip"] = zipped(t, map[string]string{
		module + "@v1.0.0/go.mod":     "module " + module + "\n",
		module + "@v1.0.0/package.go": "package " + packaged + "\n",
	})

	crate := gzipped(t, imagetest.Tar(
		imagetest.Text(packaged+"-1.0.0/Cargo.toml", "[package]\nname = \""+packaged+"\"\nversion = \"1.0.0\"\n"),
		imagetest.Text(packaged+"-1.0.0/src/lib.rs", "")))
	has["/cargo/crates/"+packaged+"/1.0.0/download"] = crate
	has["/cargo/hu/tc/"+packaged] = encoded(t, map[string]any{
		"name": packaged, "vers": "1.0.0", "deps": []any{}, "features": map[string]any{}, "yanked": false,
		"cksum": fmt.Sprintf("%x", sha256.Sum256([]byte(crate))),
	}) + "\n"

	control := "Package: " + packaged +
		"\nVersion: 1.0.0\nArchitecture: all\nMaintainer: a test <a@a.test>\nDescription: a test\n"
	deb := world.Archived(map[string]string{
		"debian-binary": "2.0\n",
		"control.tar":   string(imagetest.Tar(imagetest.Text("control", control))),
		"data.tar": string(imagetest.Tar(imagetest.Dir("usr/"), imagetest.Dir("usr/share/"),
			imagetest.Text("usr/share/"+packaged, "installed\n"))),
	}, "debian-binary", "control.tar", "data.tar")
	has["/apt/package.deb"] = deb
	has["/apt/Packages"] = control + fmt.Sprintf("Filename: ./package.deb\nSize: %d\nSHA256: %x\n", len(deb),
		sha256.Sum256([]byte(deb)))

	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		here := "https://" + r.Host
		at := path.Clean(r.URL.Path) + map[bool]string{true: "/"}[strings.HasSuffix(r.URL.Path, "/")]
		text, ok := has[at]
		switch at {
		case "/pip/" + packaged + "/":
			w.Header().Set("Content-Type", "text/html")
			text, ok = fmt.Sprintf(`<!DOCTYPE html><a href="%s/files/%s">%s</a>`, *files, wheel, wheel), true
		case "/npm/" + packaged:
			text, ok = encoded(t, map[string]any{"name": packaged, "dist-tags": map[string]any{"latest": "1.0.0"},
				"versions": map[string]any{"1.0.0": map[string]any{
					"name": packaged, "version": "1.0.0", "dist": map[string]any{"tarball": here + "/npm/package.tgz", "shasum": fmt.Sprintf("%x", sha1.Sum([]byte(npm)))}, //nolint:gosec // see above
				}}}), true
		case "/cargo/config.json":
			text, ok = encoded(t, map[string]any{"dl": here + "/cargo/crates"}), true
		}
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, text)
	})
}

func zipped(t testing.TB, files map[string]string) string {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, text := range files {
		w, err := z.Create(name)
		if err == nil {
			_, err = io.WriteString(w, text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func gzipped(t testing.TB, data []byte) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func encoded(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
