// Package filesapi is the protocol between hutchd and a files worker, and
// hutchd's side of it. A worker is hutch-init's own binary, started inside a
// sandbox as an ordinary exec of one user: it can do to files what that user can,
// and hutchd touches none itself.
//
// The channel is one SOCK_SEQPACKET socketpair, whose other end is the worker's
// fd 0. A packet is
//
//	length of the header, 4 bytes little-endian | header, JSON | payload
//
// and a payload that does not fit goes on in further packets of the same id; all
// but the last say "more" and have some. Calls overlap; each ends with one last packet.
//
//	hutchd -> worker                                worker -> hutchd
//	{id, op, path, ...} payload      fds: a pipe    {id, more} payload ...
//	{id, op: "data"} payload ...                    {id, ...}  or  {id, errno, path, detail}
//	{id, op: "cancel"}
//	{op: "ping"}                                    {}
//
// Trust: the worker trusts hutchd, though its packets are checked. hutchd trusts
// nothing that comes back: it receives without a control buffer (no fd ever comes
// out), bounds what it keeps, and gives a worker up that breaks the protocol.
package filesapi

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"

	"golang.org/x/sys/unix"
)

const (
	// ChannelFD is where a worker finds its end of the channel.
	ChannelFD = 0

	// MaxPacket bounds a packet in bytes: it always fits below
	// net.core.wmem_max's default of 212992.
	MaxPacket = 128 << 10
	// maxHeader bounds a header: two paths, each byte of which JSON may write as six.
	maxHeader = 56 << 10
	// chunk is how much payload goes into one packet.
	chunk = MaxPacket - maxHeader - 4

	// MaxData bounds the whole payload of a request.
	MaxData = 4 << 20

	// MaxList bounds the payload of a list's reply.
	MaxList = 16 << 20

	// MaxCalls is how many calls a worker handles at once.
	MaxCalls = 32

	// maxVersion bounds a version: three numbers of 64 bits in hex digits.
	maxVersion = 64

	// maxText bounds a text of a worker's that is passed on.
	maxText = 4096
)

// Operations.
const (
	OpRead    = "read"    // with a pipe: into it; else the payload of the reply
	OpWrite   = "write"   // from a pipe, or the payload
	OpList    = "list"    // the payload of the reply is a JSON list of Entry
	OpStat    = "stat"    // Reply.Entry
	OpMkdir   = "mkdir"   //
	OpRemove  = "remove"  //
	OpMove    = "move"    // Path to To
	OpPack    = "pack"    // a tar archive into a pipe
	OpUnpack  = "unpack"  // a tar archive from a pipe
	OpLines   = "lines"   // LinesArgs in the payload, Lines in that of the reply
	OpGrep    = "grep"    // GrepArgs in the payload, a JSON list of Match in that of the reply
	OpFind    = "find"    // FindArgs in the payload, a JSON list of Found in that of the reply
	OpReplace = "replace" // ReplaceArgs in the payload, Replaced in that of the reply
	OpPatch   = "patch"   // PatchArgs in the payload, PatchReply in that of the reply
	OpSettle  = "settle"  // SettleArgs in the payload
	OpSync    = "sync"    // SyncArgs in the payload, Synced in that of the reply
	OpData    = "data"    // more payload
	OpCancel  = "cancel"  // ends a call, which answers with ECANCELED
	OpPing    = "ping"    // is answered at once
)

// Request is the header of a packet from hutchd. Only the fields of its Op are
// set; paths are absolute.
type Request struct {
	ID   uint64 `json:"id,omitempty"`
	Op   string `json:"op"`
	More bool   `json:"more,omitempty"`
	Path string `json:"path,omitempty"`
	To   string `json:"to,omitempty"` // move: the new path; pack: the name of the topmost entry

	Offset  int64  `json:"offset,omitempty"`  // read: negative counts from the end; list: entries to leave out
	Limit   int64  `json:"limit,omitempty"`   // read: bytes, 0 with a pipe is all; list: entries
	Depth   int    `json:"depth,omitempty"`   // list: levels below Path
	Mode    *int64 `json:"mode,omitempty"`    // permission bits
	Size    *int64 `json:"size,omitempty"`    // write from a pipe: fewer bytes are an error
	Ordered bool   `json:"ordered,omitempty"` // list: the first of all names, not of those that come first
	Special bool   `json:"special,omitempty"`
	Follow  bool   `json:"follow,omitempty"`

	At        bool `json:"at,omitempty"`        // write: into the file at Offset, nothing else changes
	Append    bool `json:"append,omitempty"`    // write
	NoCreate  bool `json:"no_create,omitempty"` // write
	Exclusive bool `json:"exclusive,omitempty"` // write: the file, move: To must not exist
	InPlace   bool `json:"in_place,omitempty"`  // write: never by rename
	Atomic    bool `json:"atomic,omitempty"`    // write: by rename or not at all
	Parents   bool `json:"parents,omitempty"`   // write, mkdir
	// Version is what the file must have for a write: Entry.Version.
	Version   string `json:"version,omitempty"`
	Recursive bool   `json:"recursive,omitempty"` // remove
	KeepOwner bool   `json:"keep_owner,omitempty"`
	Folders   bool   `json:"folders,omitempty"` // unpack

	Attributes map[string]string `json:"attributes,omitempty"` // write: by their names below "user."
	Describe   bool              `json:"describe,omitempty"`   // list, stat: attributes, too
}

