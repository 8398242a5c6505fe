// Package version says which build this is. The four binaries of one build
// carry the same values; make stamps them (see Makefile), a plain go build does
// not.
package version

// Version is the release, e.g. "0.1.0"; "dev" when make did not build this.
var Version = "dev"

// Foreign is the BuildID of what make did not build, such as a program that imports hutch's packages.
const Foreign = "dev"

// BuildID is a hash of the sources the binaries were made from, 12 hexadecimal
// digits, or Foreign. Processes of one hutch compare it for equality to learn
// whether they belong together; nothing else can be read from it.
var BuildID = Foreign
