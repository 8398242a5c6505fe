package api

// Parts of the examples.
const (
	exampleExec = `{"exec":"ex_s6kwm6ocroep","sandbox":"sb_r5hrdezjoqxe","state":"running","command":"sleep 60",` +
		`"background":false,"tty":false,"pid":21,"started":"2026-11-28T09:30:00Z","stdout_bytes":0,"stderr_bytes":0}`
	exampleShell = `{"shell":"sh_mojxsdmbxemn","sandbox":"sb_r5hrdezjoqxe","exec":"ex_jdcb7basz7to","pid":22,` +
		`"runs":0,"busy":false,"over":false}`
	exampleSnapshot = `{"id":"sn_pvhdlpc6elzx","name":"green","sandbox":"sb_r5hrdezjoqxe","image":"host",` +
		`"created":"2026-11-28T09:30:00Z","bytes":53248,"inodes":13,"total_bytes":53248,"note":"files only"}`
	exampleTemplate = `{"name":"tools","image":"debian:13",` +
		`"steps":[{"run":"apt-get update && apt-get install -y jq"}],"created":"2026-11-28T09:30:00Z"}`
	examplePool = `{"name":"ready","size":2,"sandbox":{"image":"host"},"total":2,"available":2,"in_use":0}`
	exampleFile = `{"name":"go.mod","path":"/workspace/go.mod","type":"file","size":51,"mode":"0644",` +
		`"mtime":"2026-11-28T09:30:00Z","uid":0,"gid":0}`
	exampleNetwork = `{"sandbox":"sb_r5hrdezjoqxe","network":{"mode":"allow","allow":["proxy.golang.org"]},` +
		`"enforcement":{"ebpf":"on","errno":"EACCES"},"rules":[],"denials":[]}`
	examplePort  = `{"sandbox":"sb_r5hrdezjoqxe","port":8080,"address":"127.0.0.1:40123","connections":0,"accepted":0}`
	exampleImage = `{"ref":"docker.io/library/debian:13","digest":"sha256:5be21f0c","id":"sha256:ae5e81b4",` +
		`"platform":"linux/amd64","size_bytes":124030976,"layers":["sha256:77f2c1a0"],"config":{"cmd":["bash"]}}`
	exampleEnded = `"ended":{"execs":["ex_s6kwm6ocroep"],"shells":[],"contexts":[],` +
		`"note":"processes have ended; files are kept"}`
	exampleSandboxBody = `"id":"sb_r5hrdezjoqxe","name":"fix","state":"running","created":"2026-11-28T09:30:00Z",` +
		`"image":"host","command":["/bin/bash"],"workdir":"/workspace","hostname":"hutch-r5hrdezjoqxe",` +
		`"limits":{"memory_bytes":536870912,"pids":1024},"network":{"mode":"none","enforcement":{"ebpf":"on",` +
		`"errno":"ENETUNREACH"}},"seccomp":"default","isolation":{"walls":[{"name":"landlock","status":"yes",` +
		`"detail":"ABI 7"}],"user_map":"range","cgroups":"v2","network_enforcement":"none","landlock_abi":7},` +
		`"phases_ms":{"total":41.5}`
	exampleExecResultBody = `"exec":"ex_s6kwm6ocroep","exit_code":0,"verdict":"ok","timed_out":false,` +
		`"stdout":"42\n","stdout_encoding":"utf-8","stderr":"","stderr_encoding":"utf-8","truncated":false,` +
		`"duration_ms":10.5,"peaks":{"memory_bytes":5545984,"cpu_ms":2},"killed":[],"denials":[]`
)