// Reply is the header of a packet from a worker: untrusted.
type Reply struct {
	ID   uint64 `json:"id,omitempty"`
	More bool   `json:"more,omitempty"`

	Errno  int    `json:"errno,omitempty"`
	Path   string `json:"path,omitempty"`   // where it failed
	Detail string `json:"detail,omitempty"` // why, where the errno does not say it

	Offset    int64  `json:"offset,omitempty"` // read: of the first byte
	Size      int64  `json:"size,omitempty"`   // of the file
	Bytes     int64  `json:"bytes,omitempty"`  // moved
	Count     int64  `json:"count,omitempty"`  // entries
	Skipped   int64  `json:"skipped,omitempty"`
	EOF       bool   `json:"eof,omitempty"`
	Created   bool   `json:"created,omitempty"`
	Atomic    bool   `json:"atomic,omitempty"`
	Truncated bool   `json:"truncated,omitempty"`
	Entry     *Entry `json:"entry,omitempty"`
}

// Entry describes one file. Names are bytes.
type Entry struct {
	Path   []byte    `json:"path"` // below what was listed; of a stat, the last name
	Mode   uint32    `json:"mode"` // as stat(2) has it
	Size   int64     `json:"size"`
	MTime  time.Time `json:"mtime"`
	UID    uint32    `json:"uid"`
	GID    uint32    `json:"gid"`
	Target []byte    `json:"target,omitempty"` // of a symbolic link
	// Version changes with whatever writes the file or takes its place.
	Version string `json:"version,omitempty"`
	Errno   int    `json:"errno,omitempty"` // of a folder: why it was not entered

	Attributes map[string][]byte `json:"attributes,omitempty"` // by their names below "user."
}

// Error is why a call failed inside. Its texts are printable and bounded.
type Error struct {
	Errno  unix.Errno
	Path   string
	Detail string
}

func (e *Error) Error() string {
	why := e.Detail
	if why == "" {
		why = e.Errno.Error()
	}
	if e.Path == "" {
		return why
	}
	return e.Path + ": " + why
}

func (e *Error) Unwrap() error { return e.Errno }

// Encode makes a packet.
func Encode(header any, payload []byte) ([]byte, error) {
	head, err := json.Marshal(header)
	if err != nil {
		return nil, fmt.Errorf("encode header: %w", err)
	}
	if len(head) > maxHeader || len(payload) > chunk {
		return nil, fmt.Errorf("header of %d and payload of %d bytes: %w", len(head), len(payload), unix.EMSGSIZE)
	}
	packet := make([]byte, 4, 4+len(head)+len(payload))
	binary.LittleEndian.PutUint32(packet, uint32(len(head)))
	return append(append(packet, head...), payload...), nil
}

// Chunk cuts what fits into one packet off a payload.
func Chunk(payload []byte) (first, rest []byte) {
	n := min(len(payload), chunk)
	return payload[:n], payload[n:]
}

// split is the inverse of Encode; the payload is part of the packet.
func split(packet []byte, header any) (payload []byte, err error) {
	if len(packet) < 4 || len(packet) > MaxPacket {
		return nil, fmt.Errorf("packet of %d bytes", len(packet))
	}
	n := binary.LittleEndian.Uint32(packet)
	if n > maxHeader || int(n) > len(packet)-4 {
		return nil, fmt.Errorf("header of %d bytes in a packet of %d", n, len(packet))
	}
	if err := json.Unmarshal(packet[4:4+n], header); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	return packet[4+n:], nil
}

