package isolation_test

import (
	"os"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
)

func TestMain(m *testing.M) {
	if kind := os.Getenv(outerVar); kind != "" {
		outerMain(kind)
	}
	world.Main(m)
}
