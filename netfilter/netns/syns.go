package netns

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/hutch-sh/hutch/internal/nlmsg"
	"github.com/hutch-sh/hutch/netfilter/hold"
)

// works is the one of queueings that has worked: to try another may start modprobe.
var works atomic.Pointer[queueing]

// eitherQueueing sends rules with the first of queueings that works.
func eitherQueueing(send func(*queueing) error) error {
	try := queueings
	if q := works.Load(); q != nil {
		try = []*queueing{q}
	}
	var failures []error
	for _, q := range try {
		err := send(q)
		if err == nil {
			works.Store(q)
			return nil
		}
		failures = append(failures, err)
		if !missing(err) {
			break
		}
	}
	return fmt.Errorf("rules that hold connections (nft_queue, or nft_compat with xt_NFQUEUE): %w",
		errors.Join(failures...))
}

// holdSYNs makes the rules of the way Hold, and the queue, in a new namespace, on a thread in it.
func (n *Namespace) holdSYNs() (err error) {
	if n.SYNs, err = hold.Open(); err != nil {
		return err
	}
	return eitherQueueing(func(q *queueing) error {
		if err := q.rules.Send(); err != nil {
			return err
		}
		err := send6(nlmsg.Batch.Send, q.rules6)
		if missing(err) { // without nft_reject_ipv6 literals of IPv6 are accepted first
			err = send6(nlmsg.Batch.Send, tproxyRules6)
		}
		return err
	})
}

// holdWeb holds connections to the ports of TLS and HTTP, too, where they are raw ones of
// names, on a thread in the namespace. Rules only ever come: who reads the queue lets go on
// at once what need not wait.
func (n *Namespace) holdWeb(ports []uint16) error {
	var rules []nlmsg.Message
	more := slices.DeleteFunc(slices.Clone(ports), func(p uint16) bool { return slices.Contains(n.heldWeb, p) })
	if len(more) == 0 {
		return nil
	}
	err := eitherQueueing(func(q *queueing) error {
		rules = rules[:0]
		for _, p := range more {
			rules = append(rules, inet.names().FirstRule(toPort(p), q.queue))
		}
		return nlmsg.NFTables(rules...).Send()
	})
	if err == nil {
		n.heldWeb = append(n.heldWeb, more...)
	}
	return err
}

// adoptSYNs makes the queue again, which ended with the process that had it.
func (n *Namespace) adoptSYNs() error {
	n.heldWeb = n.config.RawPorts
	return n.inside(func() (err error) {
		n.SYNs, err = hold.Open()
		return err
	})
}
