// Package deptest holds the tests that keep the architecture: what each binary
// links, that lint refuses forbidden imports, what lies at the top level.
package deptest
