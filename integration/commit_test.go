package integration_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/images/imagetest"
)

// importTiny gives the store an image.
func (w *world) importTiny(t testing.TB, name string) {
	t.Helper()
	file := filepath.Join(w.sub(t, "tiny"), "tiny.tar")
	write(t, file, string(imagetest.Archive(imagetest.OCILayout(name, tinyImage(t)))))
	w.ok(t, "image", "import", "-q", "oci-archive:"+file, name)
}

// written is a script that writes all that a layer holds, and show prints it.
const (
	written = `set -e; echo new >/dir/new; echo more >>/dir/b; rm /odd*; rm -r /opaque; mkdir /opaque; echo o >/opaque/fresh
ln /dir/new /hard; ln -s new /dir/soft; mkfifo /pipe; chmod 4711 /dir/new; touch -d "2001-02-03 04:05:06" /dir/b; mkdir -m 1777 /sticky
echo closed >/closed/out; chmod 0 /one; dd if=/dev/zero of=/sparse bs=1 count=1 seek=5000000 2>/dev/null; echo 1 >/tmp/t; echo x >>/etc/hosts; : >/.wh.dir`
	show = `cat /dir/new /dir/b /dir/soft /hard /opaque/* /closed/out /tmp/t; ls / | grep -v tick; ls -A /etc /dir; cat /one
stat -c "%n %a %u:%g %Y" /dir /dir/* /opaque /closed /one /sticky /sparse /etc/passwd; stat -c %a /tmp; stat -c "%F %s %h" /pipe /dir/soft /dir/new /sparse; md5sum /sparse`
)

// TestCommit: what a sandbox has written, running or stopped, is the top layer of an image
// that runs at once and shows the same; the sandbox goes on.
func TestCommit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.importTiny(t, "base:1")
	sb := w.create(t, "-u", "0", "base:1")
	w.ok(t, "exec", sb, "/bin/sh", "-c", written)
	w.ok(t, "exec", sb, "/bin/sh", "-c", "while :; do date +%s%N >/tick; done >/dev/null 2>&1 </dev/null &")
	r := w.run(t, "commit", "-m", "because", "-e", "A=b", "-l", "x=y", "-w", "/dir", "--cmd", `["/bin/sh","-c","pwd; echo $A; cat new"]`, sb, "made:1").want(t, 0)
	r.says(t, "left out 1 files", ".wh.dir")
	if r.stdout != "docker.io/library/made:1\n" {
		t.Errorf("made %q", r.stdout)
	}
	if state := w.ok(t, "inspect", sb); !strings.Contains(state, `"running"`) {
		t.Errorf("afterwards the sandbox is %s", state)
	}
	w.ok(t, "exec", sb, "/bin/sh", "-c", "rm /.wh.dir") // which the image has not
	want := w.ok(t, "exec", sb, "/bin/sh", "-c", show)
	if got := w.ok(t, "run", "--pull", "never", "-u", "0", "made:1", "/bin/sh", "-c", show); got != want {
		t.Errorf("the image shows\n%s\nthe sandbox\n%s", got, want)
	}
	if got := w.ok(t, "run", "--pull", "never", "made:1"); got != "/dir\nb\nnew\n" {
		t.Errorf("it runs as %q", got)
	}
	var img struct {
		Layers []string
		Config struct {
			User   string
			Labels map[string]string
		}
	}
	inspect := func(name string) {
		t.Helper()
		if err := json.Unmarshal([]byte(w.ok(t, "image", "inspect", name)), &img); err != nil {
			t.Fatal(err)
		}
	}
	inspect("made:1")
	if img.Config.User != "zero" || img.Config.Labels["x"] != "y" {
		t.Errorf("configuration %+v", img.Config)
	}
	// A stopped one, twice: the same layer.
	w.ok(t, "kill", sb)
	w.ok(t, "commit", sb, "stopped:1")
	inspect("stopped:1")
	first := img.Layers
	w.ok(t, "commit", "--cmd", "echo hi", sb, "stopped:2")
	inspect("stopped:2")
	if strings.Join(first, " ") != strings.Join(img.Layers, " ") {
		t.Errorf("layers %q and %q", first, img.Layers)
	}
	// Nothing written: no layer. And one more on top of what was committed.
	sb = w.create(t, "-u", "0", "stopped:2")
	w.ok(t, "commit", sb, "same:1")
	inspect("same:1")
	if strings.Join(first, " ") != strings.Join(img.Layers, " ") {
		t.Errorf("without a change: layers %q, were %q", img.Layers, first)
	}
	w.ok(t, "exec", sb, "/bin/sh", "-c", "rm -r /dir; echo 2 >/second")
	w.ok(t, "commit", sb, "second:1")
	if got := w.ok(t, "run", "--pull", "never", "second:1", "/bin/sh", "-c", "cat /second; test -e /dir || echo gone"); got != "2\ngone\n" {
		t.Errorf("two commits show %q", got)
	}
	if out := w.ok(t, "image", "verify"); !strings.Contains(out, "good") || strings.Contains(out, "damaged") {
		t.Errorf("verify: %s", out)
	}
	w.ok(t, append([]string{"rm", "-f"}, strings.Fields(w.ok(t, "ps", "-a", "-q"))...)...)
	w.removeLayers(t)
}

// TestCommitRefused: what can not be committed says why, and the sandbox goes on.
func TestCommitRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.importTiny(t, "base:1")
	sb, host := w.create(t, "base:1"), w.create(t, "host")
	for words, args := range map[string][]string{
		"no sandbox":     {"nobody", "x:1"},
		"built in":       {sb, "host"},
		"lower case":     {sb, "UPPER"},
		"made of layers": {host, "x:1"},
		"digest":         {sb, "x@sha256:" + strings.Repeat("0", 64)},
		"working_dir":    {"-w", "relative", sb, "x:1"},
		"not NAME=VALUE": {"-e", "NAME", sb, "x:1"},
		"no JSON array":  {"--cmd", "[x", sb, "x:1"},
		"longer than":    {"-m", strings.Repeat("x", 5000), sb, "x:1"},
	} {
		w.run(t, append([]string{"commit"}, args...)...).want(t, 125).says(t, words)
	}
	if list := w.ok(t, "image", "ls", "-q"); list != "docker.io/library/base:1\n" {
		t.Errorf("in the store: %q", list)
	}
	w.ok(t, "exec", sb, "/bin/sh", "-c", ":")
	if left, _ := filepath.Glob(filepath.Join(w.root(), "data/images/tmp/*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
