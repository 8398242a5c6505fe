package files_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/internal/testenv"
)

// TestVMQuota runs TestDiskQuota as root, on the disk that prep.sh has mounted.
func TestVMQuota(t *testing.T) {
	testenv.Machine(t, "quota")
	args := append([]string{"env"}, os.Environ()...)
	cmd := exec.Command("sudo", append(args, quotaVar+"=/quota", os.Args[0], "-test.run=^TestDiskQuota$", "-test.v")...)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestDiskQuota ") {
		t.Errorf("%v\n%s", err, out)
	}
}
