package define

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/internal/testenv/cost"
	"github.com/hutch-sh/hutch/internal/yamltree/yamlread"
	"github.com/hutch-sh/hutch/runtime/api"
)

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestYAML(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"name: a\nimage: host\n", `{"name":"a","image":"host"}`},
		{"name: a\ntemplate: b\nenv: {A: b}\nlimits: {memory_bytes: 512m, cpus: 1.5, timeout_s: 2m}\npool_size: 2\n",
			`{"name":"a","template":"b","env":{"A":"b"},"limits":{"cpus":1.5,"memory_bytes":536870912,"timeout_s":120},"pool_size":2}`},
		{"name: a\nfrom: host\ncpu_cores: 2\nmemory_mb: 64\ndisk_mb: 128\nmax_processes: 9\ntimeout_seconds: 30\nallowed_domains: [x.test]\nblocked_domains: [y.x.test]\nnetwork_enabled: true\n",
			`{"name":"a","image":"host","limits":{"cpus":2,"memory_bytes":67108864,"disk_bytes":134217728,"pids":9,"timeout_s":30},"network":{"mode":"allow","allow":["x.test"],"block":["y.x.test"]}}`},
		{"name: a\nimage: host\nlimits: {memory_mb: 64}\nnetwork: {allowed_domains: [x.test]}\n",
			`{"name":"a","image":"host","limits":{"memory_bytes":67108864},"network":{"mode":"allow","allow":["x.test"]}}`},
		{"name: a\nimage: host\nnetwork_enabled: false\n", `{"name":"a","image":"host","network":{"mode":"none"}}`},
		{"name: a\nimage: host\nsteps:\n- make all\n- {run: b, user: c, timeout_s: 1m}\n- argv: [x, y]\n- folder: /f\n- copy: [p, q, /r/]\n- copy: {from: s, to: /t}\n",
			`{"name":"a","image":"host","steps":[{"run":"make all","line":4},{"run":"b","user":"c","timeout_s":60,"line":5},{"argv":["x","y"],"line":6},{"folder":"/f","line":7},{"copy":{"sources":["p","q"],"target":"/r/"},"line":8},{"copy":{"sources":["s"],"target":"/t"},"line":9}]}`},
		{"name: a\nimage: host\nstart: serve 1\nready: 80\nports: [80, {port: 81, token: true}]\nbuild: {network: {mode: open}}\n",
			`{"name":"a","image":"host","build":{"network":{"mode":"open"}},"start":{"command":"serve 1"},"ready":{"port":80},"ports":[{"port":80},{"port":81,"token":true}]}`},
		{"name: a\nimage: host\nstart_cmd: [a, b]\nready_cmd: test -e /x\n",
			`{"name":"a","image":"host","start":{"argv":["a","b"]},"ready":{"command":"test -e /x"}}`},
	} {
		got, err := YAML([]byte(tt.text), yamlread.Parse)
		if err != nil {
			t.Errorf("%s: %v", tt.text, err)
			continue
		}
		if text := asJSON(t, got.Spec); text != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.text, text, tt.want)
		}
	}
	for text, want := range map[string]string{
		"":                                   "empty",
		"- a\n":                              "line 1",
		"name: a\nimagee: b\n":               `line 2: imagee: unknown field "imagee"`,
		"name: a\nname: b\n":                 "line 2: name is set in line 1 already",
		"name: a\ncpus: 1\n":                 "line 2: cpus",
		"cpu_cores: 1\nlimits: {cpus: 2}\n":  "line 2: limits: limits.cpus is set already",
		"limits: {cpus: 2}\ncpu_cores: 1\n":  "line 2: cpu_cores: limits.cpus is set already",
		"steps: [{run: a, line: 4}]\n":       "line 1",
		"steps: [{runn: a}]\n":               `unknown field "runn"`,
		"steps:\n- a\n- copy: [x]\n":         "line 3",
		"steps:\n- copy: {from: a, to: b}\n": "is not an absolute path",
		"limits: {memory_bytes: lots}\n":     "line 1",
		"network_enabled: perhaps\n":         "neither true nor false",
		"a: &x {b: *x}\n":                    "",
		"name: a\n---\nname: b\n":            "more than one document",
		"dockerfile: [a]\n":                  "expected one value",
	} {
		if got, err := YAML([]byte(text), yamlread.Parse); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v, want %q", text, got, err, want)
		}
	}
}

