// Package busy makes a machine as busy as it was, for tests that failed on it.
package busy

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
)

// most is how many threads a load is repeated with, at most.
const most = 32

// Load is how many threads wanted a processor during the last minute, by /proc/loadavg: a number that Threads can
// repeat. It is at least the number of processors.
func Load() int {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return runtime.NumCPU()
	}
	first, _, _ := strings.Cut(string(text), " ")
	load, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return runtime.NumCPU()
	}
	return min(max(int(load+0.5), runtime.NumCPU()), most)
}

// Threads keeps n threads busy until stop is called, which waits for them. One call at a time: it raises GOMAXPROCS.
func Threads(n int) (stop func()) {
	done := make(chan struct{})
	before := runtime.GOMAXPROCS(0)
	runtime.GOMAXPROCS(before + n)
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			runtime.LockOSThread()
			for i := 0; ; i++ {
				if i%(1<<20) == 0 {
					select {
					case <-done:
						return
					default:
					}
				}
			}
		})
	}
	return func() { close(done); wg.Wait(); runtime.GOMAXPROCS(before) }
}
