// Package cost is what a parser may use of the CPU: fuzz targets assert that an input of n bytes takes no
// more than a bound in proportion to n, because whoever sends one that takes longer stops what others wait for.
//
// What is measured is the CPU time of the thread that parses. Waiting costs nothing, and neither does what
// other goroutines or processes do for the parser: a target whose work is done by those asserts something
// else, and says in its doc comment, behind "Cost:", why.
package cost

import (
	"hash/fnv"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Bound is what an input may cost: Base, and PerByte for each of its bytes.
type Bound struct {
	Base    time.Duration
	PerByte time.Duration
}

// Default is what most parsers stay far below, also in a binary that counts what it covers, as fuzzing needs it:
// JSON takes 0.1 µs a byte there. Base is what the garbage collector may ask of whoever allocates.
var Default = Bound{Base: 5 * time.Millisecond, PerByte: 2 * time.Microsecond}

// tries is how often an input is parsed that seems to be too expensive. The fastest one counts: a page
// fault, an assist of the garbage collector or a neighbour on the machine makes one slow, not all.
const tries = 5

// In one of grownOf inputs the parser also gets the input repeated up to grownSize bytes. Fuzzing prefers short
// inputs, in which what takes the square of their length takes no time yet. More often would slow down all the others.
const (
	grownOf   = 512
	grownSize = 32 << 10
)

// Input checks parse on in, and on what in repeated makes, against Default. It calls parse with in last, perhaps
// several times, so that parse may keep what it found for the assertions that follow.
func Input[T ~string | ~[]byte](t testing.TB, in T, parse func(in T)) {
	t.Helper()
	Within(t, Default, in, parse)
}

// Within is Input with a bound of the caller's, who says why.
func Within[T ~string | ~[]byte](t testing.TB, b Bound, in T, parse func(in T)) {
	t.Helper()
	if more := grown(string(in)); more != "" {
		b.check(t, len(more), func() { parse(T(more)) })
	}
	b.check(t, len(in), func() { parse(in) })
}

// Of checks a parser of several inputs that have n bytes together.
func Of(t testing.TB, n int, parse func()) {
	t.Helper()
	Default.check(t, n, parse)
}

// Once is Of for a parser that cannot parse again, because it reads from a stream or has a state. Such a one is
// measured once, and may therefore take several times as much.
func Once(t testing.TB, n int, parse func()) {
	t.Helper()
	limit := once * (Default.Base + time.Duration(n)*Default.PerByte)
	if took := thread(t, parse); took > limit {
		t.Errorf("an input of %d bytes takes %v of CPU time; %v is far out of proportion", n, took, limit)
	}
}

// once is how much more than its bound a parser may take that is measured once.
const once = 10

// grown returns s repeated, or "" for most. Which ones depends on s alone: what fails must fail again.
func grown(s string) string {
	if s == "" || len(s) > grownSize/2 {
		return ""
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(s)) // a hash takes everything
	if h.Sum32()%grownOf != 0 {
		return ""
	}
	return strings.Repeat(s, grownSize/len(s))
}

// check fails t when parse takes more than an input of n bytes may.
func (b Bound) check(t testing.TB, n int, parse func()) {
	t.Helper()
	limit := b.Base + time.Duration(n)*b.PerByte
	took := thread(t, parse)
	for i := 1; i < tries && took > limit; i++ {
		took = min(took, thread(t, parse))
	}
	if took > limit {
		t.Errorf("an input of %d bytes takes %v of CPU time, %d times in a row; at most %v is in proportion (%v, and %v a byte)",
			n, took, tries, limit, b.Base, b.PerByte)
	}
}

// thread is the CPU time of the calling thread while do runs.
func thread(t testing.TB, do func()) time.Duration {
	t.Helper()
	// Else the goroutine could go on on a thread whose clock tells of something else.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread() // also when do ends the test
	begin := clock(t)
	do()
	return clock(t) - begin
}

func clock(t testing.TB) time.Duration {
	t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		t.Fatalf("clock_gettime(CLOCK_THREAD_CPUTIME_ID): %v", err)
	}
	return time.Duration(ts.Nano())
}