func TestDockerfile(t *testing.T) {
	base := func(string) (map[string]string, error) { return map[string]string{"PATH": "/bin"}, nil }
	for _, tt := range []struct{ text, want string }{
		{"# syntax=x\nFROM debian:12 AS a\n", `{"name":"","image":"debian:12"}`},
		{"ARG V=1\nFROM img:$V\nARG V\nARG W=w$V\nENV A=$W B=\"x y\" PATH=/a:$PATH\nRUN echo $A \\\n  # comment\n  && true\nRUN [\"a\", \"b\"]\n",
			`{"name":"","image":"img:1","env":{"A":"w1","B":"x y","PATH":"/a:/bin"},"steps":[{"run":"echo $A   \u0026\u0026 true","env":{"A":"w1","B":"x y","PATH":"/a:/bin","V":"1","W":"w1"},"line":6},{"argv":["a","b"],"env":{"A":"w1","B":"x y","PATH":"/a:/bin","V":"1","W":"w1"},"line":9}]}`},
		{"FROM a\nENV old  form is  all\nWORKDIR /w\nWORKDIR sub\nUSER me\nCOPY a b/* ./\nRUN x\nCMD [\"c\"]\nENTRYPOINT e\nCMD [\"d\"]\n",
			`{"name":"","image":"a","env":{"old":"form is  all"},"workdir":"/w/sub","user":"me","steps":[{"folder":"/w","line":3},{"folder":"/w/sub","line":4},{"copy":{"sources":["a","b/*"],"target":"/w/sub/"},"line":6},{"run":"x","env":{"old":"form is  all"},"cwd":"/w/sub","user":"me","line":7}],"entrypoint":["/bin/sh","-c","e"],"cmd":["d"]}`},
		{"FROM a\nEXPOSE 80 80/tcp 81\nCMD serve\n",
			`{"name":"","image":"a","start":{"argv":["/bin/sh","-c","serve"]},"ready":{"port":80},"ports":[{"port":80},{"port":81}]}`},
		{"from a\nenv X=${Y:-d} Z=${X:+no}'$q' W=\\$x\n", `{"name":"","image":"a","env":{"W":"$x","X":"d","Z":"$q"}}`},
	} {
		got, err := Dockerfile([]byte(tt.text), nil, base)
		if err != nil {
			t.Errorf("%s: %v", tt.text, err)
			continue
		}
		if text := asJSON(t, got.Spec); text != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.text, text, tt.want)
		}
	}
	if got, err := Dockerfile([]byte("ARG A=1\nFROM a:$A\n"), map[string]string{"A": "2"}, nil); err != nil ||
		got.Spec.Image != "a:2" {
		t.Errorf("%+v, %v", got, err)
	}
	for text, want := range map[string]string{
		"":                                   "there is no FROM",
		"RUN a\n":                            "line 1: RUN comes before FROM",
		"FROM a\n\nADD x /y\n":               "line 3: ADD is not supported",
		"FROM a\nRUN b \\\n c\nVOLUME /x\n":  "line 4: VOLUME is not supported",
		"FROM a\nHEALTHCHECK NONE\n":         "line 2: HEALTHCHECK is not supported",
		"FROM a\nFROM b\n":                   "line 2: a second FROM",
		"FROM scratch\n":                     "line 1: FROM scratch",
		"FROM a\nCOPY --from=b x /y\n":       "line 2: COPY --from=b is not supported",
		"FROM a\nRUN --mount=type=cache x\n": "line 2: RUN --mount=type=cache is not supported",
		"FROM a\nRUN cat <<EOF\nx\nEOF\n":    "line 2: here-documents",
		"FROM a\nNONSENSE\n":                 `line 2: "NONSENSE" is no instruction`,
		"FROM a\nCOPY x\n":                   "line 2: COPY needs",
		"FROM a\nEXPOSE 53/udp\n":            "line 2: EXPOSE 53/udp",
		"FROM a\nENV A=\"b\n":                "line 2: a quotation mark",
		"FROM a\nENV A=${b\n":                "line 2: ${ has no end",
		"FROM a\nENV A=${b:?c}\n":            "line 2: ${b:?c} is not supported",
		"# escape=`\nFROM a\n":               "line 1: the escape character",
	} {
		got, err := Dockerfile([]byte(text), nil, nil)
		var e *api.Error
		if err == nil || !strings.Contains(err.Error(), want) || !errors.As(err, &e) || e.Hint == "" {
			t.Errorf("%q: %+v, %v, want %q and a hint", text, got, err, want)
		}
	}
	if _, err := Dockerfile([]byte("FROM a\n"), map[string]string{"X": "y"}, nil); err == nil ||
		!strings.Contains(err.Error(), "no ARG X") {
		t.Errorf("a build arg that nothing takes: %v", err)
	}
}

