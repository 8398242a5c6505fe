package testuser

import (
	"errors"
	"os"
	"os/exec"
	"os/user"
	"strings"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/internal/testenv/mustrun"
)

// TestNew makes a user of each kind, runs a command as it, and sees it gone.
func TestNew(t *testing.T) {
	testenv.Root(t) // only root makes users
	for _, kind := range []mustrun.Kind{mustrun.SubUID, mustrun.NoSubUID} {
		t.Run(string(kind), func(t *testing.T) {
			u, err := New(t.Context(), kind)
			if err != nil {
				t.Fatal(err)
			}
			account, home := u.account, u.Home
			t.Cleanup(func() {
				if err := u.Close(); err != nil {
					t.Error(err)
				}
				if _, err := os.Stat(home); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("%s is left behind (%v)", home, err)
				}
				if _, err := user.Lookup(account); account != "" && err == nil {
					t.Errorf("account %s is left behind", account)
				}
			})
			cmd := exec.CommandContext(t.Context(), "sh", "-c",
				`id -u; touch "$HOME/mine"; grep -c "^$USER:" /etc/subuid`)
			u.Run(cmd)
			out, _ := cmd.Output() // grep's status: 1 without a range
			uid, ranges, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
			if uid == "0" || (ranges == "1") != (kind == mustrun.SubUID) {
				t.Errorf("uid %s has %s ranges", uid, ranges)
			}
		})
	}
}

// TestLeft: a process that a user has left is named, and ended.
func TestLeft(t *testing.T) {
	testenv.Root(t)
	defer func(d time.Duration) { patience = d }(patience)
	patience = time.Millisecond
	for _, kind := range []mustrun.Kind{mustrun.SubUID, mustrun.NoSubUID} {
		u, err := New(t.Context(), kind)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("sleep", "infinity")
		u.Run(cmd)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error)
		go func() { ended <- cmd.Wait() }()
		if err := u.ended(); err == nil || !strings.Contains(err.Error(), "is left: sleep infinity") {
			t.Errorf("%s: %v", kind, err)
		}
		if err := <-ended; err == nil || err.Error() != "signal: killed" {
			t.Errorf("%s: what was left ended with %v", kind, err)
		}
		if err := u.Close(); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	if _, err := New(t.Context(), mustrun.Root); err == nil {
		t.Error("a user of kind root was made")
	}
}
