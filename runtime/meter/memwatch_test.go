package meter

import (
	"testing"

	"github.com/hutch-sh/hutch/runtime/meter/procs"
)

// leaderOf is a command, by the PID of its leader.
type leaderOf int

func (l leaderOf) PID() int { return int(l) }

// TestSharesOf: a process is its exec's when it is below the leader, or in its session.
func TestSharesOf(t *testing.T) {
	a, b := leaderOf(10), leaderOf(20)
	all := []procs.Process{
		{PID: 1001, Inside: 1, PPID: 7, Session: 1001, Anon: 1 << 30},
		{PID: 1010, Inside: 10, PPID: 1001, Session: 1010, Anon: 1},
		{PID: 1011, Inside: 11, PPID: 1010, Session: 1010, Anon: 2, Shmem: 4},
		{PID: 1012, Inside: 12, PPID: 1011, Session: 1012, Anon: 8},  // a session of its own
		{PID: 1013, Inside: 13, PPID: 1001, Session: 1010, Anon: 16}, // an orphan
		{PID: 1020, Inside: 20, PPID: 1001, Session: 1020, Anon: 32},
		{PID: 1021, Inside: 21, PPID: 1001, Session: 1021, Anon: 64}, // nobody's
		{PID: 1022, Inside: 22, PPID: 1023, Session: 1022, Anon: 128},
		{PID: 1023, Inside: 23, PPID: 1022, Session: 1022, Anon: 256}, // pids that were used again meanwhile
	}
	if got := sharesOf(all, []leaderOf{a, b}); got[a] != 31 || got[b] != 32 || len(got) != 2 {
		t.Errorf("%v", got)
	}
	if got := together(all); got != 511 {
		t.Errorf("together %d", got)
	}
}