// ParseRequest parses a packet from hutchd.
func ParseRequest(packet []byte) (*Request, []byte, error) {
	req := &Request{}
	payload, err := split(packet, req)
	if err != nil {
		return nil, nil, err
	}
	switch req.Op {
	case OpRead, OpWrite, OpList, OpStat, OpMkdir, OpRemove, OpMove, OpPack, OpUnpack, OpLines, OpGrep, OpFind,
		OpReplace, OpPatch, OpSettle, OpSync:
		if !strings.HasPrefix(req.Path, "/") || req.Op == OpMove && !strings.HasPrefix(req.To, "/") {
			return nil, nil, fmt.Errorf("%s: %.64q and %.64q are not absolute", req.Op, req.Path, req.To)
		}
		if strings.IndexByte(req.Path, 0) >= 0 || strings.IndexByte(req.To, 0) >= 0 {
			return nil, nil, fmt.Errorf("%s: a NUL byte in a path", req.Op)
		}
	case OpData, OpCancel, OpPing:
	default:
		return nil, nil, fmt.Errorf("unknown operation %.32q", req.Op)
	}
	return req, payload, nil
}

// parseReply parses a packet from a sandbox and makes it safe to pass on.
func parseReply(packet []byte) (*Reply, []byte, error) {
	r := &Reply{}
	payload, err := split(packet, r)
	if err != nil {
		return nil, nil, err
	}
	if r.Errno < 0 || r.Errno > 4095 { // MAX_ERRNO of linux/err.h
		return nil, nil, fmt.Errorf("errno %d", r.Errno)
	}
	for _, n := range []int64{r.Offset, r.Size, r.Bytes, r.Count, r.Skipped} {
		if n < 0 {
			return nil, nil, fmt.Errorf("a negative number in %+v", *r)
		}
	}
	if r.Offset > maxOffset || r.Size > maxOffset || r.Bytes > maxOffset {
		return nil, nil, fmt.Errorf("an impossible size in %+v", *r)
	}
	r.Path, r.Detail = printable(r.Path), printable(r.Detail)
	if r.Entry != nil {
		if err := r.Entry.check(); err != nil {
			return nil, nil, err
		}
	}
	return r, payload, nil
}

// maxOffset keeps sums of two sizes from overflowing.
const maxOffset = 1 << 62

// ParseEntries parses the payload of a list's reply.
func ParseEntries(data []byte, limit int) ([]Entry, error) {
	return parseList(data, limit, (*Entry).check)
}

// parseList parses a list of at most limit elements, each of which check accepts.
func parseList[T any](data []byte, limit int, check func(*T) error) ([]T, error) {
	var list []T
	d := json.NewDecoder(bytes.NewReader(data))
	if t, _ := d.Token(); t != json.Delim('[') {
		return nil, fmt.Errorf("%d bytes that are no list", len(data))
	}
	for d.More() { // one by one: a short text may hold millions that are empty
		var e T
		err := d.Decode(&e)
		if err == nil {
			err = check(&e)
		}
		if err == nil && len(list) == limit {
			err = fmt.Errorf("over %d, which were asked for", limit)
		}
		if err != nil {
			return nil, fmt.Errorf("entry %d of a list: %w", len(list), err)
		}
		list = append(list, e)
	}
	if _, err := d.Token(); err != nil {
		return nil, fmt.Errorf("list of %d bytes: %w", len(data), err)
	}
	return list, nil
}

func (e *Entry) check() error {
	switch {
	case len(e.Path) == 0 || len(e.Path) > unix.PathMax || len(e.Target) > unix.PathMax:
		return fmt.Errorf("entry with a path of %d and a target of %d bytes", len(e.Path), len(e.Target))
	case e.Size < 0 || e.Size > maxOffset:
		return fmt.Errorf("entry of %d bytes", e.Size)
	case e.Errno < 0 || e.Errno > 4095:
		return fmt.Errorf("entry with errno %d", e.Errno)
	case len(e.Version) > maxVersion || strings.Trim(e.Version, "0123456789abcdef-") != "":
		return fmt.Errorf("entry with version %.100q", e.Version)
	case e.MTime.Year() < 0 || e.MTime.Year() > 9999:
		// time.Time does not marshal others (RFC 3339); a file system may hold them.
		e.MTime = time.Unix(0, 0)
	}
	e.MTime = e.MTime.UTC()
	return nil
}

// printable bounds text and takes the control characters out of it, which would
// be commands to the terminal that shows it.
func printable(text string) string {
	if len(text) > maxText {
		text = text[:maxText]
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}
