package refusals

import (
	"os"
	"testing"
)

// TestUnrouted: the counters are found in the kernel's tables, of which one that has none counts nothing.
func TestUnrouted(t *testing.T) {
	four := "Ip: Forwarding OutDiscards OutNoRoutes ReasmTimeout\nIp: 2 7 41 9\nIcmp: InMsgs\nIcmp: 5\n"
	six := "Ip6InReceives                   \t0\nIp6OutNoRoutes                  \t12\n"
	if a, b := noRoutes4([]byte(four)), noRoutes6([]byte(six)); a != 41 || b != 12 {
		t.Errorf("%d and %d, want 41 and 12", a, b)
	}
	for _, cut := range []string{"", "Ip: OutNoRoutes\n", "Ip: OutNoRoutes\nIp: \n", "Ip: OutNoRoutes\nIp: x\n",
		"Ip: OutNoRoutes\nIp:\n"} {
		if n := noRoutes4([]byte(cut)); n != 0 {
			t.Errorf("%q: %d", cut, n)
		}
	}
	if _, err := os.Stat("/proc/self/net/snmp"); err != nil {
		t.Fatal(err)
	}
	if all, v4 := Routeless(os.Getpid()); v4 < 0 || all < v4 {
		t.Errorf("%d here, %d of IPv4", all, v4)
	}
}
