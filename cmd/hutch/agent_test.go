package main

import (
	"bufio"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/runtime/api"
)

// TestTellGroups: what was refused is told by kind, bounded, with flags that a shell takes as nothing else.
func TestTellGroups(t *testing.T) {
	all := &why{Sandbox: "sb_1", Failures: []api.Failure{{Target: "c.test:1", Why: "nothing listens"}}}
	deny := func(kind, target, how string, count int64) {
		all.Denials = append(all.Denials, api.Denial{Kind: kind, Target: target, Why: "it is so", HowToAllow: how, Count: count})
	}
	deny(api.KindNet, "a.test", "--allow a.test", 1)
	deny(api.KindNet, "b.test:443", "--allow b.test", 3)
	deny(api.KindNet, "b.test", "--allow b.test", 1)
	deny(api.KindNet, "x;reboot", "--allow x;reboot", 1)
	deny(api.KindNet, "192.0.2.1:80", "--allow-cidr 192.0.2.1", 1)
	deny(api.KindSyscall, "clone", "--seccomp browser", 2)
	deny(api.KindFile, "write /usr/x\x1b[2J", "", 1)
	var out strings.Builder
	tellGroups(&out, all, "claude")
	want := `hutch: refused: network: b.test:443 (3 times), a.test, b.test, x;reboot, 192.0.2.1:80
hutch: refused: system call: clone (2 times): it is so
hutch: refused: file: write /usr/x?[2J: it is so
hutch: to allow it next time: hutch agent --allow b.test --allow a.test --allow-cidr 192.0.2.1 claude
hutch: network: c.test:1 failed: nothing listens
`
	if out.String() != want {
		t.Errorf("%s", out.String())
	}
	for range 2 * maxGrouped {
		deny(api.KindNet, strings.Repeat("n", len(all.Denials))+".test", "", 1)
	}
	out.Reset()
	if tellGroups(&out, all, "claude"); !strings.Contains(out.String(), " more: hutch why sb_1") {
		t.Errorf("%s", out.String())
	}
	out.Reset()
	if tellGroups(&out, &why{}, "claude"); out.Len() > 0 {
		t.Errorf("of nothing: %s", out.String())
	}
}

// TestAddTo: what flags allow is added to the template's policy; a mode takes its place.
func TestAddTo(t *testing.T) {
	template := api.NetPolicy{Mode: api.NetAllow, Allow: []string{"model.test"}}
	flags := api.NetPolicy{Mode: api.NetAllow, Allow: []string{"a.test"}, Ask: true}
	got := (&netFlags{}).addTo(template, flags)
	if strings.Join(got.Allow, " ") != "model.test a.test" || !got.Ask || len(template.Allow) != 1 {
		t.Errorf("%+v", got)
	}
	for what, c := range map[string]struct {
		f               netFlags
		template, flags api.NetPolicy
		want            string
	}{
		"no flags":         {netFlags{}, template, api.NetPolicy{}, ""}, // the daemon takes the template's
		"a mode":           {netFlags{mode: api.NetAllow}, template, flags, "a.test"},
		"a file":           {netFlags{file: "f"}, template, flags, "a.test"},
		"no policy":        {netFlags{}, api.NetPolicy{}, flags, "a.test"},
		"an implied mode":  {netFlags{}, api.NetPolicy{Allow: []string{"m.test"}}, flags, "m.test a.test"},
		"an open template": {netFlags{}, api.NetPolicy{Mode: api.NetOpen}, flags, "a.test"},
	} {
		if got := c.f.addTo(c.template, c.flags); strings.Join(got.Allow, " ") != c.want {
			t.Errorf("%s: %+v", what, got)
		}
	}
}

// TestAskApply: only clear answers count, and the end of the input is none.
func TestAskApply(t *testing.T) {
	for in, want := range map[string]byte{"y\n": 'y', "N\n": 'n', "yes\nd\ndiscard\n": 'd', "": 'n', "\n\nc\n": 'c'} {
		var out strings.Builder
		if got, err := askApply(bufio.NewReader(strings.NewReader(in)), &out, true); got != want || err != nil {
			t.Errorf("%q: %c, %v", in, got, err)
		}
	}
	// What was not shown is not applied.
	if got, err := askApply(bufio.NewReader(strings.NewReader("y\nn\n")), io.Discard, false); got != 'n' || err != nil {
		t.Errorf("%c, %v", got, err)
	}
}

// TestDesktopNotice: what a sandbox has chosen of a text is no option and no markup, and bounded.
func TestDesktopNotice(t *testing.T) {
	bin := t.TempDir()
	writeProgram(t, bin+"/notify-send")
	t.Setenv("PATH", bin)
	t.Setenv("DISPLAY", "")
	t.Setenv("WAYLAND_DISPLAY", "")
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "")
	if cmd := desktopNotice(t.Context(), "t", "x"); cmd != nil {
		t.Errorf("without a desktop: %v", cmd.Args)
	}
	t.Setenv("DISPLAY", ":9")
	cmd := desktopNotice(t.Context(), "--hint=x", `<img src="file:///x">&`+"\x1b\n"+strings.Repeat("é", maxNotice))
	if cmd == nil {
		t.Fatal("none")
	}
	text := cmd.Args[4]
	if cmd.Args[2] != "--" || cmd.Args[3] != "--hint=x" ||
		strings.ContainsAny(text, "<>\x1b\n") || len(text) > 2*maxNotice {
		t.Errorf("%q", cmd.Args)
	}
	t.Setenv("PATH", t.TempDir())
	if cmd := desktopNotice(t.Context(), "t", "x"); cmd != nil {
		t.Errorf("without the program: %v", cmd.Args)
	}
}

// TestNotifyURL: a notice goes to HTTP, and an error does not show what may be a token.
func TestNotifyURL(t *testing.T) {
	for v, ok := range map[string]bool{"https://a.test/x": true, "http://127.0.0.1:1": true, "off": true,
		"ftp://a.test/secret": false, "secret": false, "https:///secret": false, "http://a.test:x/secret": false} {
		var n notifier
		if err := n.Set(v); (err == nil) != ok || err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", v, err)
		}
	}
}

func writeProgram(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}
