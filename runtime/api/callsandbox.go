package api

// The methods system.*.
var (
	CallInfo = Call[Empty, Info]{Name: "system.info",
		Summary: "Says which daemon answers, what isolation its sandboxes get and where it keeps things.",
		Returns: `{"api_version":1,"build_id":"6a85526c3231","version":"0.1.0","pid":22398,` +
			`"started":"2026-11-28T09:30:00Z","launched":"2026-11-28T09:30:00Z",` +
			`"isolation":{"walls":[{"name":"landlock","status":"yes","detail":"ABI 7"}],"user_map":"range",` +
			`"cgroups":"v2","network_enforcement":"none","landlock_abi":7},"id_base":1000,"counts":{"sandboxes":1,` +
			`"execs":0,"images":1,"ready":1,"removing":0},"paths":{"socket":"/run/user/1000/hutch/hutchd.sock",` +
			`"state":"/home/me/.local/share/hutch","runtime":"/run/user/1000/hutch",` +
			`"config":"/home/me/.config/hutch/config.yaml","log":"/home/me/.local/share/hutch/hutchd.log"},` +
			`"exec":{"timeout_s":180,"max_timeout_s":1800},"defaults":{"pids":1024},"network":{"mode":"none"},` +
			`"quotas":{},"mode":"all","host_execution":"refused"}`}
	CallAuthenticate = Call[AuthenticateParams, Authenticated]{Name: "system.authenticate",
		Summary: "Shows a client's token, on which the other calls of the connection depend where the configuration " +
			"names tokens.",
		Example: `{"token":"hutch-3f9c1d7a52e84b06"}`,
		Returns: `{"client":"editor"}`}
	CallDoctor = Call[Empty, Doctor]{Name: "system.doctor",
		Summary: "Probes what this machine offers and how to get what is missing.",
		Returns: `{"checks":[{"name":"overlay","status":"yes","detail":"an overlay mounts in a user namespace",` +
			`"remedy":"","required":true}]}`}
	CallShutdown = Call[ShutdownParams, Empty]{Name: "system.shutdown",
		Summary: "Ends the daemon, with or without its sandboxes.",
		Notes:   "It answers when the daemon has agreed; the end of the connection tells when it is gone.",
		Example: `{"mode":"keep"}`}
	CallGC = Call[Empty, GCResult]{Name: "system.gc",
		Summary: "Sweeps what a killed daemon left behind.",
		Returns: `{"removed":["sb_r5hrdezjoqxe"],"bytes":73728}`}
	CallReload = Call[Empty, Empty]{Name: "system.reload",
		Summary: "Reads the configuration file again, for what starts from then on."}
)

// The methods sandbox.*.
var (
	CallSandboxCreate = Call[CreateParams, Sandbox]{Name: "sandbox.create",
		Summary: "Creates a sandbox and returns when it is running.",
		FDs:     true, Progress: true, EndsWithCaller: true,
		Example: `{"name":"fix","image":"debian:13","workspace":{"path":"/home/me/project","mode":"overlay"},` +
			`"limits":{"memory_bytes":536870912}}`,
		Returns: `{` + exampleSandboxBody + `}`}
	CallSandboxRun = Call[RunParams, RunResult]{Name: "sandbox.run",
		Summary: "Creates a sandbox, or takes one out of a pool, runs a command in it, removes it, and returns when " +
			"the command has ended.",
		FDs: true, Progress: true, EndsWithCaller: true,
		Example: `{"sandbox":{"image":"host"},"exec":{"command":"echo $((6*7))"}}`,
		Returns: `{"sandbox":{` + exampleSandboxBody + `},"exec":{` + exampleExecResultBody + `}}`}
	CallSandboxGet = Call[SandboxParams, Sandbox]{Name: "sandbox.get",
		Summary: "Returns the record of one sandbox.",
		Example: `{"sandbox":"fix"}`,
		Returns: `{` + exampleSandboxBody + `}`}
	CallSandboxList = Call[ListParams, SandboxList]{Name: "sandbox.list",
		Summary: "Lists the sandboxes, oldest first.",
		Example: `{"labels":{"team":"web"}}`,
		Returns: `{"sandboxes":[{` + exampleSandboxBody + `}]}`}
	CallSandboxClaim = Call[SandboxParams, Sandbox]{Name: "sandbox.claim",
		Summary: "Ties a sandbox to this connection, whose creator's was lost when the daemon was killed.",
		Notes:   "It must come within ten seconds of the restart.",
		Example: `{"sandbox":"fix"}`,
		Returns: `{` + exampleSandboxBody + `}`}
	CallSandboxKill = Call[SandboxParams, KillResult]{Name: "sandbox.kill",
		Summary: "Kills every process of a sandbox; its record and files stay.",
		Example: `{"sandbox":"fix"}`,
		Returns: `{"killed":[22967]}`}
	CallSandboxRemove = Call[SandboxParams, KillResult]{Name: "sandbox.remove",
		Summary: "Kills a sandbox and deletes its record and files.",
		Example: `{"sandbox":"fix"}`,
		Returns: `{"killed":[22967]}`}
	CallSandboxPause = Call[SandboxParams, Sandbox]{Name: "sandbox.pause",
		Summary: "Stops the processes of a sandbox where they are, and the clocks of its commands.",
		Example: `{"sandbox":"fix"}`,
		Returns: `{` + exampleSandboxBody + `}`}
	CallSandboxResume = Call[SandboxParams, Sandbox]{Name: "sandbox.resume",
		Summary: "Lets a paused sandbox go on; starting a command in it, or using its files, does so too.",
		Example: `{"sandbox":"fix"}`,
		Returns: `{` + exampleSandboxBody + `}`}
	CallSandboxUpdate = Call[UpdateParams, Sandbox]{Name: "sandbox.update",
		Summary: "Changes limits of a running sandbox.",
		Example: `{"sandbox":"fix","limits":{"timeout_s":60},"ttl_s":3600}`,
		Returns: `{` + exampleSandboxBody + `}`}
	CallSandboxStats = Call[SandboxParams, Stats]{Name: "sandbox.stats",
		Summary: "Says what a sandbox uses, and has used, of CPU time, memory, processes and disks.",
		Example: `{"sandbox":"fix"}`,
		Returns: `{"sandbox":"sb_r5hrdezjoqxe","name":"fix","time":"2026-11-28T09:30:00Z","source":"cgroup-v2",` +
			`"cpu":{"used_ms":30,"user_ms":8.6,"system_ms":21.4,"throttled_ms":0},"pids":{"current":18,"peak":18,` +
			`"limit":1024,"refused":0},"disk":{"used_bytes":77824,"limit_bytes":10737418240,"inodes":19},` +
			`"running_execs":1}`}
	CallSandboxProcs = Call[SandboxParams, Processes]{Name: "sandbox.processes",
		Summary: "Lists the processes of a sandbox.",
		Example: `{"sandbox":"fix"}`,
		Returns: `{"processes":[{"pid":21,"host_pid":22967,"ppid":1,"state":"S","threads":1,"cpu_ms":0,` +
			`"rss_bytes":1839104,"started":"2026-11-28T09:30:00Z","name":"sleep","argv":["sleep","100"]}],` +
			`"truncated":false}`}
	CallSandboxStop = Call[StopParams, StopResult]{Name: "sandbox.stop",
		Summary: "Ends the processes of a sandbox and keeps its files and what it is, also beyond the daemon, for " +
			"sandbox.start.",
		Example: `{"sandbox":"fix","timeout_s":10}`,
		Returns: `{` + exampleEnded + `,` + exampleSandboxBody + `}`}
	CallSandboxStart = Call[StartParams, Sandbox]{Name: "sandbox.start",
		Summary: "Starts a sandbox that was stopped, under its id and name, with its files.",
		FDs:     true,
		Example: `{"sandbox":"fix"}`,
		Returns: `{` + exampleSandboxBody + `}`}
	CallSandboxFork = Call[ForkParams, Forked]{Name: "sandbox.fork",
		Summary: "Makes sandboxes that go on from the files of another, or of a snapshot, each for itself.",
		FDs:     true,
		Example: `{"sandbox":"fix","count":2}`,
		Returns: `{"sandboxes":[{` + exampleSandboxBody + `}],"note":"files only"}`}
)

