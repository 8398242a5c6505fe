package guest

import "github.com/hutch-sh/hutch/internal/testenv"

// What the kernel lets these tests do depends on who runs them.
var _ = testenv.PackageAxes(testenv.User)
