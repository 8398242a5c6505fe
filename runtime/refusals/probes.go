package refusals

import (
	"net/netip"
	"strings"

	"github.com/hutch-sh/hutch/runtime/api"
)

// What programs try by themselves, and do as well without. Among reports of it at each start nobody sees the refusal
// that matters.

// probeNames are hosts that hardly a command is about, and who looks for them. Those that a user may want, such as
// github.com, are none.
var probeNames = map[string]string{
	"update.googleapis.com":                   "Chromium looks for new components",
	"clients2.google.com":                     "Chromium looks for new extensions",
	"accounts.google.com":                     "Chromium asks which accounts are signed in, of which there are none",
	"optimizationguide-pa.googleapis.com":     "Chromium fetches hints and models",
	"content-autofill.googleapis.com":         "Chromium asks what forms are about",
	"safebrowsing.googleapis.com":             "Chromium fetches lists of bad sites",
	"safebrowsingohttpgateway.googleapis.com": "Chromium asks about sites",
	"mtalk.google.com":                        "Chromium waits for push messages",
	"android.clients.google.com":              "Chromium registers for push messages",
	"redirector.gvt1.com":                     "Chromium downloads components",
	"edgedl.me.gvt1.com":                      "Chromium downloads components",
	"detectportal.firefox.com":                "Firefox asks whether it is online",
	"incoming.telemetry.mozilla.org":          "Firefox's telemetry",
	"firefox.settings.services.mozilla.com":   "Firefox fetches settings and lists",
	"play.googleapis.com":                     "Gemini CLI's telemetry",
	"ab.chatgpt.com":                          "Codex's experiments",
	"statsig.anthropic.com":                   "Claude Code's telemetry",
	"http-intake.logs.us5.datadoghq.com":      "Claude Code's telemetry",
	"models.opencode.ai":                      "OpenCode fetches a list of models, and has one",
	"otel.cline.bot":                          "Cline's telemetry",
	"data.cline.bot":                          "Cline's telemetry",
	"us.i.posthog.com":                        "telemetry of aider, OpenHands, browser-use and others",
	"app.posthog.com":                         "the same, older",
}

// resolvers are the public ones that programs connect a UDP socket to, which sends nothing, to find out whether there
// is a way out and by which address.
var resolvers = map[netip.Addr]string{
	netip.MustParseAddr("2001:4860:4860::8888"): "Chromium finds out whether there is IPv6",
	netip.MustParseAddr("2001:4860:4860::8844"): "the same",
	netip.MustParseAddr("8.8.8.8"):              "Chromium finds out whether there is IPv4",
	netip.MustParseAddr("8.8.4.4"):              "the same",
}

// quic is the port that Chromium's probe names.
const quic = 443

// probe reports whether programs try to reach t by themselves, and do as well without.
func probe(t *api.NetTarget) bool {
	if probeNames[strings.ToLower(t.Name)] != "" {
		return true
	}
	if t.Proto != api.UDP || t.Port != quic {
		return false
	}
	a, err := netip.ParseAddr(t.Address)
	return err == nil && resolvers[a.Unmap()] != ""
}
