package main

import "testing"

// TestConnections: one user cannot take all connections, all users together get no more than there are, and what is
// closed can be had again.
func TestConnections(t *testing.T) {
	c := connections{most: 16}
	enter := func(uid uint32, n, want int) {
		t.Helper()
		got := 0
		for range n {
			if c.enter(uid) == nil {
				got++
			}
		}
		if got != want {
			t.Errorf("user %d got %d of %d, want %d", uid, got, n, want)
		}
	}
	enter(1, 20, 14)
	enter(2, 1, 1)
	enter(0, 5, 1)
	c.leave(2)
	enter(2, 3, 1)
	for range 14 {
		c.leave(1)
	}
	c.leave(2)
	c.leave(0)
	if c.all != 0 || len(c.by) != 0 {
		t.Errorf("%d are left: %v", c.all, c.by)
	}
	enter(1, 1, 1)
}
