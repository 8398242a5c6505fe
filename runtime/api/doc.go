// Package api is the contract of hutch: the types that cross the JSON-RPC
// socket, the error codes and the descriptors of methods. Every other package may import
// it, so it imports the standard library only.
//
// Units are part of the names (timeout_s, memory_bytes). Times are RFC 3339 in
// UTC. Unknown fields are refused, and result objects may gain fields, so a
// client must ignore what it does not know.
//
// To add a field: add it to its struct with a comment, which becomes its description in rpc.discover and docs/rpc.md
// through `make generate`, to the struct's Validate when some values make no sense, and to the CHANGELOG. To add a
// method: add its descriptor (Call) to one of the files call*.go, and `make generate`; the daemon refuses to start when
// a method has no handler or a handler no method.
package api

// Version is the version of the contract. It changes when a client written for
// an older one could misread an answer.
const Version = 1
