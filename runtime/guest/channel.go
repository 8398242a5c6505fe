package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// maxFDs bounds the fds of one request: stdio and the memfd of a large one.
const maxFDs = 4

// maxQueue is how many events may wait for hutchd to read. Requests are not
// read while the queue is longer, so it is bounded by what runs already.
const maxQueue = 1024

// channel is hutch-init's end of the socketpair to hutchd.
type channel struct {
	f   *os.File
	fd  int // f's
	buf []byte

	// mu guards the queue. Events wait there when hutchd is slow or away, so
	// that nothing else in PID 1 ever does.
	mu     sync.Mutex
	change *sync.Cond
	queue  [][]byte
	closed bool
}

func newChannel(fd int) (*channel, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("channel on fd %d: %w", fd, err)
	}
	unix.CloseOnExec(fd)
	c := &channel{
		f:   os.NewFile(uintptr(fd), "channel"),
		fd:  fd,
		buf: make([]byte, guestapi.MaxPacket+1),
	}
	c.change = sync.NewCond(&c.mu)
	return c, nil
}

// receive waits for a request. The fds are the caller's. A packet that is no
// request gives errBadRequest, after which the channel goes on; any other error
// ends it: io.EOF when the last holder of the other end is gone.
func (c *channel) receive() (*guestapi.Request, []int, error) {
	c.waitRoom()
	rc, err := c.f.SyscallConn()
	if err != nil {
		return nil, nil, err
	}
	oob := make([]byte, unix.CmsgSpace(maxFDs*4))
	var n, oobn, flags int
	var rerr error
	err = rc.Read(func(fd uintptr) bool {
		n, oobn, flags, _, rerr = unix.Recvmsg(int(fd), c.buf, oob, unix.MSG_CMSG_CLOEXEC)
		return rerr != unix.EAGAIN && rerr != unix.EINTR
	})
	if err = errors.Join(err, rerr); err != nil {
		return nil, nil, fmt.Errorf("receive: %w", err)
	}
	if n == 0 && oobn == 0 {
		return nil, nil, io.EOF
	}
	fds, err := parseFDs(oob[:oobn])
	if err == nil && (n > guestapi.MaxPacket || flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0) {
		// CTRUNC is also what happens when this process has no fd left.
		err = errBadRequest{text: "packet too large, too many fds, or no fd free"}
	}
	if err != nil {
		closeAll(fds)
		return nil, nil, err
	}
	return decode(c.buf[:n], fds)
}

// errBadRequest is a packet that was not understood. exec is its exec id, if
// that much could be read.
type errBadRequest struct {
	exec uint64
	text string
}

func (e errBadRequest) Error() string { return e.text }

func parseFDs(oob []byte) ([]int, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, errBadRequest{text: "control message: " + err.Error()}
	}
	var fds []int
	for i := range msgs {
		got, err := unix.ParseUnixRights(&msgs[i])
		if err != nil {
			continue // credentials or the like: nothing to close
		}
		fds = append(fds, got...)
	}
	return fds, nil
}

// decode parses and checks one packet and takes the fds: it returns those that
// belong to the request and closes the others.
func decode(packet []byte, fds []int) (*guestapi.Request, []int, error) {
	req, err := parseRequest(packet)
	if err == nil && req.Op == guestapi.OpLarge {
		req, fds, err = decodeLarge(fds)
	}
	if err == nil {
		err = check(req, len(fds))
	}
	if err != nil {
		closeAll(fds)
		return nil, nil, err
	}
	return req, fds, nil
}

func decodeLarge(fds []int) (*guestapi.Request, []int, error) {
	if len(fds) == 0 {
		return nil, nil, errBadRequest{text: "large request without its memfd"}
	}
	f := os.NewFile(uintptr(fds[0]), "large request")
	defer f.Close()
	fds = fds[1:]
	data, err := io.ReadAll(io.NewSectionReader(f, 0, guestapi.MaxLarge+1))
	if err != nil {
		return nil, fds, errBadRequest{text: "large request: " + err.Error()}
	}
	if len(data) > guestapi.MaxLarge {
		return nil, fds, errBadRequest{text: fmt.Sprintf("large request is over %d bytes", guestapi.MaxLarge)}
	}
	req, err := parseRequest(data)
	if err == nil && req.Op != guestapi.OpExec {
		err = errBadRequest{req.Exec, fmt.Sprintf("large request with op %q", req.Op)}
	}
	return req, fds, err
}

func parseRequest(data []byte) (*guestapi.Request, error) {
	req := &guestapi.Request{}
	if err := json.Unmarshal(data, req); err != nil {
		return nil, errBadRequest{req.Exec, "decode: " + err.Error()}
	}
	return req, nil
}

// waitRoom blocks while too many events wait to be read.
func (c *channel) waitRoom() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.queue) > maxQueue && !c.closed {
		c.change.Wait()
	}
}

// post sends ev, or queues it when hutchd is slow; it never blocks. Order is kept.
func (c *channel) post(ev guestapi.Event) {
	data, err := json.Marshal(&ev)
	if err != nil {
		return // cannot happen: an Event is numbers and strings
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	if len(c.queue) == 0 && unix.Sendmsg(c.fd, data, nil, nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT) == nil {
		return
	}
	c.queue = append(c.queue, data)
	c.change.Broadcast()
}

// tryPost is post for what may be left untold: not when hutchd is slow.
func (c *channel) tryPost(ev guestapi.Event) bool {
	c.mu.Lock()
	busy := c.closed || len(c.queue) > 0
	c.mu.Unlock()
	if !busy {
		c.post(ev)
	}
	return !busy
}

// sendLoop writes queued events until the channel breaks.
func (c *channel) sendLoop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		for len(c.queue) == 0 {
			c.change.Wait()
		}
		data := c.queue[0] // stays there, so that nothing overtakes it
		c.mu.Unlock()
		err := c.send(data)
		c.mu.Lock()
		c.queue = c.queue[1:]
		c.change.Broadcast()
		if err != nil {
			c.closed, c.queue = true, nil
			return
		}
	}
}

// send writes one packet, waiting for room.
func (c *channel) send(data []byte) error {
	rc, err := c.f.SyscallConn()
	if err != nil {
		return err
	}
	var werr error
	err = rc.Write(func(fd uintptr) bool {
		werr = unix.Sendmsg(int(fd), data, nil, nil, unix.MSG_NOSIGNAL)
		return werr != unix.EAGAIN && werr != unix.EINTR
	})
	return errors.Join(err, werr)
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}
