package guard

import (
	"flag"
	"testing"

	"github.com/hutch-sh/hutch/internal/testenv"
)

var update = flag.Bool("update", false, "renew SECURITY.md")

// TestDocument: SECURITY.md has the table of what is guarded.
func TestDocument(t *testing.T) { testenv.Generated(t, "../../SECURITY.md", Document(), *update) }
