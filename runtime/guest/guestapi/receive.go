package guestapi

import "fmt"

// receive waits for the next packet and parses it. An error that is not ErrProtocol is the
// end of the channel.
func (c *Client) receive() (*Event, error) {
	var (
		ev   *Event
		perr error
	)
	if err := c.conn.Receive(func(packet []byte) { ev, perr = parseEvent(packet) }); err != nil {
		return nil, err
	}
	if perr != nil {
		return nil, fmt.Errorf("%w: %w", ErrProtocol, perr)
	}
	return ev, nil
}
