package audit

import "testing"

// TestGolden: a log that the build of 3f74611 has written is whole, to its head.
func TestGolden(t *testing.T) {
	res, err := verifyDir("testdata/golden", "sb_wwyzmsaq4nfp", nil, nil)
	if err != nil || !res.OK || res.Records < 8 {
		t.Errorf("%+v, %v", res, err)
	}
}
