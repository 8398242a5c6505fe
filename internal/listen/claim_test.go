package listen

import (
	"os"
	"sync"
	"testing"
)

func TestClaim(t *testing.T) {
	dir := t.TempDir()
	if Claimed(dir, 80) {
		t.Error("claimed by nobody")
	}
	first, err := Claim(dir, 80)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Claim(dir, 80) // on another address
	if err != nil {
		t.Fatal(err)
	}
	if !Claimed(dir, 80) || Claimed(dir, 81) {
		t.Error("the claim of 80 is not seen, or is one of 81")
	}
	if err := first(); err != nil || !Claimed(dir, 80) {
		t.Errorf("the second claim went with the first, or %v", err)
	}
	if err := second(); err != nil || Claimed(dir, 80) {
		t.Errorf("the claim stays, or %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if err := os.WriteFile(claimPath(dir, 80), nil, 0o644); err != nil { // of one that was killed
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 4 { // who claims, looks and gives back at once is in nobody's way
		wg.Go(func() {
			for range 200 {
				release, err := Claim(dir, 80)
				if err != nil || !Claimed(dir, 80) {
					t.Errorf("not claimed: %v", err)
					return
				}
				if err := release(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if Claimed(dir, 80) {
		t.Error("a claim is left")
	}
}
