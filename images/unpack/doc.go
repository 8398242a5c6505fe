// Package unpack turns the tar stream of one image layer into a folder that
// overlayfs can use as a lower one. The stream is hostile: see DESIGN.md in
// the parent folder for what is refused and why nothing can be written outside
// the folder.
//
// It imports neither containers/image nor anything else of hutch than
// internal/sys and runtime/api, so that a small worker process can link it
// alone.
package unpack
