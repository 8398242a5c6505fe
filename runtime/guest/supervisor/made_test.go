package supervisor

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// TestMadeList: each repository is handed over once, but again until it is known that the answer has arrived; one that
// is made again is new.
func TestMadeList(t *testing.T) {
	var l madeList
	take := func(number uint64, acks []uint64, want ...string) {
		t.Helper()
		if got, more := l.take(number, acks); !slices.Equal(got, want) || more {
			t.Errorf("answer %d: %q, %v, want %q", number, got, more, want)
		}
	}
	take(1, nil)
	l.add("/a")
	l.add("/a")
	take(2, []uint64{1}, "/a")
	take(3, nil, "/a") // a hutchd was killed between
	l.add("/b")
	take(4, []uint64{2}, "/a", "/b")
	l.add("/a")
	take(5, []uint64{4}, "/a")
	take(6, []uint64{5})
}

// TestMadeListBounded: whatever the names are, what is kept fits into one answer, and what is not is said.
func TestMadeListBounded(t *testing.T) {
	for name, path := range map[string]string{
		"short": "/%d", "long": "/%d" + strings.Repeat("x", guestapi.MaxPath-6),
		"control": "/%d" + strings.Repeat("\x01", 900),
		"no text": "/%d" + strings.Repeat("\xffa", 1900), "markup": "/%d" + strings.Repeat("<", 3000),
	} {
		t.Run(name, func(t *testing.T) {
			var l madeList
			l.add(fmt.Sprintf(path, 0))
			if got, more := l.take(1, nil); len(got) != 1 || more {
				t.Fatalf("%d, %v: one has room", len(got), more)
			}
			for i := range 10 * guestapi.MaxMade {
				l.add(fmt.Sprintf(path, i))
			}
			got, more := l.take(2, nil) // with the one before
			data, err := json.Marshal(guestapi.Event{Ev: guestapi.EvReady, Made: got, More: more})
			if err != nil || len(data) > guestapi.MaxPacket || !more || len(got) == 0 || len(got) > guestapi.MaxMade {
				t.Errorf("%d paths in %d bytes, more: %v, %v", len(got), len(data), more, err)
			}
			if _, more := l.take(3, []uint64{2}); more {
				t.Error("more is said again")
			}
		})
	}
}

// TestWireText: a path arrives within its bound, as text that JSON does not change.
func TestWireText(t *testing.T) {
	for _, p := range []string{"/a/b", "/" + strings.Repeat("\xff", 5000), "/" + strings.Repeat("\xffa", 2500),
		"/" + strings.Repeat("ä", 2500)} {
		got := wireText(p)
		data, err := json.Marshal(got)
		var back string
		if err == nil {
			err = json.Unmarshal(data, &back)
		}
		if err != nil || back != got || len(got) > guestapi.MaxPath || !strings.HasPrefix(got, "/") {
			t.Errorf("%.8q: %d bytes, %v", p, len(got), err)
		}
	}
	if got := wireText("/a/b"); got != "/a/b" {
		t.Errorf("%q", got)
	}
}
