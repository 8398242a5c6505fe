package main

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/runtime/api"
)

// TestFromDocker: what docker's users type becomes what hutch has, or is answered with it; each command that is named
// exists.
func TestFromDocker(t *testing.T) {
	for _, tt := range []struct{ typed, runs, says string }{
		{"pull alpine", "image pull alpine", ""},
		{"images -q", "image ls -q", ""},
		{"rmi a b", "image rm a b", ""},
		{"container ls -a", "ps -a", ""},
		{"container run alpine", "run alpine", ""},
		{"container exec -it x sh", "exec -it x sh", ""},
		{"--version", "version", ""},
		{"network ls", "", "hutch network get"},
		{"network get x", "network get x", ""},
		{"image ls", "image ls", ""},
		{"image history x", "", "hutch image inspect"},
		{"load -q -i f.tar", "image import -q archive:f.tar", ""},
		{"load --input=f.tar", "image import archive:f.tar", ""},
		{"image load", "image import archive:-", ""},
		{"load -qi f.tar", "image import -q archive:f.tar", ""},
		{"load f.tar app:2", "image import archive:f.tar app:2", ""},
		{"port web 80/tcp", "port ls web", ""},
		{"port web", "port ls web", ""},
		{"port ls web", "port ls web", ""},
		{"port close web 80", "port close web 80", ""},
		{"volume prune", "", "hutch volume rm"},
		{"volume rm v", "volume rm v", ""},
		{"build -t x .", "", "hutch template create --dockerfile"},
		{"system df", "image du", ""},
		{"run pull", "run pull", ""},
		{"frob", "frob", ""},
		{"", "", ""},
	} {
		got, err := fromDocker(strings.Fields(tt.typed))
		var known *api.Error
		if tt.says != "" {
			if !errors.As(err, &known) || !strings.Contains(known.Hint, tt.says) {
				t.Errorf("%s: %v", tt.typed, err)
			}
		} else if err != nil || strings.Join(got, " ") != tt.runs {
			t.Errorf("%s: %q, %v, want %q", tt.typed, got, err, tt.runs)
		}
	}
	root := newRoot(nil)
	for word, w := range dockerWords {
		if (w.say == "") == (len(w.instead) == 0) {
			t.Errorf("%s is neither run nor answered, or both", word)
		}
		if cmd, _, err := root.Find(w.instead); len(w.instead) > 0 &&
			(err != nil || cmd == root || cmd.HasSubCommands()) {
			t.Errorf("%s runs %q, which is no command: %v", word, w.instead, err)
		}
		for _, m := range regexp.MustCompile(`hutch ([a-z]+)( [a-z]+)?`).FindAllStringSubmatch(w.say, -1) {
			words := strings.Fields(m[0])[1:]
			if cmd, _, err := root.Find(words); m[1] != "has" && m[1] != "runs" &&
				(err != nil || cmd == root || cmd.HasSubCommands()) {
				t.Errorf("%s says to type %s, which is no command", word, m[0])
			}
		}
	}
	for flag := range dockerFlags {
		if run, _, _ := root.Find([]string{"run"}); run.Flags().Lookup(flag) != nil {
			t.Errorf("run has --%s, and says that it has not", flag)
		}
	}
}

// TestFormat prints records as --format says.
func TestFormat(t *testing.T) {
	sb := api.Sandbox{ID: "sb_1", Name: "a\nb", Image: "host", State: api.Running, Labels: map[string]string{"x": "y"}}
	for _, tt := range []struct{ format, want, fails string }{
		{"{{.ID}} {{ .Image }}", "sb_1 host\n", ""},
		{"{{.Names}}", "\"a\\nb\"\n", ""},
		{"{{.State.Status}}{{.pid}}", "running\n", ""},
		{"{{.Labels.x}}\\t{{json .Labels}}", "y\t{\"x\":\"y\"}\n", ""},
		{"{{.workdir}}", "\n", ""},
		{"table {{.ID}}\\t{{.State}}", "ID    STATE\nsb_1  running\n", ""},
		{"{{.Frob}}", "", "no field .Frob"},
		{"{{.ID.x}}", "", "no field"},
		{"{{range .}}", "", "it takes {{.FIELD}}"},
	} {
		var out strings.Builder
		f, err := parseFormat(tt.format)
		if err == nil {
			err = f.print(&out, sb)
		}
		if tt.fails != "" {
			if err == nil || !strings.Contains(err.Error(), tt.fails) {
				t.Errorf("%s: %v", tt.format, err)
			}
		} else if err != nil || out.String() != tt.want {
			t.Errorf("%s: %q, %v, want %q", tt.format, out.String(), err, tt.want)
		}
	}
}

func TestLastLines(t *testing.T) {
	for _, tt := range []struct {
		text string
		n    int
		want string
	}{
		{"a\nb\nc\n", 2, "b\nc\n"}, {"a\nb\nc", 2, "b\nc"}, {"a\nb\n", 5, "a\nb\n"}, {"", 1, ""}, {"\n", 1, "\n"},
		{"a\n\n", 1, "\n"}, {"a\nb\n", 0, ""}, {"a", 1, "a"},
	} {
		if got := string(lastLines([]byte(tt.text), tt.n)); got != tt.want {
			t.Errorf("the last %d lines of %q are %q, want %q", tt.n, tt.text, got, tt.want)
		}
	}
}
