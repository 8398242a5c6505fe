package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/internal/paths"
	"github.com/hutch-sh/hutch/internal/webapi"
	"github.com/hutch-sh/hutch/runtime/api"
)

// notifier tells a user who is not looking that an agent has ended, or asks. It is the value of --notify.
type notifier struct {
	url string
	off bool
}

func (n *notifier) String() string { return n.url }
func (n *notifier) Type() string   { return "string" }

func (n *notifier) Set(v string) error {
	if v == "off" {
		n.url, n.off = "", true
		return nil
	}
	u, err := url.Parse(v)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return errors.New("a notice goes to an http:// or https:// URL, or off") // without the text: it may hold a token
	}
	n.url, n.off = v, false
	return nil
}

// notifyVariable is where the process that watches over an agent finds the value: arguments are seen by others.
const notifyVariable = "HUTCH_AGENT_NOTIFY"

// notice is what a URL gets.
type notice struct {
	Event      string      `json:"event"` // ended or asks
	Agent      string      `json:"agent"`
	Sandbox    string      `json:"sandbox"`
	ExitCode   *int        `json:"exit_code,omitempty"`
	Verdict    api.Verdict `json:"verdict,omitempty"`
	DurationMS float64     `json:"duration_ms,omitempty"`
	Changes    int         `json:"changes"`
	Refused    int         `json:"refused"`
	Wants      string      `json:"wants,omitempty"`  // what it asks to connect to
	Answer     string      `json:"answer,omitempty"` // what to type
}

// noticePatience bounds a notice: nobody waits longer for a desktop or a server.
const noticePatience = 12 * time.Second

// send sends a notice to the desktop, if there is one, and to the URL. What fails is said, and changes nothing.
func (n *notifier) send(ctx context.Context, about *notice, text string) {
	if n.off {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noticePatience)
	defer cancel()
	if cmd := desktopNotice(ctx, "hutch: agent "+about.Agent, text); cmd != nil {
		_ = cmd.Run() // of a desktop that is not there after all
	}
	if n.url == "" {
		return
	}
	if err := n.post(ctx, about); err != nil {
		tell(fmt.Errorf("notify: %w", err))
	}
}

// post has hutch-web make the request: this program has no HTTP.
func (n *notifier) post(ctx context.Context, about *notice) error {
	body, err := json.Marshal(about)
	if err != nil {
		return err
	}
	cfg, err := json.Marshal(webapi.Notice{URL: n.url, Body: body})
	if err != nil {
		return err
	}
	path, err := paths.Sibling("hutch-web")
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, path)
	cmd.Env = append(os.Environ(), webapi.NoticeVariable+"="+string(cfg))
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, cli.Line(string(out[:min(len(out), 1<<10)])))
	}
	return nil
}

// maxNotice bounds the text of a notice on the desktop, in bytes.
const maxNotice = 300

// desktopNotice is the command that shows a text on the user's desktop; nil where there is none. What a sandbox has
// chosen of the text is neither an option nor markup, which desktops understand: links and pictures.
func desktopNotice(ctx context.Context, title, text string) *exec.Cmd {
	if os.Getenv("DISPLAY")+os.Getenv("WAYLAND_DISPLAY")+os.Getenv("DBUS_SESSION_BUS_ADDRESS") == "" {
		return nil
	}
	path, err := exec.LookPath("notify-send")
	if err != nil {
		return nil
	}
	safe := func(s string) string {
		s = cli.Line(s)
		s = strings.ToValidUTF8(s[:min(len(s), maxNotice)], "")
		return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `\`, "/").Replace(s)
	}
	return exec.CommandContext(ctx, path, "--app-name=hutch", "--", safe(title), safe(text))
}

// noticeEnd says that the agent has ended.
func (a *agent) noticeEnd(ctx context.Context, changes, refused int) {
	n := notice{Event: "ended", Agent: a.name, Sandbox: a.sandbox, Changes: changes, Refused: refused}
	if r := a.result; r != nil {
		n.ExitCode, n.Verdict, n.DurationMS = &r.ExitCode, r.Verdict, r.DurationMS
	}
	text := fmt.Sprintf("%s; %s; %s", howEnded(a.result), counted(changes, "change"), a.comeBack())
	a.flags.notify.send(ctx, &n, text)
}

// noticeAsks says what the agent asks to connect to, until stop is called, which waits for the last one.
func (a *agent) noticeAsks(ctx context.Context) (stop func()) {
	if !a.asks || a.flags.notify.off {
		return func() {}
	}
	events, err := a.client.Subscribe(ctx,
		api.SubscribeParams{Sandbox: a.sandbox, Kinds: []api.EventKind{api.EventNetworkAsk}})
	if err != nil {
		tell(err)
		return func() {}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e, err := range events.All(ctx) {
			var q api.AskEvent
			if err != nil || json.Unmarshal(e.Data, &q) != nil {
				return
			}
			n := notice{Event: "asks", Agent: a.name, Sandbox: a.sandbox, Wants: q.Where(),
				Answer: "hutch network answer " + q.ID + " once|session|always|deny"}
			a.flags.notify.send(ctx, &n, "asks to connect to "+q.Where()+"; hutch network asks")
		}
	}()
	return func() {
		events.Close()
		<-done
	}
}

// watchApart starts a process that watches over a detached agent, if anybody is to hear of its end.
func (a *agent) watchApart() error {
	n := &a.flags.notify
	if n.off || n.url == "" && desktopNotice(context.Background(), "", "") == nil {
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.Command(self, "agent", "--watch", "--attach", a.sandbox)
	cmd.Env = append(os.Environ(), notifyVariable+"="+n.url)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // the end of the terminal is not its own
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the process that notifies: %w", err)
	}
	return cmd.Process.Release()
}

// watch is what that process does.
func (a *agent) watch(ctx context.Context) error {
	if v := os.Getenv(notifyVariable); v != "" {
		if err := a.flags.notify.Set(v); err != nil {
			return err
		}
	}
	stop := a.noticeAsks(ctx)
	res, err := a.wait(ctx)
	stop()
	if err != nil {
		return err
	}
	a.result = res
	d, err := a.client.AllChanges(ctx,
		api.WorkspaceDiffParams{WorkspaceParams: api.WorkspaceParams{Sandbox: a.sandbox}})
	if err != nil {
		return err
	}
	w, err := whyOf(ctx, a.client, a.sandbox)
	if err != nil {
		return err
	}
	w.hideProbes()
	a.noticeEnd(ctx, len(d.Changes), len(w.Denials))
	return nil
}
