package agents_test

import (
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
)

func TestMain(m *testing.M) { world.Main(m) }
