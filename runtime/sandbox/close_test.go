package sandbox

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
)

// TestCloseBounded: the end of the daemon does not wait for a create that hangs longer than it is allowed to, and says
// what is left. Without one it is done at once.
func TestCloseBounded(t *testing.T) {
	for _, hangs := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			m, s := bare(t, api.Sandbox{State: api.Creating}, api.Spec{})
			end := func() { m.drop(s); m.wg.Done() }
			m.wg.Add(1)
			m.creating[0]++
			stop := context.AfterFunc(m.ctx, func() {
				if !hangs {
					end()
				}
			})
			defer stop()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			begin := time.Now()
			err := m.Close(ctx)
			if !hangs && (err != nil || time.Since(begin) > 0) {
				t.Errorf("after %v: %v", time.Since(begin), err)
			}
			if hangs {
				if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "1 sandboxes") {
					t.Errorf("%v, want what is left", err)
				}
				end() // it ends all the same
				synctest.Wait()
			}
		})
	}
}
