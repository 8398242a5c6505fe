package host

import "testing"

// TestWatchRemote: what others write is looked at each time.
func TestWatchRemote(t *testing.T) {
	if !isLocal(t.TempDir()) || isLocal("/proc/self") {
		t.Error("what is local")
	}
	w := NewWatch(nil, []Source{{"/proc/self/stat", stateOf("/proc/self/stat")},
		{"/etc/hosts", stateOf("/etc/hosts")}})
	if w == nil || len(w.asked) != 1 {
		t.Fatalf("%+v", w)
	}
	w.Close()
	if nearest("/no/such/folder") != "/" || nearest("/proc/self") != "/proc/self" {
		t.Error("nearest")
	}
}
