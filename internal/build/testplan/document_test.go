package testplan

import (
	"flag"
	"testing"

	"github.com/hutch-sh/hutch/internal/testenv"
)

var update = flag.Bool("update", false, "renew docs/testing.md")

// TestDocument: docs/testing.md has the matrix that the tests declare.
func TestDocument(t *testing.T) {
	testenv.Generated(t, "../../../docs/testing.md", repository(t).Document(), *update)
}
