package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/leak"
	"github.com/hutch-sh/hutch/runtime/api"
)

// TestMain is also the writer that TestKill kills.
func TestMain(m *testing.M) {
	if dir := os.Getenv("AUDIT_WRITER"); dir != "" {
		fmt.Fprintln(os.Stderr, writeForEver(dir))
		os.Exit(1)
	}
	os.Exit(leak.Main(m))
}

const box = "sb_one"

func defaults() api.AuditSettings {
	return api.AuditSettings{Enabled: true, Content: "digest", Connections: "denied", MaxBytes: 1 << 20,
		TotalBytes: 1 << 30, KeepDays: 30}
}

func open(t testing.TB, dir string, s api.AuditSettings) *Logs {
	t.Helper()
	l, err := Open(dir, s, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func (l *Logs) say(sandbox, text string) {
	l.Note(Entry{Kind: api.AuditExec, Sandbox: sandbox, Exec: "ex_1",
		Data: api.AuditCommand{Argv: []string{"echo", text}}})
}

func (l *Logs) remove(sandbox string) {
	l.Note(Entry{Kind: api.AuditState, Sandbox: sandbox, Data: api.StateEvent{State: api.StateRemoved}})
}

// all reads every record of a log.
func all(t testing.TB, l *Logs, sandbox string) (records []api.AuditRecord) {
	t.Helper()
	p := api.AuditReadParams{Sandbox: sandbox}
	for {
		res, err := l.Read(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range res.Records {
			var r api.AuditRecord
			if err := json.Unmarshal(line, &r); err != nil {
				t.Fatal(err)
			}
			records = append(records, r)
		}
		if p.FromSeq = res.Next; !res.More {
			return records
		}
	}
}

func kinds(records []api.AuditRecord) (list []api.AuditKind) {
	for _, r := range records {
		list = append(list, r.Kind)
	}
	return list
}

func verify(t testing.TB, l *Logs, sandbox string, head *api.AuditHead) api.AuditVerified {
	t.Helper()
	v, err := l.Verify(t.Context(), api.AuditVerifyParams{Sandbox: sandbox, Head: head})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestLife: a log goes from daemon to daemon, and ends with its sandbox.
func TestLife(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, defaults())
	l.say(box, "a")
	l.say("sb_two", "b")
	head, err := l.Head(t.Context(), box)
	if err != nil || head.Seq != 2 {
		t.Fatal(head, err)
	}
	if v := verify(t, l, box, nil); !v.OK || v.Records != 2 || v.Closed || v.Head != head {
		t.Errorf("%+v", v)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = open(t, dir, defaults())
	l.say(box, "c")
	l.remove(box)
	l.say(box, "late: nobody's any more")
	want := []api.AuditKind{api.AuditOpened, api.AuditExec, api.AuditLeft, api.AuditResumed, api.AuditExec,
		api.AuditState, api.AuditClosed}
	got := all(t, l, box)
	if !slices.Equal(kinds(got), want) {
		t.Errorf("%q", kinds(got))
	}
	if v := verify(t, l, box, &head); !v.OK || !v.Closed || v.Resumed != 0 {
		t.Errorf("%+v", v)
	}
	res, err := l.Read(t.Context(), api.AuditReadParams{Sandbox: box, Kinds: []api.AuditKind{api.AuditExec}, FromSeq: 3,
		WaitS: 60})
	if err != nil || len(res.Records) != 1 || !res.Ended {
		t.Errorf("%+v, %v", res, err)
	}
	for _, id := range []string{"sb_three", "../audit/sb_one", "sb_one/..", ""} {
		if _, err := l.Head(t.Context(), id); api.ErrorCode(err) != api.NotFound {
			t.Errorf("%q: %v", id, err)
		}
	}
}

// TestFollow: a reader that waits gets what is noted next.
func TestFollow(t *testing.T) {
	l := open(t, t.TempDir(), defaults())
	l.say(box, "a")
	next := all(t, l, box)
	got := make(chan api.AuditRecords)
	go func() {
		res, err := l.Read(t.Context(), api.AuditReadParams{Sandbox: box, FromSeq: int64(len(next)) + 1, WaitS: 60})
		if err != nil {
			t.Error(err)
		}
		got <- res
	}()
	l.say(box, "b")
	if res := <-got; len(res.Records) == 0 || res.Next != 4 {
		t.Errorf("%+v", res)
	}
}

// TestRotate: the chain goes over files, and what is dropped the log itself tells.
func TestRotate(t *testing.T) {
	s := defaults()
	s.MaxBytes = 32 << 10
	dir := t.TempDir()
	l := open(t, dir, s)
	for i := range 500 {
		l.say(box, fmt.Sprint("line ", i))
		if i%7 == 0 {
			if err := l.Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	v := verify(t, l, box, nil)
	if !v.OK || v.First == 1 || v.Lost != 0 {
		t.Fatalf("%+v", v)
	}
	files, _ := filepath.Glob(filepath.Join(dir, box, "*.jsonl"))
	if len(files) > segments {
		t.Errorf("%d files", len(files))
	}
	got := all(t, l, box)
	if got[0].Seq != v.First || got[len(got)-1].Seq != v.Head.Seq || int64(len(got)) != v.Records {
		t.Errorf("%d to %d: %+v", got[0].Seq, got[len(got)-1].Seq, v)
	}
	l.remove(box)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	// As `hutch audit --json` prints it.
	files, _ = filepath.Glob(filepath.Join(dir, box, "*.jsonl"))
	var text []byte
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		text = append(text, data...)
	}
	if v, err := VerifyStream(bytes.NewReader(text), "file", v.Head); err != nil || !v.OK {
		t.Errorf("%+v %v", v, err)
	}
}

// TestLocked: a log that a dying hutchd still holds is not written by the next one, which says how many
// records that has cost, and goes on when it is free.
func TestLocked(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, defaults())
	l.say(box, "before")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	head, err := os.Open(filepath.Join(dir, box, "head"))
	if err != nil {
		t.Fatal(err)
	}
	defer head.Close()
	if err := unix.Flock(int(head.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	l = open(t, dir, defaults())
	l.say(box, "meanwhile")
	if err := l.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := head.Close(); err != nil {
		t.Fatal(err)
	}
	l.say(box, "after")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, box, segmentName(1)))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"before"`, string(api.AuditLost), `{"count":1}`, `"after"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if strings.Contains(string(text), "meanwhile") {
		t.Errorf("written in spite of the lock:\n%s", text)
	}
}

// TestSkipped: connections are the sandbox's own doing, and push nothing else out.
func TestSkipped(t *testing.T) {
	l := open(t, t.TempDir(), defaults())
	for range burst + 50 {
		l.Note(Entry{Kind: api.AuditDenied, Sandbox: box, Data: api.DeniedEvent{Rule: "r"}})
	}
	l.say(box, "still told")
	got := all(t, l, box)
	if last := got[len(got)-1]; last.Kind != api.AuditExec {
		t.Errorf("%+v", last)
	}
	i := slices.Index(kinds(got), api.AuditSkipped)
	var loss api.AuditLoss
	if i < 0 || json.Unmarshal(got[i].Data, &loss) != nil || loss.Count < 1 || len(got) > burst+60 {
		t.Errorf("%d records, %v", len(got), loss)
	}
	if v := verify(t, l, box, nil); !v.OK {
		t.Errorf("%+v", v)
	}
}

func TestSweep(t *testing.T) {
	s := defaults()
	dir := t.TempDir()
	l := open(t, dir, s)
	l.say("sb_lives", "x")
	for _, id := range []string{"sb_old", "sb_new"} {
		l.say(id, "x")
		l.remove(id)
	}
	if err := l.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	past := time.Now().Add(-31 * 24 * time.Hour)
	for _, id := range []string{"sb_lives", "sb_old"} {
		files, _ := filepath.Glob(filepath.Join(dir, id, "*"))
		for _, f := range append(files, filepath.Join(dir, id)) {
			if err := os.Chtimes(f, past, past); err != nil {
				t.Fatal(err)
			}
		}
	}
	// Which sweep removes a log is not said: the first record has begun one, too.
	sweep := func(l *Logs, want ...string) {
		t.Helper()
		_, err := l.Sweep()
		left, rerr := os.ReadDir(dir)
		var names []string
		for _, e := range left {
			names = append(names, e.Name())
		}
		if err := errors.Join(err, rerr); err != nil || !slices.Equal(names, want) {
			t.Errorf("%v left, want %v; %v", names, want, err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "sb_begins"), 0o700); err != nil { // no file yet
		t.Fatal(err)
	}
	sweep(l, "sb_begins", "sb_lives", "sb_new")
	if err := os.Remove(filepath.Join(dir, "sb_begins")); err != nil {
		t.Fatal(err)
	}
	s.TotalBytes = 1
	if err := l.Configure(s); err != nil {
		t.Fatal(err)
	}
	other := open(t, dir, s) // another daemon's sweep spares what is locked
	sweep(other, "sb_lives")
}

func TestRedact(t *testing.T) {
	s := defaults()
	s.Redact, s.Content = []string{`cust-[0-9]+`}, "full"
	dir := t.TempDir()
	l := open(t, dir, s)
	env := map[string]string{"DB": "correct horse battery", "SHORT": "abc"}
	l.Note(Entry{Kind: api.AuditExec, Sandbox: box, Secrets: []map[string]string{env}, Data: api.AuditCommand{
		Argv: []string{
			"tool", "--password", "hunter22", "--token=s3cr3ttoken", "-H", "Authorization: Bearer abcdefghijkl",
			"https://me:geheim@host/x",
			"correct horse battery", "cust-4711", "abc", "plain", "ghp_0123456789012345678901234567",
		},
		Env: names(env), Stdin: Whole([]byte("db=correct horse battery\nAPI_KEY: \"sesamsesam\"\n"), true),
	}})
	r := all(t, l, box)[1]
	var c struct {
		Argv  []string
		Stdin api.AuditContent
	}
	if err := json.Unmarshal(r.Data, &c); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"tool", "--password", redacted, "--token=" + redacted, "-H", "Authorization: Bearer " + redacted,
		"https://me:" + redacted + "@host/x",
		"[env DB]", redacted, "abc", "plain", redacted,
	}
	if !slices.Equal(c.Argv, want) {
		t.Errorf("%q", c.Argv)
	}
	if c.Stdin.Text != "db=[env DB]\nAPI_KEY: \""+redacted+"\"\n" ||
		c.Stdin.SHA256 != digest([]byte("db=correct horse battery\nAPI_KEY: \"sesamsesam\"\n")) {
		t.Errorf("%+v", c.Stdin)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, box, segmentName(1)))
	if err != nil || regexp.MustCompile(`hunter22|s3cr3t|abcdefghijkl|geheim|horse|cust-4711|sesam|ghp_`).
		Match(bytes.ReplaceAll(text, []byte(c.Stdin.SHA256), nil)) {
		t.Errorf("%s", text)
	}
}

func names(m map[string]string) (list []string) {
	for k := range m {
		list = append(list, k)
	}
	return list
}

// TestFull: a disk that takes nothing loses records, and the log says how many.
func TestDisk(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, defaults())
	l.say(box, "a")
	if err := l.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Root may write anywhere: only a folder in the place of the file stops it.
	path := filepath.Join(dir, box, segmentName(1))
	if err := os.Rename(path, path+".aside"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	l.say(box, "b")
	if err := l.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err == nil || !os.IsNotExist(err) {
		_ = os.Rename(path+".aside", path)
	}
	l.say(box, "c")
	if v := verify(t, l, box, nil); v.OK && v.Lost == 0 {
		t.Errorf("%+v", v)
	}
}
