package sandbox

import (
	"context"
	"testing"
	"testing/synctest"
)

// TestCrew: who waits waits for those, too, that come meanwhile, and no longer than the context; others may come while
// none is left.
func TestCrew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c crew
		c.Wait(t.Context()) // for nobody
		first, second := make(chan bool), make(chan bool)
		c.Go(func() {
			<-first
			c.Go(func() { <-second })
		})
		short, cancel := context.WithCancel(t.Context())
		over := make(chan bool)
		go func() { c.Wait(t.Context()); close(over) }()
		go cancel()
		c.Wait(short)
		close(first)
		synctest.Wait()
		select {
		case <-over:
			t.Error("one that had come meanwhile was not waited for")
		default:
		}
		close(second)
		<-over
	})
}

// TestCrewBeside: goroutines come and go while others wait, which a WaitGroup takes for a misuse.
func TestCrewBeside(t *testing.T) {
	var c, all crew
	for range 4 {
		all.Go(func() {
			for range 500 {
				c.Go(func() {})
			}
		})
		all.Go(func() {
			for range 500 {
				c.Wait(t.Context())
			}
		})
	}
	all.Wait(t.Context())
	c.Wait(t.Context())
	if c.n != 0 {
		t.Errorf("%d are left", c.n)
	}
}
