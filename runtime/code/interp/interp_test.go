package interp

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/internal/testenv/cost"
	"github.com/hutch-sh/hutch/runtime/api"
)

// TestArgv: the token is the last argument; isolated interpreters take no module from the folder, though its name is
// one of the language's own.
func TestArgv(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"colorsys.py": "x = 'EVIL'\n",
		"node_modules/evil/index.js": "module.exports = 'EVIL'\n"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct{ language, code string }{
		{"python", "import colorsys; getattr(colorsys, 'x', '')"},
		{"javascript", "let r; try { r = require('evil') } catch { r = 'none' }; r"},
	} {
		t.Run(tt.language, func(t *testing.T) {
			testenv.Programs(t, Argv(tt.language, "tok", false)[0])
			for _, isolated := range []bool{false, true} {
				argv := Argv(tt.language, "tok", isolated)
				cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
				cmd.Dir, cmd.Stdin = dir, strings.NewReader(fmt.Sprintf("{\"id\": 1, \"code\": %q}\n", tt.code))
				out, err := cmd.Output()
				if err != nil || argv[len(argv)-1] != "tok" || !strings.HasPrefix(string(out), "\x1etok{") ||
					strings.Contains(string(out), "EVIL") == isolated {
					t.Errorf("isolated %v: %q, %q, %v", isolated, argv, out, err)
				}
			}
		})
	}
}

// spoken is an interpreter that says what the test chose, in pieces.
type spoken struct {
	mu      sync.Mutex // guards what follows
	said    map[api.Stream][]string
	killed  bool
	signals []string
}

func (s *spoken) Read(_ context.Context, p api.ReadParams) (api.Chunk, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.said[p.Stream]
	if len(list) == 0 {
		return api.Chunk{Offset: p.Offset, Next: p.Offset, EOF: true}, nil
	}
	s.said[p.Stream] = list[1:]
	return api.Chunk{Offset: p.Offset, Next: p.Offset + int64(len(list[0])),
		Data: base64.StdEncoding.EncodeToString([]byte(list[0]))}, nil
}

func (s *spoken) Write(context.Context, api.WriteParams) error { return nil }

func (s *spoken) Signal(_ context.Context, p api.SignalParams) error {
	s.signals = append(s.signals, p.Signal)
	return nil
}

func (s *spoken) Kill(context.Context, api.ExecRef) (api.ExecResult, error) {
	s.killed = true
	return api.ExecResult{Verdict: api.VerdictOK}, nil
}

