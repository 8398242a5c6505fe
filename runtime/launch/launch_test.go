package launch_test

import "testing"

func TestIdentity(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) { k.boot(t, "identity").pass() })
}

func TestSandbox(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) { k.boot(t, "sandbox").pass() })
}
