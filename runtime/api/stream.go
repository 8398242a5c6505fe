package api

// Notifications of attachments, server to client.
const (
	NotifyOutput = "exec.output"
	NotifyExited = "exec.exited"
)

const (
	// DefaultCreditBytes is the credit of an attachment that names none.
	DefaultCreditBytes = 1 << 20
	// MaxCreditBytes is the most credit that an attachment can hold; more is not
	// refused, but lost.
	MaxCreditBytes = 1 << 30
)

// AttachParams are exec.attach's params. An exec may be attached to any number of
// times, also on one connection, while it runs and after its end.
type AttachParams struct {
	Exec string `json:"exec"`
	// From are the offsets of the first bytes wanted, negative: so many before the
	// end.
	From Offsets `json:"from"`
	// Streams are those to follow; empty means both.
	Streams []Stream `json:"streams,omitempty"`
	// CreditBytes is how many bytes of output may be sent before exec.credit gives
	// more; both streams share it. 0 means DefaultCreditBytes.
	CreditBytes int64    `json:"credit_bytes,omitempty"`
	Encoding    Encoding `json:"encoding,omitempty"`
}

// Offsets are places in the output streams of an exec, in bytes from their start.
type Offsets struct {
	Stdout int64 `json:"stdout"`
	Stderr int64 `json:"stderr"`
}

// Attached is exec.attach's result. Notifications follow it, never precede it.
type Attached struct {
	// Attachment is the id that the notifications carry: unique on its connection.
	Attachment string  `json:"attachment"`
	From       Offsets `json:"from"` // where it starts
}

// CreditParams are exec.credit's params.
type CreditParams struct {
	Exec string `json:"exec"`
	// Attachment may be left out where the connection has one of the exec only.
	Attachment string `json:"attachment,omitempty"`
	Bytes      int64  `json:"bytes"` // of output, on top of what is left
}

// DetachParams are exec.detach's params.
type DetachParams struct {
	Exec       string `json:"exec"`
	Attachment string `json:"attachment,omitempty"` // as in CreditParams
}

// Output is the params of an `exec.output` notification: bytes of a stream, in
// order and without holes but those that Dropped tells.
type Output struct {
	Attachment string `json:"attachment"`
	Exec       string `json:"exec"`
	Stream     Stream `json:"stream"`
	Offset     int64  `json:"offset"` // of the first byte of Data
	// Dropped is how many bytes before Offset are lost: they were dropped from the
	// middle of the spool before they could be sent.
	Dropped  int64    `json:"dropped,omitempty"`
	Encoding Encoding `json:"encoding"`
	Data     string   `json:"data"`
}

// Exited is the params of an `exec.exited` notification, the last of an
// attachment: the exec's result without its output, which was sent before.
type Exited struct {
	Attachment string  `json:"attachment"`
	Ends       Offsets `json:"ends"` // how long the streams were; 0 if not followed
	ExecResult
}

// Validate refuses params that no exec could answer.
func (p *AttachParams) Validate() error {
	if p.CreditBytes < 0 {
		return invalid("credit_bytes", "%d is negative", p.CreditBytes).
			WithHint("leave it out for %d", DefaultCreditBytes)
	}
	for _, s := range p.Streams {
		if s != Stdout && s != Stderr {
			return invalid("streams", "%q is no output stream", s).WithHint("use stdout and stderr")
		}
	}
	return checkEncoding(p.Encoding)
}

// Validate refuses credit that gives nothing.
func (p *CreditParams) Validate() error {
	if p.Bytes <= 0 {
		return invalid("bytes", "%d is no credit", p.Bytes).WithHint("give back what has been read, in bytes")
	}
	return nil
}
