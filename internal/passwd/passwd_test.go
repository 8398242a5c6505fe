package passwd

import (
	"fmt"
	"strings"
	"testing"
)

func TestFind(t *testing.T) {
	f := &Files{
		Passwd: "root:x:0:0::/root:\ndev:x:1000:1000::/home/dev:\n4294967296:x:5:5::/:\n",
		Group:  "wheel:x:10:root\nvideo:x:44:dev\n4294967296:x:5:\n",
	}
	for spec, want := range map[string]string{
		"": "0 0 [10] /root", ":": "0 0 [10] /root", "dev": "1000 1000 [44] /home/dev",
		// A half that is missing is as without a colon.
		"1000:": "1000 1000 [44] /home/dev", "dev:": "1000 1000 [44] /home/dev", ":1000": "0 1000 [] /root",
		":video": "0 44 [] /root",
		"77:":    "77 0 [] ", "4294967294": "4294967294 0 [] ",
	} {
		u, groups, err := f.Find(spec)
		if got := fmt.Sprint(u.UID, u.GID, groups, " ", u.Home); err != nil ||
			strings.Join(strings.Fields(got), " ") != strings.TrimSpace(want) {
			t.Errorf("%q is %s, %v, want %s", spec, got, err, want)
		}
	}
	for spec, want := range map[string]string{
		"4294967295": `user "4294967295" is no possible id`, "4294967296": `user "4294967296" is no possible id`,
		"99999999999999999999:": `user "99999999999999999999" is no possible id`,
		"dev:4294967296":        `group "4294967296" is no possible id`,
		"nobody":                `user "nobody" is neither`, "dev:none": `group "none" is neither`,
		"-1": `user "-1" is neither`,
	} {
		if u, _, err := f.Find(spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is %+v, %v, want %s", spec, u, err, want)
		}
	}
}
