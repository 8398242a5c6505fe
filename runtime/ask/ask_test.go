package ask

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/hutch-sh/hutch/internal/audit"
	"github.com/hutch-sh/hutch/runtime/api"
)

// world is what a approvals tells, and what it has allowed.
type world struct {
	asked    chan api.AskEvent
	answered chan api.AnsweredEvent
	mu       sync.Mutex
	noted    []audit.Entry
	allowed  []string
	refuse   error
}

func (w *world) Emit(_ api.EventKind, _, _ string, data any) {
	switch e := data.(type) {
	case api.AskEvent:
		w.asked <- e
	case api.AnsweredEvent:
		w.answered <- e
	}
}

func (w *world) Note(e audit.Entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noted = append(w.noted, e)
}

func (w *world) allow(_ context.Context, sandbox string, add api.NetLists) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refuse == nil {
		w.allowed = append(w.allowed, fmt.Sprint(sandbox, add.Allow))
	}
	return w.refuse
}

func approvals(t *testing.T, file string) (*Approvals, *world) {
	t.Helper()
	w := &world{asked: make(chan api.AskEvent, 100), answered: make(chan api.AnsweredEvent, 100)}
	d, err := Open(Config{File: file, Events: w, Audit: w, Allow: w.allow, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return d, w
}

func about(name string) api.AskEvent {
	return api.AskEvent{NetTarget: api.NetTarget{Proto: api.TCP, Name: name, Port: 443}, HowToAllow: "--allow " + name}
}

// wait asks in a goroutine.
func wait(ctx context.Context, d *Approvals, sandbox string, e api.AskEvent) chan api.NetAnswer {
	got := make(chan api.NetAnswer, 1)
	go func() { got <- d.Ask(ctx, sandbox, e) }()
	return got
}

// TestApprovals: who wants the same shares a question and its answer, the first one counts, and each end is reported
// and on record.
func TestApprovals(t *testing.T) {
	file := filepath.Join(t.TempDir(), "always.json")
	d, w := approvals(t, file)
	for _, answer := range api.NetAnswers {
		name := string(answer) + ".test"
		first := wait(t.Context(), d, "sb_1", about(name))
		q := <-w.asked
		second := wait(t.Context(), d, "sb_1", about(name))
		for { // it has joined
			d.mu.Lock()
			n := d.pending[q.ID].waiters
			d.mu.Unlock()
			if n == 2 {
				break
			}
		}
		if list := d.List(); len(list.Pending) != 1 || list.Pending[0].ID != q.ID || list.Pending[0].Sandbox != "sb_1" {
			t.Errorf("%+v", list)
		}
		if err := d.Answer(t.Context(), api.AnswerParams{ID: q.ID, Answer: answer}); err != nil {
			t.Fatal(err)
		}
		if a, b, told := <-first, <-second, <-w.answered; a != answer || b != answer || told.Answer != answer ||
			told.ID != q.ID {
			t.Errorf("%s: %s, %s, %+v", answer, a, b, told)
		}
		if err := d.Answer(t.Context(),
			api.AnswerParams{ID: q.ID, Answer: answer}); api.ErrorCode(err) != api.NotFound {
			t.Errorf("again: %v", err)
		}
	}
	if want := []string{"sb_1[session.test]", "sb_1[always.test]"}; !slices.Equal(w.allowed, want) {
		t.Errorf("allowed %q, want %q", w.allowed, want)
	}
	if len(w.noted) != len(api.NetAnswers) {
		t.Errorf("%d records", len(w.noted))
	}
	// The next daemon knows what is always allowed, and does not ask.
	next, w := approvals(t, file)
	if a := next.Ask(t.Context(), "sb_2", about("always.test")); a != api.NetAlways ||
		!slices.Equal(w.allowed, []string{"sb_2[always.test]"}) {
		t.Errorf("%s, allowed %q", a, w.allowed)
	}
	if _, err := next.Forget(api.ForgetParams{Entries: []string{"always.test",
		"none.test"}}); api.ErrorCode(err) != api.NotFound || len(next.List().Always.Allow) != 1 {
		t.Errorf("%v, %+v", err, next.List())
	}
	if list, err := next.Forget(api.ForgetParams{Entries: []string{"always.test"}}); err != nil ||
		len(list.Always.Allow) != 0 {
		t.Errorf("%+v %v", list, err)
	}
	if last, _ := approvals(t, file); len(last.List().Always.Allow) != 0 {
		t.Error("what was forgotten is back")
	}
	if names, err := os.ReadDir(filepath.Dir(file)); err != nil || len(names) != 1 {
		t.Errorf("%v %v", names, err)
	}
}

// TestApprovalsBounds: a sandbox has so many questions at once, and others have theirs; a question ends with who waits
// for it.
func TestApprovalsBounds(t *testing.T) {
	d, w := approvals(t, filepath.Join(t.TempDir(), "always.json"))
	ctx, gone := context.WithCancel(t.Context())
	var waits []chan api.NetAnswer
	for i := range Most {
		waits = append(waits, wait(ctx, d, "sb_1", about(fmt.Sprint(i, ".test"))))
		<-w.asked
	}
	if a := d.Ask(t.Context(), "sb_1", about("more.test")); a != "" {
		t.Errorf("%q", a)
	}
	waits = append(waits, wait(ctx, d, "sb_2", about("more.test")))
	<-w.asked
	gone()
	for _, c := range waits {
		if a, told := <-c, <-w.answered; a != "" || told.Answer != "" {
			t.Errorf("%q %+v", a, told)
		}
	}
	if list := d.List(); len(list.Pending) != 0 {
		t.Errorf("%+v", list)
	}
}

// TestApprovalsRefused: an answer that cannot be put in force is its giver's error, and the question waits on.
func TestApprovalsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "always.json")
	synctest.Test(t, func(t *testing.T) { // in which one sees that all wait, and for nothing that will come by itself
		d, w := approvals(t, file)
		w.refuse = errors.New("the disk is full")
		got := wait(t.Context(), d, "sb_1", about("a.test"))
		q := <-w.asked
		if err := d.Answer(t.Context(), api.AnswerParams{ID: q.ID, Answer: api.NetSession}); !errors.Is(err, w.refuse) {
			t.Errorf("%v", err)
		}
		synctest.Wait()
		select {
		case a := <-got:
			t.Errorf("%q", a)
		default:
		}
		if err := d.Answer(t.Context(), api.AnswerParams{ID: q.ID, Answer: api.NetOnce}); err != nil ||
			<-got != api.NetOnce {
			t.Errorf("%v", err)
		}
	})
}

// TestApprovalsDamaged: entries that a file should not have are left out; one that is none is an error, and no reason
// to allow anything.
func TestApprovalsDamaged(t *testing.T) {
	file := filepath.Join(t.TempDir(), "always.json")
	for text, want := range map[string]string{`{"allow":["*","a.test","x y"],"allow_cidrs":["10.0.0.0/8","z"],"block":["b"]}`: "[a.test] [10.0.0.0/8]", "{": ""} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		all, err := readAlways(file)
		if got := fmt.Sprint(all.Allow, all.AllowCIDRs); (err == nil) != (want != "") || want != "" && got != want {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
}
