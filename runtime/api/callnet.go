package api

// The methods network.*.
var (
	CallNetworkGet = Call[SandboxParams, Network]{Name: "network.get",
		Summary: "Says what a sandbox may reach, what it was refused, and in mode learn what it would need.",
		Example: `{"sandbox":"fix"}`,
		Returns: exampleNetwork}
	CallNetworkUpdate = Call[NetUpdateParams, Network]{Name: "network.update",
		Summary: "Changes what a running sandbox may reach, and closes the connections that it may not have any more.",
		Example: `{"sandbox":"fix","add":{"allow":["proxy.golang.org"]}}`,
		Returns: exampleNetwork}
	CallNetworkCheck = Call[NetCheckParams, NetVerdict]{Name: "network.check",
		Summary: "Says what a policy does with a name, an address or a port, and which rule says so.",
		Example: `{"network":{"mode":"allow","allow":["example.com"]},"name":"example.com","port":443}`,
		Returns: `{"allow":true,"step":"connect","rule":"allow example.com","why":"the policy allows it",` +
			`"check":"tls"}`}
	CallNetworkAsks = Call[Empty, Asks]{Name: "network.asks",
		Summary: "Lists the connections that wait for an answer, and what is always answered the same.",
		Returns: `{"pending":[{"sandbox":"sb_r5hrdezjoqxe","id":"ask_4h7k2m9p","proto":"tcp","name":"example.com",` +
			`"port":443,"why":"no entry of allow names it","how_to_allow":"--allow example.com",` +
			`"until":"2026-11-28T09:31:00Z"}],"always":{}}`}
	CallNetworkAnswer = Call[AnswerParams, Empty]{Name: "network.answer",
		Summary: "Answers the question whether a connection that is held may be made.",
		Example: `{"id":"ask_4h7k2m9p","answer":"once"}`}
	CallNetworkForget = Call[ForgetParams, Asks]{Name: "network.forget",
		Summary: "Forgets what was to be allowed always; policies in force stay as they are.",
		Example: `{"entries":["example.com"]}`,
		Returns: `{"pending":[],"always":{}}`}
)

// The methods port.*.
var (
	CallPortExpose = Call[PortExposeParams, Port]{Name: "port.expose",
		Summary: "Lets programs of the host connect to a TCP port in a sandbox, also to a server on its loopback.",
		Notes:   "A listener is a socket of the caller's that listens already.",
		FDs:     true,
		Example: `{"sandbox":"fix","port":8080}`,
		Returns: examplePort}
	CallPortList = Call[PortListParams, Ports]{Name: "port.list",
		Summary: "Lists the ports of one sandbox, or of all, that the host reaches.",
		Example: `{"sandbox":"fix"}`,
		Returns: `{"ports":[` + examplePort + `]}`}
	CallPortClose = Call[PortCloseParams, Ports]{Name: "port.close",
		Summary: "Ends what is exposed of a port, with its connections.",
		Example: `{"sandbox":"fix","port":8080}`,
		Returns: `{"ports":[` + examplePort + `]}`}
)

// The methods events.*.
var (
	CallEvents = Call[SubscribeParams, Subscribed]{Name: "events.subscribe",
		Summary: "Sends what happens in the daemon, and what has happened from a number on, in event notifications.",
		Example: `{"from_seq":1,"kinds":["exec.started","exec.exited"]}`,
		Returns: `{"subscription":"ev_1","log":"lg_2k8d5n3q","first_seq":1,"next_seq":5}`}
	CallEventsCredit = Call[EventCreditParams, Empty]{Name: "events.credit",
		Summary: "Lets a subscription with credit send more events.",
		Example: `{"subscription":"ev_1","events":100}`}
	CallEventsEnd = Call[SubscriptionParams, Empty]{Name: "events.unsubscribe",
		Summary: "Ends a subscription.",
		Example: `{"subscription":"ev_1"}`}
)

// The methods audit.*.
var (
	CallAuditRead = Call[AuditReadParams, AuditRecords]{Name: "audit.read",
		Summary: "Reads the records of what was done with a sandbox, also of one that was removed.",
		Example: `{"sandbox":"fix","from_seq":1,"limit":1}`,
		Returns: `{"sandbox":"sb_r5hrdezjoqxe","records":[{"seq":1,"time":"2026-11-28T09:30:00Z",` +
			`"kind":"audit.opened","sandbox":"sb_r5hrdezjoqxe","data":{"version":1},"prev":"00","hash":"a061"}],` +
			`"next":2,"more":true,"ended":false}`}
	CallAuditVerify = Call[AuditVerifyParams, AuditVerified]{Name: "audit.verify",
		Summary: "Checks that no record of a sandbox's audit log was changed, removed or moved.",
		Notes:   "A log that was tampered with is no error: ok is false.",
		Example: `{"sandbox":"fix"}`,
		Returns: `{"sandbox":"sb_r5hrdezjoqxe","ok":true,"records":17,"first":1,"head":{"seq":17,` +
			`"hash":"02d0381683b11555"},"closed":false,"problems":[]}`}
	CallAuditHead = Call[SandboxParams, AuditHead]{Name: "audit.head",
		Summary: "Returns number and hash of the last record, to be kept elsewhere.",
		Example: `{"sandbox":"fix"}`,
		Returns: `{"seq":17,"hash":"02d0381683b11555"}`}
	CallAuditList = Call[Empty, AuditLogs]{Name: "audit.list",
		Summary: "Lists the audit logs that are kept.",
		Returns: `{"logs":[{"sandbox":"sb_r5hrdezjoqxe","records":17,"bytes":20480,"written":"2026-11-28T09:30:00Z",` +
			`"removed":false}]}`}
)

// The methods rpc.*.
var (
	CallDiscover = Call[Empty, map[string]any]{Name: "rpc.discover",
		Summary: "Returns the OpenRPC document of this build.",
		Returns: `{"openrpc":"1.3.2"}`}
)
