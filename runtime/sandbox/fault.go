//go:build !hutch_faults

package sandbox

// fault does nothing; see fault_seam.go.
func fault(int) error { return nil }
