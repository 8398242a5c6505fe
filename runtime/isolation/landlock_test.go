package isolation

import (
	"testing"

	"github.com/hutch-sh/hutch/runtime/api"
)

// TestLandlock: on is a wall or an error, and what is missing is reported.
func TestLandlock(t *testing.T) {
	has, lacks := &Host{LandlockABI: 7}, &Host{LandlockReason: "too old"}
	for _, c := range []struct {
		host *Host
		want api.Landlock
		code api.Code
		abi  int
		wall string
	}{
		{has, "", "", 7, "yes"},
		{has, api.LandlockAuto, "", 7, "yes"},
		{has, api.LandlockOn, "", 7, "yes"},
		{has, api.LandlockOff, "", 0, "no"},
		{lacks, "", "", 0, "no"},
		{lacks, api.LandlockAuto, "", 0, "no"},
		{lacks, api.LandlockOn, api.Unavailable, 0, "no"},
		{lacks, api.LandlockOff, "", 0, "no"},
	} {
		err := c.host.CheckLandlock(c.want)
		if (err == nil) != (c.code == "") || err != nil && api.ErrorCode(err) != c.code {
			t.Errorf("%q, ABI %d: %v, want %q", c.want, c.host.LandlockABI, err, c.code)
		}
		var iso api.Isolation
		c.host.AddLandlock(&iso, c.want)
		if w := iso.Walls[0]; iso.LandlockABI != c.abi || w.Status != c.wall || w.Detail == "" ||
			c.host.LandlockOf(c.want) != c.abi {
			t.Errorf("%q, ABI %d: %+v", c.want, c.host.LandlockABI, iso)
		}
	}
}
