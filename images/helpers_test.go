package images

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"
)

// userHome is the HOME of whoever runs the tests.
var userHome = os.Getenv("HOME")

// TestMain gives all tests an empty HOME: the containers configuration of
// whoever runs them must not matter. containers/image asks for it once in the
// life of a process.
func TestMain(m *testing.M) {
	if os.Getenv(insideVar) != "" || os.Getenv(crashVar) != "" { // has one from its parent
		os.Exit(m.Run())
	}
	home, err := os.MkdirTemp("", "hutch-images-home-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for _, name := range []string{"XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "DOCKER_CONFIG", "REGISTRY_AUTH_FILE",
		"CONTAINERS_POLICY_JSON"} {
		_ = os.Unsetenv(name)
	}
	_ = os.Setenv("HOME", home)
	code := m.Run()
	_ = os.RemoveAll(home)
	os.Exit(code)
}

func equalJSON(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}
