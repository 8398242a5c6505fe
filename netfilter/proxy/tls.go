package proxy

import (
	"errors"

	"github.com/hutch-sh/hutch/netfilter/policy"
	"github.com/hutch-sh/hutch/runtime/api"
)

// unrecognizedName is a TLS record with the fatal alert 112 (RFC 6066): what a server
// says that does not have the name, so that programs know what went wrong.
var unrecognizedName = []byte{21, 3, 3, 0, 2, 2, 112}

// carryTLS reads the ClientHello, checks its server name, and copies. The bytes go on as
// they came.
func (f *flow) carryTLS(in *window) error {
	var reader helloReader
	hello, err := reader.read(in.bytes())
	for errors.Is(err, errMore) {
		if err := in.fill(); err != nil {
			return f.unfinished(err, byAlert, "the TLS handshake")
		}
		hello, err = reader.read(in.bytes())
	}
	if errors.Is(err, errTooLong) {
		return f.mismatch(byReset, "the TLS handshake is %v", err)
	}
	if err != nil {
		return f.mismatch(byReset, "the TLS handshake is not well formed: %v", err)
	}
	if r := f.checkHello(hello); r != nil {
		return r
	}
	f.showed(byTLS, hello.serverName)
	if f.server == nil {
		if err := f.dial(); err != nil {
			return err
		}
	}
	if f.down == nil {
		f.copyDown(nil)
	}
	return f.copyUp(in)
}

func (f *flow) checkHello(hello clientHello) *refusal {
	if f.check == policy.CheckBlock {
		// The name may be any, or none, that is not blocked. What ECH hides cannot be
		// told from what browsers send to look the same: blocking is by what is seen.
		if hello.serverName == "" {
			return nil
		}
		if d := f.p.Rules().Host(hello.serverName, policy.TCP, f.dst.Port()); !d.Allow {
			return &refusal{Decision: d, reply: byAlert}
		}
		return nil
	}
	switch name, err := api.NetName(hello.serverName); {
	case hello.serverName == "":
		return f.mismatch(byAlert, "the TLS handshake has no server name")
	case hello.ech:
		return f.mismatch(byAlert, "the TLS handshake hides its server name (Encrypted ClientHello)")
	case err != nil:
		return f.mismatch(byAlert, "the TLS handshake asks for %q, which is no name", hello.serverName)
	case name != f.name:
		r := f.mismatch(byAlert, "the TLS handshake asks for %s at the address of %s", name, f.name)
		r.HowToAllow = ""
		if d := f.p.Rules().Connect(name, policy.TCP, f.dst.Port()); !d.Allow {
			r.HowToAllow = d.HowToAllow
		}
		return r
	}
	return nil
}

// unfinished is what becomes of a connection whose first bytes did not come to an end.
func (f *flow) unfinished(err error, how reply, what string) error {
	switch {
	case errors.Is(err, errTooLong):
		return f.mismatch(how, "%s is too long: %d bytes are read", what, largeBuffer)
	case errors.Is(err, errNoRoom):
		return f.mismatch(how, "%s was not read: the sandbox has %d others that are not over, as many as it may", what,
			maxLarge)
	case isTimeout(err):
		return f.mismatch(how, "%s was not complete after %s", what, f.p.Limits.HeadTime)
	}
	return err
}
