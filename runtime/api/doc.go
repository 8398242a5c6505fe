// Package api is the contract of hutch: the types that cross the JSON-RPC
// socket, the error codes and the method table. Every other package may import
// it, so it imports the standard library only.
//
// Units are part of the names (timeout_s, memory_bytes). Times are RFC 3339 in
// UTC. Unknown fields are refused, and result objects may gain fields, so a
// client must ignore what it does not know.
//
// To add a field: add it to its struct with a comment, to the struct's Validate
// when some values make no sense, and to the CHANGELOG; rpc.discover describes
// it by itself. To add a method: add it to Methods in methods.go; the
// dispatcher refuses to start when a method has no handler or a handler no
// method.
package api

// Version is the version of the contract. It changes when a client written for
// an older one could misread an answer.
const Version = 1
