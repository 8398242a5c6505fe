package names

import (
	"os"
	"testing"

	"github.com/hutch-sh/hutch/internal/leak"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }
