package sys

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// patienceInFlight is how long SendFDs waits in all, about.
const patienceInFlight = time.Second

// SendFDs calls send, a sendmsg(2) with fds, again while the kernel refuses it with
// ETOOMANYREFS: fds in flight over Unix sockets are counted per kernel uid
// (net/unix/scm.c), so other processes of the user, and sandboxes, take part. What
// is in flight is soon received; there is no event for it, hence the pauses.
func SendFDs(send func() error) error {
	err := send()
	for pause := time.Millisecond; errors.Is(err, unix.ETOOMANYREFS) && pause < patienceInFlight; pause *= 2 {
		<-time.After(pause)
		err = send()
	}
	return err
}
