package testenv

import (
	"math/rand/v2"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// Lint refuses time.Sleep and time.After in tests: a test waits for an event. The waits
// below are those that remain, each with the reason why it is no bare one.

// Elapse lets d pass in a bubble of testing/synctest, and what is due then happen. Nothing
// real passes: the clock of a bubble jumps as soon as all its goroutines wait. Outside of a
// bubble it panics, as synctest.Wait does.
func Elapse(d time.Duration) {
	synctest.Wait()
	time.Sleep(d)
	synctest.Wait()
}

// RandomMoment returns at a random moment within d. It is for a test that kills at whatever
// moment, and must be survived: an event to wait for would choose the moment, which the
// test wants to leave to chance. Begin it with an event that says that the operation is
// under way, or it is spent on the start of a process.
func RandomMoment(d time.Duration) { time.Sleep(rand.N(d)) }

// RandomMomentOf is RandomMoment of an operation that brings something when it is done: at the
// latest it returns then, because the moment behind a reply is one of those that are to be
// survived, and a later one is not.
func RandomMomentOf[T any](done <-chan T, d time.Duration) {
	moment := time.NewTimer(rand.N(d))
	defer moment.Stop()
	select {
	case <-done:
	case <-moment.C:
	}
}

// Moment returns d after it was called, at a chosen moment of what is under way. It is for rounds
// that kill, or begin something else, at one moment after the other: together they see every
// part of an operation, which a few random ones do not promise. See RandomMoment.
func Moment(d time.Duration) { time.Sleep(d) }

// NextTick returns when a file that is changed from now on gets a later time than any that
// was changed before. File systems count in the ticks of the kernel, 1 to 10 ms each
// (inode_set_ctime_current), of which nobody is told: so it changes a file of its own, in a
// folder on the same file system that t does not look at, until that has a later time.
func NextTick(t testing.TB, dir string) {
	t.Helper()
	Aged(t, dir, 0)
}

// Aged returns when all that was changed by now is older than age, by the clock of files:
// for what trusts the time of a file only from that age on. See NextTick.
func Aged(t testing.TB, dir string, age time.Duration) {
	t.Helper()
	f, err := os.CreateTemp(dir, "clock-")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = f.Close()
		if err := os.Remove(f.Name()); err != nil {
			t.Error(err)
		}
	}()
	begun := changed(t, f)
	for changed(t, f).Sub(begun) <= age {
		time.Sleep(time.Millisecond)
	}
}

// changed changes a file and returns the time that it has got.
func changed(t testing.TB, f *os.File) time.Time {
	t.Helper()
	if _, err := f.WriteString("x"); err != nil {
		t.Fatal(err)
	}
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return st.ModTime()
}

// Within returns what ch brings, the zero value when it is closed. After d, or as much more
// as an emulated machine needs, t ends with failure, which says what has not come, as Late does.
// That is a bound and no wait: a test that passes never reaches it.
func Within[T any](t testing.TB, ch <-chan T, d time.Duration, failure string) T {
	t.Helper()
	late := time.NewTimer(Patience(d))
	defer late.Stop()
	select {
	case v := <-ch:
		return v
	case <-late.C:
		Late(t, "after %v: %s", d, failure)
	}
	return *new(T)
}

// Poll returns when ok says yes, which it asks every millisecond. It is for states of which
// neither the kernel nor the code under test tells anybody; where there is an event, wait
// for that. For its bound see Within.
func Poll(t testing.TB, d time.Duration, failure string, ok func() bool) {
	t.Helper()
	for late := time.Now().Add(Patience(d)); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(late) {
			Late(t, "after %v: %s", d, failure)
			return
		}
	}
}
