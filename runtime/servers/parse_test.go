package servers

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/internal/testenv/cost"
)

const procTCP = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 105935 1 0000000000000000 100 0 0 10 0
   1: 00000000:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000   101        0 95612 1 0000000000000000 100 0 0 10 0
   2: 0100007F:1F90 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 7 1 0000000000000000 20 4 30 10 -1
   3: 0100007F:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 8 1 0000000000000000 100 0 0 10 0
`

func TestParseServers(t *testing.T) {
	got := parseServers(strings.NewReader(procTCP))
	want := []server{{netip.MustParseAddrPort("127.0.0.1:8080"), 105935},
		{netip.MustParseAddrPort("0.0.0.0:80"), 95612}}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("%v, want %v", got, want)
	}
	got = parseServers(strings.NewReader("x\n 0: 00000000000000000000000001000000:1F90 0:0 0A 0 0 0 0 0 9 0\n"))
	if len(got) != 1 || got[0].at != netip.MustParseAddrPort("[::1]:8080") {
		t.Errorf("%v", got)
	}
}

func FuzzParseServers(f *testing.F) {
	f.Add(procTCP)
	f.Fuzz(func(t *testing.T, text string) {
		cost.Input(t, text, func(text string) {
			for _, v := range parseServers(strings.NewReader(text)) {
				_ = v.at.Addr().IsLoopback()
			}
		})
	})
}
