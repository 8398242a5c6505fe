// Package cli is what the verbs of hutch share: how the caller's stdio meets a
// command's, signals, the terminal, values of flags, errors, exit codes, tables.
// It talks to no daemon.
package cli