// TestRun: output ends at the marks, wherever reads are cut; answers to other runs are none; one that answers otherwise
// is given up.
func TestRun(t *testing.T) {
	const end = "\x1etok1\n"
	for name, tt := range map[string]struct {
		out, errs            []string
		stdout, stderr, text string
		wrong                string // name of the error
	}{
		"plain": {[]string{"hi\n\x1etok{\"id\":1,\"text\":\"42\"}\n"}, []string{"e" + end}, "hi\n", "e",
			"42", ""},
		"cut": {[]string{"h", "i\x1e", "t", "ok{\"id\":", "1,\"text\":\"42\"}", "\n"},
			[]string{"\x1et", "ok1\n"}, "hi", "", "42", ""},
		"no mark": {[]string{"a\x1eb\x1eto", "k?"}, nil, "a\x1eb\x1etok?", "", "", "Exit"},
		"an earlier run": {[]string{"old\x1etok{\"id\":0}\nnew\x1etok{\"id\":1}\n"}, []string{"\x1etok0\n" + end},
			"new", "", "", ""},
		"no JSON":   {[]string{"\x1etok{\n"}, []string{end}, "", "", "", "Silent"},
		"no number": {[]string{"\x1etok{\"id\":1}\n"}, []string{"\x1etokx\n"}, "", "", "", "Silent"},
		"ends":      {[]string{"part"}, nil, "part", "", "", "Exit"},
		"text that is no": {[]string{"\xff\x1etok{\"id\":1,\"text\":\"\xff\"}\n"}, []string{end}, "\uFFFD", "",
			"\uFFFD", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := &spoken{said: map[api.Stream][]string{api.Stdout: tt.out, api.Stderr: tt.errs}}
			k := New("ex", "tok")
			var mu sync.Mutex
			told := map[api.Stream]string{}
			k.Tell = func(stream api.Stream, text string) {
				mu.Lock()
				defer mu.Unlock()
				told[stream] += text
			}
			res, err := k.Run(t.Context(), s, &api.CodeParams{Code: "1", TimeoutS: 10, OutputBytes: 1000})
			if name != "an earlier run" && (told[api.Stdout] != tt.stdout || told[api.Stderr] != tt.stderr) {
				t.Errorf("told %q", told)
			}
			if err != nil || res.Stdout != tt.stdout || res.Stderr != tt.stderr || res.Text != tt.text ||
				k.Broken != (tt.wrong != "") || s.killed != k.Broken {
				t.Errorf("%+v, %v; broken %v, killed %v", res, err, k.Broken, s.killed)
			}
			if got := res.Error; (got == nil) != (tt.wrong == "") || got != nil && got.Name != tt.wrong {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestTell: what is told is whole characters, up to the limit, and nothing that another run may have written.
func TestTell(t *testing.T) {
	run := func(k *Interpreter, pieces ...string) (told []string) {
		end := "\x1etok" + strconv.FormatInt(k.next, 10) + "\n"
		s := &spoken{said: map[api.Stream][]string{api.Stdout: pieces, api.Stderr: {end}}}
		k.Tell = func(_ api.Stream, text string) { told = append(told, text) }
		if _, err := k.Run(t.Context(), s, &api.CodeParams{Code: "1", TimeoutS: 10, OutputBytes: 8}); err != nil {
			t.Error(err)
		}
		return told
	}
	got := run(New("ex", "tok"), "a\xc3", "\xa4b\xe2\x82", "\xacrest", "of it\x1etok{\"id\":1}\n")
	if !slices.Equal(got, []string{"a", "äb", "€r"}) {
		t.Errorf("%q", got)
	}
	k := Resume("ex", "tok", 0, 0)
	id := k.next
	if got := run(k, "other\x1etok{\"id\":0}\nmine\x1etok{\"id\":"+strconv.FormatInt(id, 10)+"}\n"); got != nil {
		t.Errorf("of another run, perhaps: %q", got)
	}
	if got := run(k, "next\x1etok{\"id\":"+strconv.FormatInt(id+1, 10)+"}\n"); !slices.Equal(got, []string{"next"}) {
		t.Errorf("%q", got)
	}
}

// FuzzTake: whatever an interpreter says, in whatever pieces, is bounded text or an error.
func FuzzTake(f *testing.F) {
	f.Add([]byte("hi\n\x1etok{\"id\":1,\"text\":\"42\",\"artifacts\":[{\"kind\":\"value\",\"data\":\"x\"}]}\n"),
		[]byte("e\x1etok1\n"), uint8(3))
	f.Add([]byte("\x1e\x1etok"), []byte{}, uint8(1))
	f.Fuzz(func(t *testing.T, out, errs []byte, size uint8) {
		pieces := func(data []byte) (list []string) {
			n := int(size)%64 + 1
			for len(data) > n {
				list, data = append(list, string(data[:n])), data[n:]
			}
			return append(list, string(data))
		}
		s := &spoken{said: map[api.Stream][]string{api.Stdout: pieces(out), api.Stderr: pieces(errs)}}
		k := New("ex", "tok")
		var res api.CodeResult
		var err error
		cost.Once(t, len(out)+len(errs), func() {
			res, err = k.Run(t.Context(), s, &api.CodeParams{Code: "1", TimeoutS: 10, OutputBytes: 64})
		})
		if err != nil || len(res.Stdout) > 64*3+100 || len(res.Stderr) > 64*3+100 ||
			len(res.Artifacts) > MaxArtifacts || k.Broken != s.killed {
			t.Errorf("%+v, %v", res, err)
		}
	})
}
