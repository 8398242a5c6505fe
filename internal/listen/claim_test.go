package listen

import "testing"

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
}
