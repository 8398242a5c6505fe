// Package netdapi is the protocol of hutch-netd, and its client.
//
// hutch-netd finds a connected SOCK_SEQPACKET socket as fd 3, reads one request, answers and
// ends:
//
//	request  version                                     with one fd, a cgroup's folder
//	reply    version, code, errnos, 0, errno (4, LE), text   with the maps, after OK
//
// There are no paths and no options in it, and no answer but maps' fds: whoever held a
// program's fd could attach it to other cgroups.
package netdapi

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"
)

// Version is raised with every change of the protocol, and of what the maps mean.
const Version = 1

// Socket is the fd that hutch-netd finds its socket at.
const Socket = 3

// Code is how a request ended.
type Code uint8

// The codes.
const (
	OK            Code = iota
	BadRequest         // not one byte, the version, with one fd
	NoNewPrivs         // started under no_new_privs, where a file's capabilities give nothing
	UserNamespace      // started in a user namespace that is not the initial one
	NoRights           // without CAP_BPF and CAP_NET_ADMIN
	NotCgroup          // not the folder of a cgroup2
	NotOwner           // a folder of somebody else's
	Writable           // one that others may write
	Root               // that of all processes
	Hidden             // one in a hierarchy of which only a part is seen
	Attached           // one that has programs already
	Kernel             // the kernel refused something, with an errno
	MapsClosed         // maps are for CAP_BPF only
	codes
)

// reasons are what Refusal says; remedies go with them in system.doctor.
var reasons = [codes]string{
	OK:            "done",
	BadRequest:    "it does not understand the request: it is of another version, or somebody else asked",
	NoNewPrivs:    "it was started under no_new_privs, where its file's capabilities give it nothing",
	UserNamespace: "it was started in a user namespace, where its rights do not count",
	NoRights:      "it has no CAP_BPF and CAP_NET_ADMIN: sudo make install-netd gives them to its file",
	NotCgroup:     "that is no folder of a cgroup2 hierarchy",
	NotOwner:      "that cgroup is somebody else's",
	Writable:      "others may write that cgroup",
	Root:          "that is the root cgroup, of all processes",
	Hidden:        "the root of the cgroup2 hierarchy cannot be seen from here, as in a container with a cgroup namespace",
	Attached:      "that cgroup has eBPF programs already",
	Kernel:        "the kernel refused it",
	MapsClosed:    "this kernel lets nobody without CAP_BPF use eBPF maps (Linux before 5.19, with kernel.unprivileged_bpf_disabled)",
}

// Refusal is what hutch-netd answers when it does not do it.
type Refusal struct {
	Code  Code
	Errno syscall.Errno // of the system call that failed, or 0
	Text  string        // details, for logs
}

func (r *Refusal) Error() string {
	why := fmt.Sprintf("it answers with code %d, which this build does not know", r.Code)
	if r.Code < codes {
		why = reasons[r.Code]
	}
	if r.Text != "" {
		why += " (" + r.Text + ")"
	}
	return "hutch-netd: " + why
}

// Unwrap is the errno, when there is one.
func (r *Refusal) Unwrap() error {
	if r.Errno == 0 {
		return nil
	}
	return r.Errno
}

// header is the length of a reply without its text, and maxText that of the text.
const (
	header  = 8
	maxText = 1024
)

// Reply is what hutch-netd answers.
type Reply struct {
	Refusal
	// Errnos says that refused programs see the errno that a sandbox's policy names, not
	// only EPERM.
	Errnos bool
}

// Encode is the reply as it travels; a long text is cut.
func (r Reply) Encode() []byte {
	b := []byte{Version, byte(r.Code), 0, 0}
	if r.Errnos {
		b[2] = 1
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(r.Errno))
	return append(b, r.Text[:min(len(r.Text), maxText)]...)
}

// Decode reads a reply.
func Decode(b []byte) (Reply, error) {
	if len(b) < header || len(b) > header+maxText || b[0] != Version || b[2] > 1 || b[3] != 0 {
		return Reply{}, errors.New("hutch-netd answers in another version: it is not this build's")
	}
	errno := syscall.Errno(binary.LittleEndian.Uint32(b[4:]))
	return Reply{Refusal: Refusal{Code: Code(b[1]), Errno: errno, Text: string(b[header:])}, Errnos: b[2] == 1}, nil
}