// TestResolve: what is copied is called what COPY would call it, nothing that is ignored, and nothing outside of the
// folder.
func TestResolve(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.txt": "a", "b.txt": "b", "d/x": "x", "d/e/y": "y", "d/skip/z": "z", "d/skip/keep": "k",
		".dockerignore": "# no\nb.txt\nd/skip/*\n!d/skip/keep\n",
	} {
		if err := errors.Join(os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755),
			os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Symlink("x", filepath.Join(dir, "d/link")),
		os.Symlink("/etc", filepath.Join(dir, "out"))); err != nil {
		t.Fatal(err)
	}
	tmpl, err := YAML([]byte("name: t\nimage: i\nsteps:\n- copy: [d, /to]\n- x\n- copy: [a.txt, /to/renamed]\n- copy: ['*.txt', d/x, /into/]\n"), yamlread.Parse)
	if err != nil {
		t.Fatal(err)
	}
	f, err := tmpl.Resolve(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var targets []string
	for _, i := range []int{0, 2, 3} {
		targets = append(targets, tmpl.Spec.Steps[i].Copy.Target)
	}
	if want := []string{"/to", "/to", "/into"}; !slices.Equal(targets, want) {
		t.Errorf("targets %q, want %q", targets, want)
	}
	var b bytes.Buffer
	if err := f.Pack(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	var names []string
	for r := tar.NewReader(&b); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
	}
	want := []string{"0/", "0/e/", "0/e/y", "0/link", "0/skip/", "0/skip/keep", "0/x", "2/", "2/renamed", "3/",
		"3/a.txt", "3/b.txt", "3/x"}
	if !slices.Equal(names, want) {
		t.Errorf("packed %q\nwant %q", names, want)
	}
	for _, source := range []string{"../etc", "out/passwd", "none"} {
		tmpl, err := YAML([]byte("steps:\n- copy: ["+source+", /to/]\n"), yamlread.Parse)
		if err == nil {
			_, err = tmpl.Resolve(dir)
		}
		if err == nil {
			t.Errorf("%s was found", source)
		}
	}
}

func FuzzYAML(f *testing.F) {
	for _, s := range []string{"name: a\nimage: b", "steps:\n- copy: [a, /b]\n- {run: c}", "limits: {memory_mb: 5}",
		"network_enabled: true\nallowed_domains: [a]", "ready: 5\nports: [1]", "a: &x [*x]"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var got *Template
		var err error
		cost.Input(t, data, func(data []byte) { got, err = YAML(data, yamlread.Parse) })
		if err != nil {
			return
		}
		for _, c := range got.Copies {
			if got.Spec.Steps[c.Step].Copy == nil || !strings.HasPrefix(c.Target, "/") {
				t.Fatalf("%+v", got)
			}
		}
		_ = got.Spec.Validate()
	})
}

func FuzzDockerfile(f *testing.F) {
	for _, s := range []string{"FROM a\nRUN b",
		"ARG A=1\nFROM a:$A\nENV B=${A:-c} C='d'\nCOPY a b /c/\nWORKDIR x\nEXPOSE 1\nCMD [\"a\"]",
		"FROM a\nENV A=${${{B:-${C:+d}}}", "# escape=`\nFROM a", "FROM a\nRUN a \\\n#c\n b"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var got *Template
		var err error
		cost.Input(t, data, func(data []byte) { got, err = Dockerfile(data, nil, nil) })
		if err != nil {
			return
		}
		got.Spec.Name = "a"
		for _, c := range got.Copies {
			if got.Spec.Steps[c.Step].Copy == nil || !strings.HasPrefix(c.Target, "/") {
				t.Fatalf("%+v", got)
			}
		}
		_ = got.Spec.Validate()
	})
}
