//go:build !hutch_faults

package launch

// faultAt fails a step of create on purpose, in builds with the tag
// hutch_faults only.
func faultAt(int) error { return nil }
