package testenv

import "testing"

// Attributes by which a failed test says what kind of failure it is (testing.T.Attr); the test runner reads them.
const (
	LateAttr  = "hutch-late"
	WrongAttr = "hutch-wrong"
)

// Late ends t because a wait for something that must happen ran out. Nothing else may be wrong: a test that has failed
// before is not late. The runner runs a late test again, because it may have been the machine; every other failure is
// final.
func Late(t testing.TB, format string, args ...any) {
	t.Helper()
	if !t.Failed() {
		t.Attr(LateAttr, "true")
	}
	t.Errorf(format, args...)
	t.FailNow()
}

// Wrong fails t, which goes on, for something that no slow machine makes: a process, mount, file, byte, denial, status
// or secret that is left, lost or told wrong. It is final even if a wait ran out in the same test.
func Wrong(t testing.TB, format string, args ...any) {
	t.Helper()
	t.Attr(WrongAttr, "true")
	t.Errorf(format, args...)
}
