package nlmsg

import "golang.org/x/sys/unix"

// Messages and attributes of linux/netfilter/nfnetlink_queue.h; x/sys has none.
const (
	QueuePacket  = unix.NFNL_SUBSYS_QUEUE << 8   // NFQNL_MSG_PACKET
	queueVerdict = unix.NFNL_SUBSYS_QUEUE<<8 | 1 // NFQNL_MSG_VERDICT
	queueConfig  = unix.NFNL_SUBSYS_QUEUE<<8 | 2 // NFQNL_MSG_CONFIG

	QueuePacketHeader  = 1  // NFQA_PACKET_HDR
	queueVerdictHeader = 2  // NFQA_VERDICT_HDR
	queueMark          = 3  // NFQA_MARK
	QueuePayload       = 10 // NFQA_PAYLOAD

	configCommand = 1 // NFQA_CFG_CMD
	configParams  = 2 // NFQA_CFG_PARAMS
	configLength  = 3 // NFQA_CFG_QUEUE_MAXLEN
	commandBind   = 1 // NFQNL_CFG_CMD_BIND
	copyPacket    = 2 // NFQNL_COPY_PACKET

	dropPacket = 0 // NF_DROP
)

func queue(kind uint16, attrs ...[]byte) Message {
	return Message{Kind: kind, Body: append(Header(unix.AF_UNSPEC, 0), Join(attrs...)...)}
}

// BindQueue makes the sender's socket the one of queue 0, which holds so many packets.
func BindQueue(most uint32) Message {
	return queue(queueConfig, Attr(configCommand, []byte{commandBind, 0, 0, 0}), Attr(configLength, be32(most)))
}

// BeginQueue makes packets come, with so many of their bytes; before it they are dropped.
func BeginQueue(bytes uint32) Message {
	return queue(queueConfig, Attr(configParams, append(be32(bytes), copyPacket)))
}

// AcceptQueued lets a packet go on behind the hook that has queued it, with a mark.
func AcceptQueued(id, mark uint32) Message {
	return queue(queueVerdict, Attr(queueVerdictHeader, append(be32(acceptPacket), be32(id)...)),
		Attr(queueMark, be32(mark)))
}

// DropQueued forgets a packet.
func DropQueued(id uint32) Message {
	return queue(queueVerdict, Attr(queueVerdictHeader, append(be32(dropPacket), be32(id)...)))
}