// The methods scope.*.
var (
	CallScopeList = Call[Empty, Scopes]{Name: "scope.list",
		Summary: "Lists the scopes that have a sandbox, oldest first.",
		Returns: `{"scopes":[{"kind":"agent","key":"reviewer","sandbox":"sb_r5hrdezjoqxe","image":"host",` +
			`"state":"running","created":"2026-11-28T09:30:00Z","connections":1}]}`}
	CallScopeReset = Call[ScopeParams, Sandbox]{Name: "scope.reset",
		Summary: "Replaces a scope's sandbox by a new one, made as it was.",
		Example: `{"kind":"agent","key":"reviewer"}`,
		Returns: `{` + exampleSandboxBody + `}`}
	CallScopeEnd = Call[ScopeParams, KillResult]{Name: "scope.end",
		Summary: "Removes a scope's sandbox.",
		Example: `{"kind":"session","key":"7f21"}`,
		Returns: `{"killed":[]}`}
)

// The methods pool.*.
var (
	CallPoolCreate = Call[PoolCreateParams, Pool]{Name: "pool.create",
		Summary:  "Makes a pool of sandboxes that wait for whoever asks, and returns when the first does.",
		Progress: true,
		Example:  `{"name":"ready","size":2,"sandbox":{"image":"host"}}`,
		Returns:  examplePool}
	CallPoolAcquire = Call[AcquireParams, *Sandbox]{Name: "pool.acquire",
		Summary:        "Takes a sandbox out of a pool; null when none is ready within wait_ms.",
		EndsWithCaller: true,
		Example:        `{"pool":"ready","wait_ms":500}`,
		Returns:        `{` + exampleSandboxBody + `}`}
	CallPoolRelease = Call[SandboxParams, KillResult]{Name: "pool.release",
		Summary: "Destroys a sandbox that was acquired from a pool.",
		Example: `{"sandbox":"fix"}`,
		Returns: `{"killed":[]}`}
	CallPoolStatus = Call[PoolParams, Pool]{Name: "pool.status",
		Summary: "Says how a pool is filled.",
		Example: `{"pool":"ready"}`,
		Returns: examplePool}
	CallPoolList = Call[Empty, Pools]{Name: "pool.list",
		Summary: "Lists the pools by name.",
		Returns: `{"pools":[` + examplePool + `]}`}
	CallPoolResize = Call[PoolResizeParams, Pool]{Name: "pool.resize",
		Summary: "Changes how many sandboxes wait in a pool.",
		Example: `{"pool":"ready","size":4}`,
		Returns: examplePool}
	CallPoolRemove = Call[PoolParams, PoolRemoved]{Name: "pool.remove",
		Summary: "Removes a pool with what waits in it; what was acquired goes on.",
		Example: `{"pool":"ready"}`,
		Returns: `{"removed":2,"in_use":0}`}
)
