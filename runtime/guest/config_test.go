package guest

import (
	"bytes"
	"encoding/binary"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/internal/testenv/cost"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// readC returns stub.c and the text between "NAME {" and the next "}" in it.
func readC(t *testing.T, name string) (file, body string) {
	t.Helper()
	data, err := os.ReadFile("stub/stub.c")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(data), "\n"+name+" {\n")
	body, _, ok2 := strings.Cut(rest, "\n}")
	if !ok || !ok2 {
		t.Fatalf("stub.c has no %s", name)
	}
	return string(data), body
}

// The C and the Go side agree on the layout: all fields are uint32 on both
// sides, so names and order are everything.
func TestLayoutIsStubs(t *testing.T) {
	file, body := readC(t, "struct config")
	var fields []string
	for _, m := range regexp.MustCompile(`(?m)^\s*(\w+) (\w+);`).FindAllStringSubmatch(body, -1) {
		if m[1] != "uint32_t" {
			t.Errorf("%s is a %s", m[2], m[1])
		}
		fields = append(fields, strings.ReplaceAll(m[2], "_", ""))
	}
	var own []string
	for f := range reflect.TypeFor[header]().Fields() {
		if f.Type.Kind() != reflect.Uint32 {
			t.Errorf("%s is a %s", f.Name, f.Type)
		}
		own = append(own, strings.ToLower(f.Name))
	}
	if !slices.Equal(fields, own) {
		t.Errorf("C has %v\nGo has %v", fields, own)
	}
	for _, want := range []string{"#define MAGIC 0x42545348 ", "#define VERSION 1\n"} {
		if !strings.Contains(file, want) {
			t.Errorf("stub.c has no %q", want)
		}
	}
	if stubMagic != 0x42545348 || stubVersion != 1 {
		t.Error("magic or version differ")
	}
}

func TestStagesAreStubs(t *testing.T) {
	_, body := readC(t, "enum stage")
	want := []struct {
		name string
		is   stage
	}{
		{"CONFIG", stageConfig}, {"SIGNALS", stageSignals}, {"RLIMIT", stageRlimit}, {"BOUNDING", stageBounding},
		{"GROUPS", stageGroups}, {"GID", stageGID}, {"UID", stageUID}, {"CAPS", stageCaps}, {"CHDIR", stageChdir},
		{"SECCOMP", stageSeccomp}, {"EXEC", stageExec},
	}
	got := regexp.MustCompile(`STAGE_(\w+)`).FindAllStringSubmatch(body, -1)
	if len(got) != len(want) || !strings.Contains(body, "STAGE_CONFIG = 1,") {
		t.Fatalf("stages %v", got)
	}
	for i, w := range want {
		if got[i][1] != w.name || int(w.is) != i+1 {
			t.Errorf("stage %d is %s in C, %s = %d in Go", i+1, got[i][1], w.name, w.is)
		}
	}
}

// decodeConfig reads a config back as the stub does.
func decodeConfig(t *testing.T, data []byte) (header, *stubConfig) {
	t.Helper()
	var h header
	if _, err := binary.Decode(data, binary.LittleEndian, &h); err != nil {
		t.Fatal(err)
	}
	text := func(at uint64) string {
		end := bytes.IndexByte(data[at:], 0)
		if end < 0 {
			t.Fatalf("string at %d has no end", at)
		}
		return string(data[at:][:end])
	}
	table := func(at uint32) (list []string) {
		if at%8 != 0 {
			t.Errorf("table at %d is not aligned", at)
		}
		for ; ; at += 8 {
			offset := binary.LittleEndian.Uint64(data[at:])
			if offset == 0 {
				return list
			}
			list = append(list, text(offset))
		}
	}
	c := &stubConfig{cred: &credentials{uid: h.UID, gid: h.GID, setGroups: h.SetGroups == 1},
		oomScoreAdj: h.OomScoreAdj}
	c.argv, c.env = table(h.Argv+8), table(h.Env)
	for i := range h.GroupsLen {
		c.cred.groups = append(c.cred.groups, binary.LittleEndian.Uint32(data[h.Groups+4*i:]))
	}
	for i := range h.RlimitsLen {
		at := data[h.Rlimits+24*i:]
		c.rlimits = append(c.rlimits, guestapi.Rlimit{Resource: int(binary.LittleEndian.Uint32(at)),
			Soft: binary.LittleEndian.Uint64(at[8:]), Hard: binary.LittleEndian.Uint64(at[16:])})
	}
	if h.Cwd != 0 {
		c.cwd = text(uint64(h.Cwd))
	}
	if h.Path != 0 {
		c.path = text(uint64(h.Path))
	}
	return h, c
}

func FuzzEncode(f *testing.F) {
	f.Add("sh\x00-c\x00true", "A=b\x00PATH=/bin", "/tmp", "/bin", uint32(5), uint8(3))
	f.Add("", "", "", "", uint32(0), uint8(0))
	f.Fuzz(func(t *testing.T, argv, env, cwd, path string, id uint32, n uint8) {
		if strings.Contains(cwd+path, "\x00") {
			return // check refuses these
		}
		c := &stubConfig{cred: &credentials{uid: id, gid: id / 2, setGroups: n%2 == 0}, oomScoreAdj: uint32(n),
			argv: strings.Split(argv, "\x00"), env: strings.Split(env, "\x00"), cwd: cwd, path: path}
		for i := range n {
			c.cred.groups = append(c.cred.groups, id+uint32(i))
			c.rlimits = append(c.rlimits, guestapi.Rlimit{Resource: int(i), Soft: uint64(id), Hard: uint64(id) << 8})
		}
		var data []byte
		var err error
		cost.Of(t, len(argv)+len(env)+len(cwd)+len(path), func() { data, err = c.encode() })
		if err != nil {
			t.Fatal(err)
		}
		h, back := decodeConfig(t, data)
		if int(h.Size) != len(data) || !reflect.DeepEqual(c, back) {
			t.Errorf("size %d of %d\n%+v\n%+v", h.Size, len(data), c, back)
		}
	})
}
