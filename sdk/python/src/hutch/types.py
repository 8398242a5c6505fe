# Made by make generate of rpc.discover: change runtime/api.
"""The types of the daemon's JSON-RPC, as dictionaries: what hutch.Client.rpc takes and returns."""

import sys
from typing import Any, Dict, List, Literal

if sys.version_info >= (3, 12):  # pydantic wants that of typing_extensions before
    from typing import TypedDict
else:
    try:
        from typing_extensions import TypedDict
    except ImportError:
        from typing import TypedDict


class _AcquireParams(TypedDict):
    # name of the pool
    pool: str


class AcquireParams(_AcquireParams, total=False):
    """AcquireParams are those of pool.acquire."""
    # beside those of the pool
    labels: Dict[str, str]
    # of the sandbox, unique among living ones
    name: str
    # see Spec.Owner
    owner: str
    # how long, in milliseconds, to wait for a sandbox when none is ready.
    wait_ms: float


class _Artifact(TypedDict):
    # figure (of matplotlib), value (of the last expression, or displayed), table (JSON, orient "split") or file (made
    # or changed in the working directory).
    kind: str
    # its media type
    mime_type: str
    # in bytes, also where data is left out
    size: int


class Artifact(_Artifact, total=False):
    """Artifact is something that code has made beside text."""
    # what it is: PNG in base64, other values and tables as text; of files only images, in base64.
    data: str
    # of a file
    path: str


class Asks(TypedDict):
    """Asks is network.asks' result."""
    # the entries that were answered so: those of Allow and AllowCIDRs.
    always: "NetLists"
    # the oldest first
    pending: List["Question"]


Attached = TypedDict(
    "Attached",
    {
        # the id that the notifications carry: unique on its connection.
        "attachment": str,
        # where it starts
        "from": 'Offsets',
    },
)


class _AuditBug(TypedDict):
    # more about it, for people
    detail: str
    # and where it is
    file: str
    # of the record
    seq: int


class AuditBug(_AuditBug, total=False):
    """AuditBug is something that is wrong with a log."""
    # number of the line, from 1
    line: int


class AuditHead(TypedDict):
    """AuditHead names the last record of a log, at some time. Who keeps one elsewhere can tell later whether
    what was before it is still the same."""
    # SHA-256 of the record
    hash: str
    # number of the record
    seq: int


class AuditLog(TypedDict):
    """AuditLog describes a log that is kept."""
    # on disk
    bytes: int
    # that were ever written
    records: int
    # the sandbox is
    removed: bool
    # id or name of the sandbox
    sandbox: str
    # last
    written: str


class AuditLogs(TypedDict):
    """AuditLogs is audit.list's result."""
    # AuditLog describes a log that is kept.
    logs: List["AuditLog"]


class _AuditRecords(TypedDict):
    # there will never be more
    ended: bool
    # there are more by now
    more: bool
    # from_seq of the next call
    next: int
    # each as it was written
    records: List[Any]
    # its id
    sandbox: str


class AuditRecords(_AuditRecords, total=False):
    """AuditRecords is audit.read's result. The records are AuditRecords, byte for byte as they are stored."""
    # lines that are no records: audit.verify says which
    broken: int


class _AuditVerified(TypedDict):
    # the sandbox was removed
    closed: bool
    # number of the oldest record; those before were dropped
    first: int
    # AuditHead names the last record of a log, at some time
    head: "AuditHead"
    # there are no problems
    ok: bool
    # what is wrong, in words
    problems: List["AuditBug"]
    # that were read
    records: int


class AuditVerified(_AuditVerified, total=False):
    """AuditVerified is audit.verify's result."""
    # records that say that others could not be written: their sum
    lost: int
    # how often a daemon went on that another was killed of
    resumed: int
    # id or name of the sandbox
    sandbox: str
    # further problems
    untold: int


class Authenticated(TypedDict):
    """Authenticated is system.authenticate's result."""
    # the name that the configuration gives the token; "" where it names no tokens and serves every client of the
    # user's.
    client: str


class Break(TypedDict):
    """Break stops a creation behind one of its steps. Before it stops it sends a progress notification of kind
    "debug.break", with the BreakPoint; it goes on when the other end of the pipe is closed or written to, or
    fails when the request is canceled."""
    # index, in the request's fds, of the end of a pipe that can be read
    fd: int
    # one of DebugPhases
    phase: str


class _BreakPoint(TypedDict):
    # the sandbox's own, through hutchd's /proc/pid/root
    folder: str
    # id or name of the sandbox
    sandbox: str


class BreakPoint(_BreakPoint, total=False):
    """BreakPoint is what there is of a sandbox behind a step."""
    # relative to the hierarchies' mount points
    cgroup: str
    # pid 1, as the host sees it
    pid: int


class _CPUStats(TypedDict):
    # in the kernel
    system_ms: float
    # it waited for its limit to let it go on
    throttled_ms: float
    # CPU time since the start
    used_ms: float
    # in programs
    user_ms: float


class CPUStats(_CPUStats, total=False):
    """CPUStats is CPU time since the sandbox began, of all processes and CPUs together."""
    # CPU time per wall time
    limit: float


class Check(TypedDict):
    """Check is one of the doctor's probes."""
    # more about it, for people
    detail: str
    # its name
    name: str
    # an exact command, "" when nothing is to be done
    remedy: str
    # sandboxes cannot run without it
    required: bool
    # yes, no or inconclusive
    status: str


class _Checkpoint(TypedDict):
    # bytes and inodes are what it takes beside what others have in common with it.
    bytes: int
    # id of the call, as its result has it
    call: str
    # its id
    id: str
    # bytes and inodes are what it takes beside what others have in common with it.
    inodes: int
    # when
    time: str
    # name of the tool, or code.run, or checkpoint.restore
    tool: str
    # the files are not what the call made of them
    undone: bool


class Checkpoint(_Checkpoint, total=False):
    """Checkpoint is what the files of a sandbox were before a call that may have changed them."""
    # that the call named; a command may have changed any
    paths: List[str]


class _CheckpointRestored(TypedDict):
    # of this restore: checkpoint.restore to it takes it back
    call: str
    # what `run` starts without a command of its own: Entrypoint + Cmd
    command: List[str]
    # when it was made
    created: str
    # what ended with the processes of a sandbox: files are kept, processes are not.
    ended: "Ended"
    # its host name
    hostname: str
    # its id
    id: str
    # reference of the image
    image: str
    # isolation says what stands between a sandbox and the host, read back from the kernel, not from the request.
    isolation: "Isolation"
    # that are in force
    limits: "Limits"
    # SandboxNetwork is the policy in force, and by what.
    network: "SandboxNetwork"
    # how long each step of its making took
    phases_ms: Dict[str, float]
    # which system calls its commands may make
    seccomp: Literal["default", "strict", "build", "browser", "custom"]
    # where a sandbox is in its life.
    state: Literal["removed", "creating", "running", "paused", "waiting", "stopped", "failed"]
    # the files are those of before it
    to_call: str
    # calls, the last one first
    undone: List[str]
    # working directory of commands that name none
    workdir: str


class CheckpointRestored(_CheckpointRestored, total=False):
    """CheckpointRestored is checkpoint.restore's result."""
    # background, in sandbox.list and get, is the command that exec.start with background began last, as long as its
    # output is kept.
    background: "Exec"
    # set only in the answer to a create that asked for it.
    debug: "SandboxDebug"
    # of the image's manifest
    digest: str
    # first words of a command line, as the image has them
    entrypoint: List[str]
    # of sandbox.create: its scope had it
    existing: bool
    # when its ttl_s is over
    expires: str
    # stopped by sandbox.stop: its files and record outlive the daemon
    kept: bool
    # names and values for people and tools, which hutch only stores
    labels: Dict[str, str]
    # its name
    name: str
    # as of Checkpoints.
    not_covered: List[str]
    # why image is another one than was asked for
    note: str
    # while it is
    paused: "Pause"
    # pid 1, as the host sees it
    pid: int
    # that it waits in, or was acquired from
    pool: str
    # why it stopped, failed or is paused
    reason: str
    # scope names a sandbox by what it is for: sandbox.create returns the one that it has, or makes it.
    scope: "Scope"
    # the exec that its template started
    start_exec: str
    # what sandbox.stop sends; "" is SIGTERM.
    stop_signal: str
    # that it was made by
    template: str
    # its calls can be undone
    undo: bool
    # limits that this host cannot enforce: defaults, and with limits.best_effort those that were asked for.
    unenforced: List["Unenforced"]
    # name or uid, and group after a colon
    user: str


class _Checkpoints(TypedDict):
    # Checkpoint is what the files of a sandbox were before a call that may have changed them.
    checkpoints: List["Checkpoint"]
    # that all of them take
    total_bytes: int


class Checkpoints(_Checkpoints, total=False):
    """checkpoints is checkpoint.list's result, oldest first."""
    # where the sandbox has volumes: what is in these stays as it is.
    not_covered: List[str]


class Chunk(TypedDict):
    """Chunk is exec.read's result: the bytes [offset, next) of a stream. offset is behind the one asked for when
    what was between has been dropped."""
    # the bytes, encoded as encoding says
    data: str
    # encoding says how bytes travel in JSON.
    encoding: Literal["utf-8", "base64"]
    # the exec has ended and next is the end
    eof: bool
    # offset after the last byte
    next: int
    # offset of the first byte
    offset: int


class _CodeContext(TypedDict):
    # name of the interpreter that is kept
    context: str
    # id of the exec
    exec: str
    # name of the language
    language: str


class CodeContext(_CodeContext, total=False):
    """CodeContext is an interpreter that is kept."""
    # name or uid, and group after a colon
    user: str


class CodeContexts(TypedDict):
    """CodeContexts is code.contexts' result."""
    # CodeContext is an interpreter that is kept.
    contexts: List["CodeContext"]


class _CodeError(TypedDict):
    # its name
    name: str
    # what the error says
    value: str


class CodeError(_CodeError, total=False):
    """CodeError is an exception."""
    # where it was raised
    traceback: str


class _CodeResult(TypedDict):
    # Artifact is something that code has made beside text.
    artifacts: List["Artifact"]
    # Denial is an operation that the sandbox refused.
    denials: List["Denial"]
    # how long it took, in milliseconds
    duration_ms: float
    # Of an interpreter that has ended.
    exit_code: int
    # the same of standard error
    stderr: str
    # bytes that are no text are replaced
    stdout: str
    # whether its time was over
    timed_out: bool
    # the middle of a stream, or an artifact, is missing
    truncated: bool
    # ok also while a context is kept; nonzero when the code has raised an error
    verdict: Literal["ok", "nonzero", "signal", "timeout_wall", "timeout_cpu", "oom", "pids", "disk", "output", "denied", "killed", "not_run", "sandbox", "cancelled", "lost"]


class CodeResult(_CodeResult, total=False):
    """CodeResult is code.run's result."""
    # begun says that the context is new: what earlier runs have defined is not there.
    begun: bool
    # the id of the call, for checkpoint.restore in sandboxes with undo
    call: str
    # the one it ran in
    context: str
    # what the code has raised, or why the interpreter ended
    error: "CodeError"
    # of the interpreter
    exec: str
    # connections that the policy allows, and that failed outside.
    failures: List["Failure"]
    # as of an ExecResult
    policy: str
    # the value of the code's last expression, as the interpreter shows it.
    text: str
    # "host" of code that ran on the host, by the mode that hutch mcp was started with; exec is then no exec of a
    # sandbox.
    where: Literal["sandbox", "host", "refused"]


class _Committed(TypedDict):
    # reference of the image
    image: "Image"
    # left_out counts files that no layer can hold: devices, sockets, and names that begin with ".wh.", which mean
    # removed files there. The first few are named.
    left_out: int


class Committed(_Committed, total=False):
    """Committed is image.commit's result."""
    # some of them
    left_out_names: List[str]


class ConfigChanges(TypedDict, total=False):
    """ConfigChanges change how an image runs. What is left out stays as it is."""
    # entrypoint clears the image's cmd unless that is given, too. An empty list, [], clears either.
    cmd: List[str]
    # entrypoint clears the image's cmd unless that is given, too. An empty list, [], clears either.
    entrypoint: List[str]
    # added, or replaced
    env: Dict[str, str]
    # added, such as "80/tcp"
    exposed_ports: List[str]
    # added, or replaced
    labels: Dict[str, str]
    # signal that asks it to end, as the image has it
    stop_signal: str
    # name or uid, and group after a colon
    user: str
    # added, absolute paths
    volumes: List[str]
    # an absolute path.
    working_dir: str


class Counts(TypedDict):
    """Counts are how many of each a daemon holds."""
    # that run
    execs: int
    # in the store
    images: int
    # launched ahead, of no image yet, for whoever creates a sandbox
    ready: int
    # removing counts what sandbox.remove has answered for, and whose mounts, cgroup or folder are still being removed.
    removing: int
    # that live
    sandboxes: int


class _DebugRule(TypedDict):
    # "allow" or the errno, such as "EPERM"
    action: str
    # why, in a sentence
    reason: str
    # names of the calls
    syscalls: List[str]


class DebugRule(_DebugRule, total=False):
    """DebugRule is a rule of a seccomp profile."""
    # the arguments that it is about, such as "arg1&0xffffffff == 0x5412"
    when: str


class _DebugStep(TypedDict):
    # how long it took
    ms: float
    # its name
    name: str


class DebugStep(_DebugStep, total=False):
    """DebugStep is a step of a creation."""
    # what came of it, for people
    detail: str


class _Decision(TypedDict):
    # sandbox or host
    decision: Literal["sandbox", "host", "refused"]
    # what a scan has found, those that decided first; of mode selective only.
    findings: List["Finding"]
    # in force
    mode: Literal["all", "selective", "off"]
    # in a sentence
    reason: str


class Decision(_Decision, total=False):
    """decision is exec.decide's result. Of a command on the host the daemon has recorded that it runs, and waits
    for exec.record_host with its id; the daemon itself runs nothing there."""
    # the user's folder that is the sandbox's workspace, where a command on the host is to run; "" where there is none.
    cwd: str
    # its id
    id: str
    # the wall time after which the caller is to kill it; 0 is none.
    timeout_s: float


class _Denial(TypedDict):
    # what to change to allow it
    how_to_allow: str
    # net, file, syscall, fs, limit
    kind: str
    # the rule that decided
    rule: str
    # what was to be reached
    target: str
    # why, in a sentence
    why: str


class Denial(_Denial, total=False):
    """Denial is an operation that the sandbox refused."""
    # IP address
    address: str
    # "ebpf", "proxy", "names", "route", "seccomp", "mount", "guard" or "mode"; errno is what the program saw of it:
    # EACCES, or what its protocol has, as "HTTP 403" or "NXDOMAIN".
    by: str
    # how often the very same happened, time when last.
    count: int
    # by is "ebpf", "proxy", "names", "route", "seccomp", "mount", "guard" or "mode"; errno is what the program saw of
    # it: EACCES, or what its protocol has, as "HTTP 403" or "NXDOMAIN".
    errno: str
    # the one that was refused, which eBPF knows; else the only exec that ran at that time, from which processes that an
    # earlier exec left behind are not told apart. Without one, several ran or none did.
    exec: str
    # its name
    name: str
    # of "tcp" or "udp"
    port: int
    # probe says that programs try this by themselves and do as well without it: people are shown it on request.
    probe: bool
    # the last that was refused this; eBPF alone knows it.
    process: "NetProcess"
    # "" is a lookup, or unknown without a name
    proto: Literal["tcp", "udp"]
    # count is how often the very same happened, time when last.
    time: str


class _DiskStats(TypedDict):
    # what it has written and kept
    used_bytes: int


class DiskStats(_DiskStats, total=False):
    """DiskStats is what the sandbox has written and kept."""
    # files and folders of it
    inodes: int
    # the most there may be, in bytes
    limit_bytes: int


class Doctor(TypedDict):
    """Doctor is system.doctor's result."""
    # Check is one of the doctor's probes.
    checks: List["Check"]


class Empty(TypedDict, total=False):
    """Empty is the params or result of a method that has none."""


class _Ended(TypedDict):
    # of code.run
    contexts: List[str]
    # that ran
    execs: List[str]
    # for people
    note: str
    # that were open
    shells: List[str]


class Ended(_Ended, total=False):
    """Ended is what ended with the processes of a sandbox: files are kept, processes are not."""
    # those that the host reached. Nothing opens them again but port.expose.
    ports: List["EndedPort"]


class EndedPort(TypedDict):
    """EndedPort is a port that a stop has closed."""
    # as Port.Address
    address: str
    # number of the port
    port: int
    # requests had to have one
    token: bool


class _Exec(TypedDict):
    # its stdin is empty
    background: bool
    # id of the exec
    exec: str
    # in the sandbox
    pid: int
    # id or name of the sandbox
    sandbox: str
    # when it was started
    started: str
    # ExecState says whether an exec still runs.
    state: Literal["running", "exited"]
    # stdout_bytes and stderr_bytes are how much there is to read so far.
    stderr_bytes: int
    # stdout_bytes and stderr_bytes are how much there is to read so far.
    stdout_bytes: int
    # it has a terminal
    tty: bool


class Exec(_Exec, total=False):
    """exec is the record of one exec."""
    # program and arguments
    argv: List[str]
    # text for the shell
    command: str
    # how long it took, in milliseconds
    duration_ms: float
    # Of an exec that has ended.
    exit_code: int
    # hutch talks to it: the interpreter of a code.run, or a shell
    kept: bool
    # verdict says how an exec ended.
    verdict: Literal["ok", "nonzero", "signal", "timeout_wall", "timeout_cpu", "oom", "pids", "disk", "output", "denied", "killed", "not_run", "sandbox", "cancelled", "lost"]


class ExecBounds(TypedDict):
    """ExecBounds are what the daemon's configuration says about commands."""
    # the most that one may ask for, seconds
    max_timeout_s: float
    # of commands that name none, seconds
    timeout_s: float


class _ExecParams(TypedDict):
    # id or name of the sandbox
    sandbox: str


class ExecParams(_ExecParams, total=False):
    """ExecParams are exec.run's params."""
    # exactly one of argv and command
    argv: List[str]
    # background, of exec.start: stdin is empty instead of open for exec.write.
    background: bool
    # run by the sandbox's shell
    command: str
    # absolute; default: the sandbox's workdir
    cwd: str
    # detachable, of a pty with stdio: the terminal outlives its fds. Their end is not the end of input, what appears is
    # also kept as without stdio, and exec.write types, too.
    detachable: bool
    # of stdin, and wanted for the output
    encoding: Literal["utf-8", "base64"]
    # over the sandbox's
    env: Dict[str, str]
    # the exec's id when the caller chooses it: "ex_" and 12 to 32 lower-case letters and digits, used once. A caller
    # that loses its connection before it is told the id can then still ask what became of the command.
    exec: str
    # the number of fds that ride on this request; stdio are indexes into them. With stdio nothing is captured.
    fds: int
    # limits bound a sandbox, or one exec in it
    limits: "Limits"
    # NetPolicy says what a sandbox may reach
    network: "NetPolicy"
    # cap of each captured stream in the reply; default 1 MiB
    output_bytes: int
    # progress asks for a notification with the exec's id when it has started.
    progress: bool
    # pty asks for a terminal in the sandbox. With stdio, its stdin and "stdout" are the pipes, sockets or terminals
    # that carry it, and its "stderr" is unused; without, what appears on it is the exec's stdout, and exec.write types.
    pty: "Pty"
    # all that it reads
    stdin: str
    # fds is the number of fds that ride on this request; stdio are indexes into them. With stdio nothing is captured.
    stdio: "Stdio"
    # the wall time after which the command and everything it started is killed, at most the daemon's
    # exec.max_timeout_s. null is the sandbox's limits.timeout_s, else the daemon's exec.timeout_s. background commands
    # and those with a pty have no timeout unless one is given, no maximum, and 0 is none.
    timeout_s: float
    # default: the sandbox's user
    user: str


class _ExecResult(TypedDict):
    # Denial is an operation that the sandbox refused.
    denials: List["Denial"]
    # how long it took, in milliseconds
    duration_ms: float
    # id of the exec
    exec: str
    # the exit code; 128+n after signal n
    exit_code: int
    # host pids of processes that were killed
    killed: List[int]
    # the most that an exec used.
    peaks: "Peaks"
    # as stderr_encoding says
    stderr: str
    # as stderr_encoding says
    stderr_encoding: Literal["utf-8", "base64"]
    # as stdout_encoding says
    stdout: str
    # as stdout_encoding says
    stdout_encoding: Literal["utf-8", "base64"]
    # whether its time was over
    timed_out: bool
    # the middle of a stream is missing, or what a full disk did not take
    truncated: bool
    # verdict says how an exec ended.
    verdict: Literal["ok", "nonzero", "signal", "timeout_wall", "timeout_cpu", "oom", "pids", "disk", "output", "denied", "killed", "not_run", "sandbox", "cancelled", "lost"]


class ExecResult(_ExecResult, total=False):
    """ExecResult is exec.run's result."""
    # error says why a command with the verdict not_run never ran.
    error: str
    # connections that the policy allows, and that failed outside while the command ran.
    failures: List["Failure"]
    # what to do about a command that failed, where its own message cannot know: who installs something in the image
    # host, or is killed by a rule of the sandbox's own seccomp profile.
    hint: str
    # the limit behind the verdict, of memory, processes or disk space.
    limit: "LimitHit"
    # the paragraph of /run/hutch/policy.txt about what was refused now for the third time: the sandbox gets it once of
    # each kind.
    policy: str
    # "SIGKILL"; exit_code is then 128+n
    signal: str
    # names of the workspace's guard that turned up since the command before.
    unguarded: List["Unguarded"]


class Execs(TypedDict):
    """execs is exec.list's result, oldest first."""
    # exec is the record of one exec.
    execs: List["Exec"]


class Exported(TypedDict):
    """Exported is image.export's result."""
    # written
    bytes: int
    # id and layers are the image's in the archive: layers are packed anew, and those that another program had packed
    # get other digests. Of a root file system there is no layer.
    id: str
    # id and layers are the image's in the archive: layers are packed anew, and those that another program had packed
    # get other digests. Of a root file system there is no layer.
    layers: List[str]


class _Failure(TypedDict):
    # what was to be reached
    target: str
    # why, in a sentence
    why: str


class Failure(_Failure, total=False):
    """Failure is a connection or lookup that the policy allows and that could not be made outside of the
    sandbox."""
    # IP address
    address: str
    # how often the very same happened, time when last.
    count: int
    # what the program saw: ECONNRESET where it was connected to hutch already
    errno: str
    # as of a Denial
    exec: str
    # what to do about it, "" where that is for whoever runs the server.
    hint: str
    # its name
    name: str
    # of "tcp" or "udp"
    port: int
    # "" is a lookup, or unknown without a name
    proto: Literal["tcp", "udp"]
    # count is how often the very same happened, time when last.
    time: str


class _File(TypedDict):
    # id of its group in the sandbox
    gid: int
    # permissions, octal: "0644"
    mode: str
    # when its content changed last
    mtime: str
    # its last name
    name: str
    # of a list: below the folder; else as asked for
    path: str
    # size in bytes
    size: int
    # FileType is what kind of file something is.
    type: Literal["file", "folder", "symlink", "fifo", "socket", "char_device", "block_device"]
    # id of its user in the sandbox
    uid: int


class File(_File, total=False):
    """File describes one file. Ids are those inside the sandbox."""
    # attributes, where they were asked for, are the extended attributes of a file or folder that the user may read, by
    # their names below "user.".
    attributes: Dict[str, str]
    # error says why a folder of a recursive list was not entered.
    error: str
    # path_base64 holds the bytes of a path that is not UTF-8.
    path_base64: str
    # of a symlink
    target: str
    # version, of fs.stat, changes with whatever writes the file or takes its place: see if_version of fs.write.
    version: str


class FileArchive(TypedDict):
    """FileArchive is the result of fs.pack and fs.unpack."""
    # of regular files
    bytes: int
    # files and folders of the archive
    entries: int
    # devices, fifos and sockets, which do not travel
    skipped: int


class FileChunk(TypedDict):
    """FileChunk is fs.read's result: the bytes [offset, next) of a file."""
    # the bytes, encoded as encoding says
    data: str
    # encoding says how bytes travel in JSON.
    encoding: Literal["utf-8", "base64"]
    # next is the end of the file
    eof: bool
    # where the next read goes on
    next: int
    # offset of the first byte
    offset: int
    # of the file at this moment; 0 for those of /proc
    size: int


class FileList(TypedDict):
    """FileList is fs.list's result: each folder before what it holds, names in order."""
    # File describes one file
    entries: List["File"]
    # there is more, or a folder was too deep
    truncated: bool


class FileMade(TypedDict):
    """FileMade is fs.mkdir's result."""
    # false: it existed
    created: bool


class FileRemoved(TypedDict):
    """FileRemoved is fs.remove's result."""
    # files and folders
    removed: int


class FileSynced(TypedDict):
    """FileSynced is fs.sync's result. A tar archive of what is needed, with times to the nanosecond, through
    fs.unpack makes the folders the same."""
    # indexes, in Files, of what is missing in the sandbox, or other there
    needed: List[int]
    # names, each with all that was below it
    removed: int
    # files that are as they should be, by type, size and time
    same: int


class FileWritten(TypedDict):
    """FileWritten is fs.write's result."""
    # it was replaced in a single step
    atomic: bool
    # it did not exist
    created: bool
    # of the file now
    size: int
    # bytes
    written: int


class Finding(TypedDict):
    """Finding is one place in code that a rule is about."""
    # category says what a finding is about.
    category: Literal["filesystem", "network", "process", "dynamic_evaluation", "obfuscation", "import", "unknown", "unparsable"]
    # from 1, in bytes
    column: int
    # from 1
    line: int
    # such as python.subprocess
    rule: str
    # severity says what a finding is worth
    severity: Literal["low", "medium", "high"]
    # the code there, at most 120 bytes
    text: str
    # what the rule is for
    why: str


class _Forked(TypedDict):
    # for people
    note: str
    # Sandbox is the record of one sandbox.
    sandboxes: List["Sandbox"]


class Forked(_Forked, total=False):
    """Forked is sandbox.fork's result. Either all are made, or none."""
    # as in Snapshot: all forks share them.
    not_covered: List[str]


class GCResult(TypedDict):
    """GCResult is system.gc's result: what was swept."""
    # freed on disk
    bytes: int
    # paths and ids
    removed: List[str]


class Host(TypedDict):
    """Host is a name that a sandbox has an address for without asking anybody. Its network policy decides
    whether it can be reached."""
    # IPv4 or IPv6
    address: str
    # its name
    name: str


class IOStats(TypedDict):
    """IOStats is what went to and came from block devices, since the sandbox began."""
    # from disks
    read_bytes: int
    # operations
    reads: int
    # to disks
    write_bytes: int
    # operations
    writes: int


class _Image(TypedDict):
    # ImageConfig is the part of an image's config that decides how it runs.
    config: "ImageConfig"
    # of the manifest
    digest: str
    # digest of the config
    id: str
    # diff ids, lowest first
    layers: List[str]
    # os/arch[/variant] of the image
    platform: str
    # its full reference
    ref: str
    # unpacked
    size_bytes: int


class Image(_Image, total=False):
    """Image is the record of an image in the store."""
    # when it was made
    created: str


class ImageConfig(TypedDict, total=False):
    """ImageConfig is the part of an image's config that decides how it runs."""
    # default arguments, as the image has them
    cmd: List[str]
    # first words of a command line, as the image has them
    entrypoint: List[str]
    # environment variables
    env: List[str]
    # ports that it listens on, as the image has them
    exposed_ports: List[str]
    # names and values for people and tools, which hutch only stores
    labels: Dict[str, str]
    # signal that asks it to end, as the image has it
    stop_signal: str
    # name or uid, and group after a colon
    user: str
    # directories for data, as the image has them
    volumes: List[str]
    # working directory, as the image has it
    working_dir: str


class ImageDisk(TypedDict):
    """ImageDisk is image.du's result. bytes are allocated blocks."""
    # of all layers together, and of the host image's cache
    bytes: int
    # ImageUse is what one image takes on disk.
    images: List["ImageUse"]
    # of layers that no image has and no sandbox uses: image.prune frees them
    unused_bytes: int


class ImageUse(TypedDict):
    """ImageUse is what one image takes on disk."""
    # of all its layers
    bytes: int
    # digest of its config
    id: str
    # in_use says that somebody uses all its layers: a sandbox of it, or of an image made from it.
    in_use: bool
    # reference of the image
    ref: str
    # of those that only images with this id have
    unique_bytes: int


class Images(TypedDict):
    """images is image.list's result."""
    # Image is the record of an image in the store.
    images: List["Image"]


class _Info(TypedDict):
    # version of this contract
    api_version: int
    # equal for all binaries of one build
    build_id: str
    # how many of each a daemon holds.
    counts: "Counts"
    # limits of sandboxes that ask for none, as far as this host has them.
    defaults: "Limits"
    # id of the exec
    exec: "ExecBounds"
    # mode is where commands run whose caller names none, and host_execution whether any may run on the host.
    host_execution: Literal["refused", "allowed"]
    # the kernel uid, as the initial user namespace counts them, of uid 0 in sandboxes: the caller's own, or, started by
    # root, the start of the daemon's range, which then is the gid of gid 0 as well.
    id_base: int
    # what a sandbox of this daemon gets
    isolation: "Isolation"
    # since then sandboxes outlive the daemon: what was made later and is not there was removed, or never made
    launched: str
    # where commands run whose caller names none, and host_execution whether any may run on the host.
    mode: Literal["all", "selective", "off"]
    # what sandboxes that ask for nothing may reach.
    network: "NetPolicy"
    # where a daemon keeps things, as the caller sees them.
    paths: "Paths"
    # the daemon's, as the host sees it
    pid: int
    # what the sandboxes of one user may have together; 0 is no quota
    quotas: "Quotas"
    # when the daemon was
    started: str
    # of hutch
    version: str


class Info(_Info, total=False):
    """Info is system.info's result."""
    # it was told to shut down: what is asked of it now fails
    ending: bool


class Isolation(TypedDict):
    """Isolation says what stands between a sandbox and the host, read back from the kernel, not from the
    request."""
    # "v2", "v1" or "none".
    cgroups: str
    # that of the domain that all commands are in; 0 is none.
    landlock_abi: int
    # network_enforcement of the network policy: "none" (no network at all), "proxy" or "ebpf".
    network_enforcement: str
    # "range" when the daemon has subordinate ids, "single" when only the caller's own uid is mapped.
    user_map: str
    # Wall is one part of the isolation and whether it is in force.
    walls: List["Wall"]


class KillResult(TypedDict):
    """KillResult lists the host pids that a kill ended."""
    # host pids
    killed: List[int]


class _LayerCheck(TypedDict):
    # read
    bytes: int
    # nodes of any kind that were looked at
    files: int
    # that have it
    images: List[str]
    # folder in the store
    layer: str
    # LayerStatus is what image.verify found.
    status: Literal["good", "damaged", "repaired", "unknown"]


class LayerCheck(_LayerCheck, total=False):
    """LayerCheck is what image.verify found of one layer."""
    # that problems has no place for
    more_problems: int
    # what is wrong, in words
    problems: List[str]


class _LimitHit(TypedDict):
    # what to do about it
    hint: str
    # its value
    limit: int
    # "memory_bytes", "pids", "disk_bytes", "inodes", "rlimits.fsize": as in Limits
    name: str
    # "sandbox" or "exec"
    of: str


class LimitHit(_LimitHit, total=False):
    """LimitHit is a limit that ended a command, or made it fail."""
    # the most that was in use at once, of the same
    peak: int


class Limits(TypedDict, total=False):
    """Limits bound a sandbox, or one exec in it. Zero means the default: the configuration's for a sandbox, none
    for an exec. cpus, memory_bytes, disk_bytes and pids may be Unlimited: no limit, not even the default."""
    # best_effort, of a sandbox, allows limits that this host cannot enforce. They are told in Sandbox.Unenforced, with
    # what stands in for them.
    best_effort: bool
    # how much CPU time, in seconds, an exec may use. Where execs have cgroups it is that of the whole tree; elsewhere
    # each process has it for its own, in whole seconds (RLIMIT_CPU), and what the leader has waited for counts at its
    # end.
    cpu_time_s: float
    # share of busy cpus against others, 1 to 10000; 100 is usual
    cpu_weight: int
    # CPU time per wall time, 1.5 = one and a half cores. Of all processes together: of the sandbox, or of one exec
    # where it has a cgroup with these controllers.
    cpus: float
    # cpus to run on, such as "0-1,3"
    cpuset: str
    # what the sandbox may write and keep, and what is in volumes that it may write; workspaces in mode rw do not count
    disk_bytes: int
    # files and folders that it may make; with disk_bytes there is a default
    inodes: int
    # bytes a second from the disk of the state folder
    io_read_bps: int
    # and to it
    io_write_bps: int
    # memory; with swap_bytes more in swap
    memory_bytes: int
    # above it processes are slowed down, not killed; cgroup v2
    memory_high_bytes: int
    # oom_group makes the kernel kill all of an exec that reaches its own memory_bytes and not one process of it; cgroup
    # v2, execs only.
    oom_group: bool
    # how much an exec may write to stdout and stderr together. It needs output that is captured, as a terminal's is
    # without stdio or detachable.
    output_bytes: int
    # processes and threads, PID 1's own not counted
    pids: int
    # resource limits of each process (setrlimit(2)), named as in ulimit(1) and docker's --ulimit
    rlimits: "Rlimits"
    # shm_bytes, of a sandbox only, is the size of /dev/shm, which is in memory and counts there. By default it is half
    # of memory_bytes; without that of the machine's memory, at most 1 GiB.
    shm_bytes: int
    # on top of memory_bytes, which it needs. Of a sandbox only, where its cgroup has the controllers.
    swap_bytes: int
    # wall time, seconds; exec.timeout_s goes before it. Of each exec; in a sandbox's limits the default of those that
    # name none.
    timeout_s: float


class _Login(TypedDict):
    # host name of the registry, with its port if it has one
    registry: str
    # name at the registry
    username: str


class Login(_Login, total=False):
    """Login is what is known of somebody who is logged in."""
    # stored says to people where image.login put the password.
    stored: str


class _MemoryStats(TypedDict):
    # the processes' own
    anon_bytes: int
    # in use now
    current_bytes: int
    # processes that the kernel killed at the limit
    oom_kills: int


class MemoryStats(_MemoryStats, total=False):
    """MemoryStats is memory in bytes. Current includes the page cache of files, which the kernel takes back
    before it kills anything."""
    # page cache, with what is in tmpfs
    file_bytes: int
    # the most there may be, in bytes
    limit_bytes: int
    # most that was in use
    peak_bytes: int
    # of that, what is in tmpfs and shared memory
    shmem_bytes: int
    # in swap
    swap_bytes: int


class _Mount(TypedDict):
    # ro, rw or overlay; tmpfs without source and volume
    mode: Literal["none", "ro", "rw", "overlay", "tmpfs"]
    # absolute, in the sandbox
    target: str


class Mount(_Mount, total=False):
    """Mount is a further host folder or file, a volume, or a folder in memory."""
    # of source
    fd: int
    # guard, unguarded and guard_new are as Workspace's, of a folder in mode rw.
    guard: List[str]
    # guard, unguarded and guard_new are as Workspace's, of a folder in mode rw.
    guard_new: Literal["auto", "tell", "refuse"]
    # size_bytes bounds a tmpfs, by default as limits.shm_bytes bounds /dev/shm; no_exec keeps programs in it from being
    # executed; permissions are its own, octal, by default 1777.
    no_exec: bool
    # size_bytes bounds a tmpfs, by default as limits.shm_bytes bounds /dev/shm; no_exec keeps programs in it from being
    # executed; permissions are its own, octal, by default 1777.
    permissions: str
    # size_bytes bounds a tmpfs, by default as limits.shm_bytes bounds /dev/shm; no_exec keeps programs in it from being
    # executed; permissions are its own, octal, by default 1777.
    size_bytes: int
    # absolute, on the host
    source: str
    # guard, unguarded and guard_new are as Workspace's, of a folder in mode rw.
    unguarded: List[str]
    # a name; instead of source, and made where there is none and mode is rw
    volume: str


class _NetEnforcement(TypedDict):
    # "on" where the kernel itself refuses what the policy does not name, else "off", for a reason.
    ebpf: str
    # what connect(2) to an address that the policy does not name fails with.
    errno: str


class NetEnforcement(_NetEnforcement, total=False):
    """NetEnforcement says how a network policy is enforced."""
    # how connections come to the proxy, which enforces the policy in any case: "tproxy-hold", "tproxy", "redirect" or
    # "per-port"; "" in mode none, which has no way out.
    proxy: str
    # ebpf is "on" where the kernel itself refuses what the policy does not name, else "off", for a reason.
    reason: str


class NetLists(TypedDict, total=False):
    """NetLists are entries of a policy's lists."""
    # names, with a port if it is another than 80 and 443
    allow: List[str]
    # addresses
    allow_cidrs: List[str]
    # names that are refused
    block: List[str]
    # addresses that are refused
    block_cidrs: List[str]


class NetPolicy(TypedDict, total=False):
    """NetPolicy says what a sandbox may reach. The zero policy is mode none. Names are matched label by label,
    whatever address they have; see ParseNetPattern for the patterns of allow and block. block wins over
    allow, and block_cidrs over all else. A name that is allowed and has an address that is not public
    (private, link-local, a cloud's metadata, the host's own, ...) is refused unless allow_cidrs names that
    range."""
    # names, patterns such as *.example.com, each with a port if it is another than 80 and 443
    allow: List[str]
    # "tcp" to these addresses, also without a name
    allow_cidrs: List[str]
    # ask belongs to mode allow: a connection over "tcp" that no entry allows, and none blocks, is held while somebody
    # is asked (network.ask, network.answer), for ask_s seconds (default DefaultAskS, at most MaxAskS). Without an
    # answer it is refused.
    ask: bool
    # ask belongs to mode allow: a connection over "tcp" that no entry allows, and none blocks, is held while somebody
    # is asked (network.ask, network.answer), for ask_s seconds (default DefaultAskS, at most MaxAskS). Without an
    # answer it is refused.
    ask_s: float
    # names that are refused whatever allow says
    block: List[str]
    # addresses that are refused whatever else is allowed
    block_cidrs: List[str]
    # learn belongs to mode learn.
    learn: Literal["deny", "allow"]
    # NetMode is the network policy's mode.
    mode: Literal["none", "allow", "open", "learn"]
    # require names enforcement without which creation fails: "ebpf", by the kernel itself.
    require: List[Literal["ebpf"]]
    # instead of mode
    tier: Literal["restricted", "standard", "elevated"]


class _NetProcess(TypedDict):
    # as the host counts
    host_pid: int
    # its user, as the host counts
    host_uid: int


class NetProcess(_NetProcess, total=False):
    """NetProcess is a process of a sandbox as the kernel has it. What it says of itself, its command, is what it
    wants to say."""
    # its arguments, without control characters and cut after 1 KiB; none when it was gone.
    command: List[str]
    # as the sandbox counts; 0 when it was gone
    pid: int


class NetUse(TypedDict):
    """NetUse counts what a rule has let pass, and refused."""
    # that were made
    connections: int
    # that the rule has refused
    denials: int
    # by the sandbox
    received_bytes: int
    # the rule that decided
    rule: str
    # by the sandbox
    sent_bytes: int


class _NetVerdict(TypedDict):
    # whether it is allowed
    allow: bool
    # an entry of the policy after the name of its list, a mode, or a rule of hutch's
    rule: str
    # where it was decided: "lookup", "connect" or "dial", which is when hutch has the address of a name.
    step: str
    # why, in a sentence
    why: str


class NetVerdict(_NetVerdict, total=False):
    """NetVerdict is network.check's result."""
    # it is refused unless somebody who is asked allows it
    ask: bool
    # check, of an allowed connection, is what its stream must show: "tls", "http", "tls or http" (that the host's name
    # is this name), "block" (that it is no blocked one), or "none".
    check: str
    # what to change to allow it
    how_to_allow: str


class _Network(TypedDict):
    # what was refused, once each, the latest last; untold counts what there was no room for.
    denials: List["Denial"]
    # NetEnforcement says how a network policy is enforced.
    enforcement: "NetEnforcement"
    # NetPolicy says what a sandbox may reach
    network: "NetPolicy"
    # NetUse counts what a rule has let pass, and refused.
    rules: List["NetUse"]
    # id or name of the sandbox
    sandbox: str


class Network(_Network, total=False):
    """network is network.get's result: the policy in force, and what it has done."""
    # what was allowed and failed, in the same way.
    failures: List["Failure"]
    # learned, of mode learn, is the smallest policy that would have allowed what the sandbox has reached or wanted to
    # reach so far.
    learned: "NetPolicy"
    # denials that denials has no place for
    untold: int


class Offsets(TypedDict):
    """Offsets are places in the output streams of an exec, in bytes from their start."""
    # standard error, or where that is: an offset in bytes, or the index of an fd
    stderr: int
    # standard output, or where that is: an offset in bytes, or the index of an fd
    stdout: int


class _PIDStats(TypedDict):
    # processes and threads now
    current: int
    # forks that the limit refused
    refused: int


class PIDStats(_PIDStats, total=False):
    """PIDStats counts processes and threads, but for PID 1's own."""
    # the most there may be
    limit: int
    # the most there were
    peak: int


class Paths(TypedDict):
    """Paths are where a daemon keeps things, as the caller sees them."""
    # file of the configuration
    config: str
    # file that the daemon logs to
    log: str
    # folder of sockets
    runtime: str
    # socket of the daemon
    socket: str
    # folder of all that lasts
    state: str


class _Pause(TypedDict):
    # PauseMeans is what stops the processes of a paused sandbox.
    by: Literal["freezer", "sigstop"]
    # since when
    since: str


class Pause(_Pause, total=False):
    """Pause is how a paused sandbox stands still."""
    # what memory it uses less since its page cache was taken back, behind the reply to sandbox.pause; absent before
    # that, and where it cannot be (cgroup v1 or none, before Linux 5.19). The event sandbox.reclaimed tells of it.
    reclaimed_bytes: int


class _Peaks(TypedDict):
    # user and system time together
    cpu_ms: float
    # of all its processes together
    memory_bytes: int


class Peaks(_Peaks, total=False):
    """Peaks are the most that an exec used."""
    # disk_bytes and inodes are what the whole sandbox has written and kept, as far as it was seen; only with a limit of
    # it.
    disk_bytes: int
    # disk_bytes and inodes are what the whole sandbox has written and kept, as far as it was seen; only with a limit of
    # it.
    inodes: int


class _Pool(TypedDict):
    # wait for whoever asks next
    available: int
    # acquired, and not released yet
    in_use: int
    # unique among pools
    name: str
    # what they are. name, Owner, Workspace and Mounts are not possible: they belong to one user of a sandbox, who gives
    # the first two to pool.acquire. TTLS counts from then on.
    sandbox: "Spec"
    # how many wait, 1 to MaxPoolSize
    size: int
    # available and in_use
    total: int


class Pool(_Pool, total=False):
    """Pool is a pool and how it is filled."""
    # configured says that the configuration file has it, and has it again when it is removed.
    configured: bool
    # why the last attempt to make one has failed; it is made again, after a while.
    error: str
    # prewarm makes them now, which is the default; false makes the first when somebody asks for it.
    prewarm: bool


class PoolRemoved(TypedDict):
    """PoolRemoved is the result of pool.remove."""
    # that go on, and are gone when they are released
    in_use: int
    # sandboxes that waited
    removed: int


class Pools(TypedDict):
    """pools are the pools of a daemon."""
    # by name
    pools: List["Pool"]


class _Port(TypedDict):
    # connections are open, accepted have been made since hutchd started.
    accepted: int
    # "IP:PORT", or the path of a Unix socket
    address: str
    # open, accepted have been made since hutchd started.
    connections: int
    # number of the port
    port: int
    # id or name of the sandbox
    sandbox: str


class Port(_Port, total=False):
    """port is a "tcp" port of a sandbox that can be reached from the host."""
    # what HTTP requests must have: "Authorization: Bearer TOKEN", or once "?token=TOKEN", which sets a cookie.
    token: str
    # tool says that sandbox_expose_port has exposed it, so that sandbox_close_port may close it.
    tool: bool
    # for browsers, with the token; "" of a Unix socket
    url: str


class Ports(TypedDict):
    """ports is a list of ports, by sandbox, port and address."""
    # port is a "tcp" port of a sandbox that can be reached from the host.
    ports: List["Port"]


class Pressure(TypedDict):
    """Pressure is the wait for one resource: of some process, and of all at once."""
    # PressureShare is the share of wall time in the last 10, 60 and 300 seconds, in per cent, and the sum since the
    # sandbox began.
    full: "PressureShare"
    # PressureShare is the share of wall time in the last 10, 60 and 300 seconds, in per cent, and the sum since the
    # sandbox began.
    some: "PressureShare"


class PressureShare(TypedDict):
    """PressureShare is the share of wall time in the last 10, 60 and 300 seconds, in per cent, and the sum since
    the sandbox began."""
    # percent of the last 10 seconds
    avg10: float
    # percent of the last 5 minutes
    avg300: float
    # percent of the last minute
    avg60: float
    # since the start
    total_ms: float


class Pressures(TypedDict, total=False):
    """Pressures says how long processes of the sandbox had to wait for something that was scarce (PSI,
    Documentation/accounting/psi.rst). It needs cgroup v2, hybrid hosts included."""
    # Pressure is the wait for one resource: of some process, and of all at once.
    cpu: "Pressure"
    # Pressure is the wait for one resource: of some process, and of all at once.
    io: "Pressure"
    # Pressure is the wait for one resource: of some process, and of all at once.
    memory: "Pressure"


class _Process(TypedDict):
    # CPU time since its start
    cpu_ms: float
    # as the daemon's host sees it
    host_pid: int
    # its name
    name: str
    # in the sandbox
    pid: int
    # in the sandbox; 0 for pid 1
    ppid: int
    # memory that it has
    rss_bytes: int
    # when it was started
    started: str
    # R, S, D, T, Z, as in proc_pid_stat(5)
    state: str
    # how many it has
    threads: int


class Process(_Process, total=False):
    """Process is one process of a sandbox. name and argv are the sandbox's own words."""
    # at most 4 KiB of it
    argv: List[str]


class Processes(TypedDict):
    """processes is sandbox.processes's result, PID 1 first."""
    # Process is one process of a sandbox
    processes: List["Process"]
    # there are more than are listed
    truncated: bool


class Pruned(TypedDict):
    """Pruned is image.prune's result."""
    # freed
    bytes: int
    # references
    removed: List[str]


class Pty(TypedDict):
    """Pty is a terminal's size in characters."""
    # columns
    cols: int
    # lines
    rows: int


class Pushed(TypedDict):
    """Pushed is image.push's result."""
    # of the manifest
    digest: str
    # digest of the config
    id: str
    # digests in the registry, lowest first
    layers: List[str]
    # reference of the image
    ref: str


class _Question(TypedDict):
    # the entry, as a flag, that session and always add
    how_to_allow: str
    # for network.answer
    id: str
    # id or name of the sandbox
    sandbox: str
    # when no answer becomes no
    until: str
    # why, in a sentence
    why: str


class Question(_Question, total=False):
    """Question is a network.ask that waits."""
    # IP address
    address: str
    # its name
    name: str
    # of "tcp" or "udp"
    port: int
    # "" is a lookup, or unknown without a name
    proto: Literal["tcp", "udp"]


class Quotas(TypedDict, total=False):
    """Quotas are what the sandboxes of one user may have together; 0 is no quota. A limit that a sandbox does
    not have counts as all that the machine has."""
    # CPU time per wall time
    cpus: float
    # of their limits together
    memory_bytes: int
    # how many
    sandboxes: int


class _Rlimit(TypedDict):
    # Unlimited or more
    soft: int


class Rlimit(_Rlimit, total=False):
    """Rlimit is one resource limit. A process may raise soft up to hard."""
    # default: soft
    hard: int


Rlimits = TypedDict(
    "Rlimits",
    {
        # address space, bytes
        "as": 'Rlimit',
        # core files, bytes; sandboxes write none
        "core": 'Rlimit',
        # data segment and private mappings, bytes
        "data": 'Rlimit',
        # size of a file, bytes
        "fsize": 'Rlimit',
        # locked memory, bytes
        "memlock": 'Rlimit',
        # POSIX message queues, bytes
        "msgqueue": 'Rlimit',
        # fds
        "nofile": 'Rlimit',
        # processes of the user in the sandbox
        "nproc": 'Rlimit',
        # queued signals
        "sigpending": 'Rlimit',
        # main thread's stack, bytes
        "stack": 'Rlimit',
    },
    total=False,
)


class RunResult(TypedDict):
    """RunResult is sandbox.run's result."""
    # id of the exec
    exec: "ExecResult"
    # what it was when the command was started.
    sandbox: "Sandbox"


class _Sandbox(TypedDict):
    # what `run` starts without a command of its own: Entrypoint + Cmd
    command: List[str]
    # when it was made
    created: str
    # its host name
    hostname: str
    # its id
    id: str
    # reference of the image
    image: str
    # isolation says what stands between a sandbox and the host, read back from the kernel, not from the request.
    isolation: "Isolation"
    # that are in force
    limits: "Limits"
    # SandboxNetwork is the policy in force, and by what.
    network: "SandboxNetwork"
    # how long each step of its making took
    phases_ms: Dict[str, float]
    # which system calls its commands may make
    seccomp: Literal["default", "strict", "build", "browser", "custom"]
    # where a sandbox is in its life.
    state: Literal["removed", "creating", "running", "paused", "waiting", "stopped", "failed"]
    # working directory of commands that name none
    workdir: str


class Sandbox(_Sandbox, total=False):
    """Sandbox is the record of one sandbox."""
    # background, in sandbox.list and get, is the command that exec.start with background began last, as long as its
    # output is kept.
    background: "Exec"
    # set only in the answer to a create that asked for it.
    debug: "SandboxDebug"
    # of the image's manifest
    digest: str
    # first words of a command line, as the image has them
    entrypoint: List[str]
    # of sandbox.create: its scope had it
    existing: bool
    # when its ttl_s is over
    expires: str
    # stopped by sandbox.stop: its files and record outlive the daemon
    kept: bool
    # names and values for people and tools, which hutch only stores
    labels: Dict[str, str]
    # its name
    name: str
    # why image is another one than was asked for
    note: str
    # while it is
    paused: "Pause"
    # pid 1, as the host sees it
    pid: int
    # that it waits in, or was acquired from
    pool: str
    # why it stopped, failed or is paused
    reason: str
    # scope names a sandbox by what it is for: sandbox.create returns the one that it has, or makes it.
    scope: "Scope"
    # the exec that its template started
    start_exec: str
    # what sandbox.stop sends; "" is SIGTERM.
    stop_signal: str
    # that it was made by
    template: str
    # its calls can be undone
    undo: bool
    # limits that this host cannot enforce: defaults, and with limits.best_effort those that were asked for.
    unenforced: List["Unenforced"]
    # name or uid, and group after a colon
    user: str


class _SandboxDebug(TypedDict):
    # what was done, in order.
    steps: List["DebugStep"]


class SandboxDebug(_SandboxDebug, total=False):
    """SandboxDebug is what `hutch debug` shows of how a sandbox was made."""
    # the libcontainer configuration that the sandbox was launched with. Its shape is libcontainer's and changes with
    # it.
    config: Any
    # the rules of the profile that commands are under, in order: the first that matches a call decides. None of a
    # custom profile, whose text the caller has.
    seccomp: List["DebugRule"]
    # what a call that no rule names fails with.
    seccomp_other: str


class SandboxList(TypedDict):
    """SandboxList is sandbox.list's result."""
    # Sandbox is the record of one sandbox.
    sandboxes: List["Sandbox"]


class _SandboxNetwork(TypedDict):
    # NetEnforcement says how a network policy is enforced.
    enforcement: "NetEnforcement"


class SandboxNetwork(_SandboxNetwork, total=False):
    """SandboxNetwork is the policy in force, and by what."""
    # names, patterns such as *.example.com, each with a port if it is another than 80 and 443
    allow: List[str]
    # "tcp" to these addresses, also without a name
    allow_cidrs: List[str]
    # ask belongs to mode allow: a connection over "tcp" that no entry allows, and none blocks, is held while somebody
    # is asked (network.ask, network.answer), for ask_s seconds (default DefaultAskS, at most MaxAskS). Without an
    # answer it is refused.
    ask: bool
    # ask belongs to mode allow: a connection over "tcp" that no entry allows, and none blocks, is held while somebody
    # is asked (network.ask, network.answer), for ask_s seconds (default DefaultAskS, at most MaxAskS). Without an
    # answer it is refused.
    ask_s: float
    # names that are refused whatever allow says
    block: List[str]
    # addresses that are refused whatever else is allowed
    block_cidrs: List[str]
    # learn belongs to mode learn.
    learn: Literal["deny", "allow"]
    # NetMode is the network policy's mode.
    mode: Literal["none", "allow", "open", "learn"]
    # require names enforcement without which creation fails: "ebpf", by the kernel itself.
    require: List[Literal["ebpf"]]
    # instead of mode
    tier: Literal["restricted", "standard", "elevated"]


class ScanImport(TypedDict):
    """ScanImport is a module that code imports, as far as that can be told without running it."""
    # false of a module that is not in allowed_imports.
    allowed: bool
    # number of the line, from 1
    line: int
    # what is imported
    module: str


class ScanResult(TypedDict):
    """ScanResult is code.scan's result: a hint, not a wall. Code without findings may still do harm."""
    # by line
    findings: List["Finding"]
    # ScanImport is a module that code imports, as far as that can be told without running it.
    imports: List["ScanImport"]
    # name of the language
    language: str
    # risky says that there are findings of medium severity or more, or that the code cannot be parsed.
    risky: bool
    # there are more findings than are told
    truncated: bool


class _Scope(TypedDict):
    # 1 to 128 printable characters without a space
    key: str
    # ScopeKind says how long a scope's sandbox lives.
    kind: Literal["session", "agent", "shared"]


class Scope(_Scope, total=False):
    """Scope names a sandbox by what it is for: sandbox.create returns the one that it has, or makes it."""
    # undo, of sandbox.create, is Spec.Undo.
    undo: bool


class _ScopeInfo(TypedDict):
    # that have asked for it and still are
    connections: int
    # when it was made
    created: str
    # reference of the image
    image: str
    # 1 to 128 printable characters without a space
    key: str
    # ScopeKind says how long a scope's sandbox lives.
    kind: Literal["session", "agent", "shared"]
    # its id
    sandbox: str
    # where a sandbox is in its life.
    state: Literal["removed", "creating", "running", "paused", "waiting", "stopped", "failed"]


class ScopeInfo(_ScopeInfo, total=False):
    """ScopeInfo is a scope that has a sandbox."""
    # its name
    name: str
    # undo, of sandbox.create, is Spec.Undo.
    undo: bool


class Scopes(TypedDict):
    """scopes is scope.list's result, oldest first."""
    # ScopeInfo is a scope that has a sandbox.
    scopes: List["ScopeInfo"]


class Shell(TypedDict):
    """shell is the record of a stateful shell."""
    # busy says that a command runs in it, over that the shell has ended.
    busy: bool
    # the exec that the shell is: it can be read, attached to and killed.
    exec: str
    # busy says that a command runs in it, over that the shell has ended.
    over: bool
    # in the sandbox
    pid: int
    # the number of the last command that was run in it, 0 before the first.
    runs: int
    # id or name of the sandbox
    sandbox: str
    # id of the shell
    shell: str


_ShellResult = TypedDict(
    "_ShellResult",
    {
        # closed says that the shell has ended with the command, by exit say.
        "closed": bool,
        # Denial is an operation that the sandbox refused.
        "denials": List['Denial'],
        # how long it took, in milliseconds
        "duration_ms": float,
        # id of the exec
        "exec": str,
        # the exit code; 128+n after signal n
        "exit_code": int,
        # from and to are where the command's output is in the streams of the exec.
        "from": 'Offsets',
        # host pids of processes that were killed
        "killed": List[int],
        # the most that an exec used.
        "peaks": 'Peaks',
        # the number of the command
        "run": int,
        # id of the shell
        "shell": str,
        # as stderr_encoding says
        "stderr": str,
        # as stderr_encoding says
        "stderr_encoding": Literal['utf-8', 'base64'],
        # as stdout_encoding says
        "stdout": str,
        # as stdout_encoding says
        "stdout_encoding": Literal['utf-8', 'base64'],
        # whether its time was over
        "timed_out": bool,
        # from and to are where the command's output is in the streams of the exec.
        "to": 'Offsets',
        # the middle of a stream is missing, or what a full disk did not take
        "truncated": bool,
        # verdict says how an exec ended.
        "verdict": Literal['ok', 'nonzero', 'signal', 'timeout_wall', 'timeout_cpu', 'oom', 'pids', 'disk', 'output', 'denied', 'killed', 'not_run', 'sandbox', 'cancelled', 'lost'],
    },
)


class ShellResult(_ShellResult, total=False):
    """ShellResult is shell.run's result. ExecResult.Exec is the shell's."""
    # error says why a command with the verdict not_run never ran.
    error: str
    # connections that the policy allows, and that failed outside while the command ran.
    failures: List["Failure"]
    # what to do about a command that failed, where its own message cannot know: who installs something in the image
    # host, or is killed by a rule of the sandbox's own seccomp profile.
    hint: str
    # the limit behind the verdict, of memory, processes or disk space.
    limit: "LimitHit"
    # the paragraph of /run/hutch/policy.txt about what was refused now for the third time: the sandbox gets it once of
    # each kind.
    policy: str
    # "SIGKILL"; exit_code is then 128+n
    signal: str
    # names of the workspace's guard that turned up since the command before.
    unguarded: List["Unguarded"]


class Shells(TypedDict):
    """shells is shell.list's result, oldest first."""
    # shell is the record of a stateful shell.
    shells: List["Shell"]


class _Snapshot(TypedDict):
    # bytes and inodes are what it takes by itself, as limits.disk_bytes counts; where the file system has reflinks, the
    # sandbox and the snapshot share blocks. total_bytes is with the snapshots that the sandbox had been forked from.
    bytes: int
    # when it was made
    created: str
    # its id
    id: str
    # reference of the image
    image: str
    # bytes and inodes are what it takes by itself, as limits.disk_bytes counts; where the file system has reflinks, the
    # sandbox and the snapshot share blocks. total_bytes is with the snapshots that the sandbox had been forked from.
    inodes: int
    # for people: processes are not in it
    note: str
    # the id of the one it was taken of
    sandbox: str
    # bytes and inodes are what it takes by itself, as limits.disk_bytes counts; where the file system has reflinks, the
    # sandbox and the snapshot share blocks. total_bytes is with the snapshots that the sandbox had been forked from.
    total_bytes: int


class Snapshot(_Snapshot, total=False):
    """Snapshot is what the files of a sandbox were at a time, with its spec, policy, environment and labels. It
    is one user's, and stays when the sandbox and the daemon are gone."""
    # names and values for people and tools, which hutch only stores
    labels: Dict[str, str]
    # its name
    name: str
    # where the sandbox has folders of the host's in mode rw, and volumes: these are as they are.
    not_covered: List[str]


class _SnapshotChange(TypedDict):
    # added, modified (its content, and maybe its mode), deleted, type (a file has become a folder, say) or mode
    # (permissions or owner alone). Of a folder that was added or deleted all that is in it is listed, too.
    kind: str
    # in the sandbox
    path: str
    # as of WorkspaceChange
    type: str


class SnapshotChange(_SnapshotChange, total=False):
    """SnapshotChange is a name that is another than in the snapshot."""
    # octal permission bits that are new
    mode: str
    # in bytes, of a file
    size: int
    # the type before, where it is another
    was: str


class _SnapshotDiff(TypedDict):
    # SnapshotChange is a name that is another than in the snapshot.
    changes: List["SnapshotChange"]
    # id or name of the sandbox
    sandbox: str
    # ids
    snapshot: str


class SnapshotDiff(_SnapshotDiff, total=False):
    """SnapshotDiff is snapshot.diff's result, in the order of a walk."""
    # the changes as a unified diff
    diff: str
    # there are more from here on
    next_offset: int
    # as in snapshot, a writable /usr and, while the sandbox does not run, folders of the host's in mode overlay.
    not_covered: List[str]
    # "" is the sandbox as it is now
    to: str
    # diff is not all
    truncated: bool


class _SnapshotRestored(TypedDict):
    # what `run` starts without a command of its own: Entrypoint + Cmd
    command: List[str]
    # when it was made
    created: str
    # what ended with the processes of a sandbox: files are kept, processes are not.
    ended: "Ended"
    # its host name
    hostname: str
    # its id
    id: str
    # reference of the image
    image: str
    # isolation says what stands between a sandbox and the host, read back from the kernel, not from the request.
    isolation: "Isolation"
    # that are in force
    limits: "Limits"
    # SandboxNetwork is the policy in force, and by what.
    network: "SandboxNetwork"
    # how long each step of its making took
    phases_ms: Dict[str, float]
    # which system calls its commands may make
    seccomp: Literal["default", "strict", "build", "browser", "custom"]
    # id or name of the snapshot
    snapshot: str
    # where a sandbox is in its life.
    state: Literal["removed", "creating", "running", "paused", "waiting", "stopped", "failed"]
    # working directory of commands that name none
    workdir: str


class SnapshotRestored(_SnapshotRestored, total=False):
    """SnapshotRestored is snapshot.restore's result."""
    # background, in sandbox.list and get, is the command that exec.start with background began last, as long as its
    # output is kept.
    background: "Exec"
    # set only in the answer to a create that asked for it.
    debug: "SandboxDebug"
    # of the image's manifest
    digest: str
    # first words of a command line, as the image has them
    entrypoint: List[str]
    # of sandbox.create: its scope had it
    existing: bool
    # when its ttl_s is over
    expires: str
    # stopped by sandbox.stop: its files and record outlive the daemon
    kept: bool
    # names and values for people and tools, which hutch only stores
    labels: Dict[str, str]
    # its name
    name: str
    # why image is another one than was asked for
    note: str
    # while it is
    paused: "Pause"
    # pid 1, as the host sees it
    pid: int
    # that it waits in, or was acquired from
    pool: str
    # why it stopped, failed or is paused
    reason: str
    # scope names a sandbox by what it is for: sandbox.create returns the one that it has, or makes it.
    scope: "Scope"
    # the exec that its template started
    start_exec: str
    # what sandbox.stop sends; "" is SIGTERM.
    stop_signal: str
    # that it was made by
    template: str
    # its calls can be undone
    undo: bool
    # limits that this host cannot enforce: defaults, and with limits.best_effort those that were asked for.
    unenforced: List["Unenforced"]
    # name or uid, and group after a colon
    user: str


class Snapshots(TypedDict):
    """snapshots is snapshot.list's result, oldest first."""
    # Snapshot is what the files of a sandbox were at a time, with its spec, policy, environment and labels
    snapshots: List["Snapshot"]


class Spec(TypedDict, total=False):
    """Spec is what sandbox.create asks for."""
    # whether the sandbox must be under hutch's own apparmor profile; default "auto".
    apparmor: Literal["auto", "on"]
    # capabilities that commands of uid 0 do not have, such as CHOWN or CAP_CHOWN, or ALL. Other users have none.
    cap_drop: List[str]
    # for every exec, over the image's
    env: Dict[str, str]
    # default: the sandbox's id
    hostname: str
    # more lines of /etc/hosts
    hosts: List["Host"]
    # LifeAction is what happens to a sandbox when ttl_s or idle_s is over.
    idle_action: Literal["remove", "pause", "stop", "kill"]
    # seconds without an exec that it may be, 0 = any
    idle_s: float
    # who answers for users and groups that the sandbox does not have; default "auto".
    ids: Literal["auto", "emulate", "real"]
    # reference, or "host"
    image: str
    # keep keeps the sandbox's files on disk without the short cuts that only ephemeral sandboxes may take (overlay
    # `volatile`).
    keep: bool
    # names and values for people and tools, which hutch only stores
    labels: Dict[str, str]
    # whether commands are in a landlock domain; default "auto".
    landlock: Literal["auto", "on", "off"]
    # limits bound a sandbox, or one exec in it
    limits: "Limits"
    # Mount is a further host folder or file, a volume, or a folder in memory.
    mounts: List["Mount"]
    # unique among living sandboxes
    name: str
    # NetPolicy says what a sandbox may reach
    network: "NetPolicy"
    # owner says whose life the sandbox shares: "" is nobody's; "connection" removes it when the connection that created
    # it is lost.
    owner: str
    # os/arch[/variant] of the image; default: this machine's
    platform: str
    # default "missing"
    pull: Literal["missing", "always", "never"]
    # read_only makes everything read-only but the mounts that say otherwise, /dev/shm, and /tmp, /var/tmp and /run,
    # which are then in memory.
    read_only: bool
    # scope names a sandbox by what it is for: sandbox.create returns the one that it has, or makes it.
    scope: "Scope"
    # which system calls commands may make; default "default".
    seccomp: Literal["default", "strict", "build", "browser", "custom"]
    # seccomp_profile is, with "custom", the text of a profile as the OCI runtime specification has it, at most
    # MaxSeccompProfile bytes. It can take away from "default" and not add.
    seccomp_profile: str
    # stop_signal asks commands to end when the sandbox is stopped: a name or number; default: the image's, then
    # SIGTERM.
    stop_signal: str
    # instead of image
    template: str
    # What is done when they are over; default "remove".
    ttl_action: Literal["remove", "pause", "stop", "kill"]
    # life of the sandbox in seconds, 0 = no end
    ttl_s: float
    # undo keeps what the files were before each call of a tool that may change them, and of code.run, so that
    # checkpoint.restore can take it back. It goes with workspaces in mode overlay or ro.
    undo: bool
    # written to the folder user-uploads in the working directory, also of a scope's sandbox that there is.
    uploads: List["Upload"]
    # name|uid[:group|gid]; default: the image's, then 0:0
    user: str
    # absolute; default: the image's, then /
    workdir: str
    # the host folder that the sandbox works on, at /workspace.
    workspace: "Workspace"
    # writable_usr, with the image "host", lets the sandbox make, remove and replace files in /usr, which is the host's:
    # the host sees nothing of it. Otherwise /usr can only be read. Files that are the host's cannot be changed in
    # place.
    writable_usr: bool


class StartFolder(TypedDict):
    """StartFolder is a folder that is handed over."""
    # index in the request's fds; as in Workspace
    fd: int
    # where the sandbox has it: /workspace, or the target of a mount
    target: str


class StartResult(TypedDict):
    """StartResult is exec.start's result."""
    # id of the exec
    exec: str
    # in the sandbox
    pid: int


class _Stats(TypedDict):
    # commands that run
    running_execs: int
    # id or name of the sandbox
    sandbox: str
    # source says where numbers about a sandbox come from.
    source: Literal["cgroup-v2", "cgroup-v1", "processes"]
    # when
    time: str


class Stats(_Stats, total=False):
    """Stats is sandbox.stats's result: what a sandbox uses at one moment, and has used since it began. What the
    source cannot tell is missing; it is never 0 for that reason."""
    # CPUStats is cpu time since the sandbox began, of all processes and CPUs together.
    cpu: "CPUStats"
    # DiskStats is what the sandbox has written and kept.
    disk: "DiskStats"
    # IOStats is what went to and came from block devices, since the sandbox began.
    io: "IOStats"
    # MemoryStats is memory in bytes
    memory: "MemoryStats"
    # its name
    name: str
    # PIDStats counts processes and threads, but for PID 1's own.
    pids: "PIDStats"
    # Pressures says how long processes of the sandbox had to wait for something that was scarce (PSI,
    # Documentation/accounting/psi.rst)
    pressure: "Pressures"


class Stdio(TypedDict, total=False):
    """Stdio are indexes into the fds of a request. A missing one is /dev/null."""
    # standard error, or where that is: an offset in bytes, or the index of an fd
    stderr: int
    # what it reads, or the index of the fd that it reads
    stdin: int
    # standard output, or where that is: an offset in bytes, or the index of an fd
    stdout: int


class _StepProgress(TypedDict):
    # from 1; steps + 1 is the commit
    step: int
    # how many there are
    steps: int
    # name of the template
    template: str


class StepProgress(_StepProgress, total=False):
    """StepProgress tells of a step of a build."""
    # what it has written since
    output: str
    # of one that begins
    text: str


class _StopResult(TypedDict):
    # what `run` starts without a command of its own: Entrypoint + Cmd
    command: List[str]
    # when it was made
    created: str
    # what ended with the processes of a sandbox: files are kept, processes are not.
    ended: "Ended"
    # its host name
    hostname: str
    # its id
    id: str
    # reference of the image
    image: str
    # isolation says what stands between a sandbox and the host, read back from the kernel, not from the request.
    isolation: "Isolation"
    # that are in force
    limits: "Limits"
    # SandboxNetwork is the policy in force, and by what.
    network: "SandboxNetwork"
    # how long each step of its making took
    phases_ms: Dict[str, float]
    # which system calls its commands may make
    seccomp: Literal["default", "strict", "build", "browser", "custom"]
    # where a sandbox is in its life.
    state: Literal["removed", "creating", "running", "paused", "waiting", "stopped", "failed"]
    # working directory of commands that name none
    workdir: str


class StopResult(_StopResult, total=False):
    """StopResult is sandbox.stop's result."""
    # background, in sandbox.list and get, is the command that exec.start with background began last, as long as its
    # output is kept.
    background: "Exec"
    # set only in the answer to a create that asked for it.
    debug: "SandboxDebug"
    # of the image's manifest
    digest: str
    # first words of a command line, as the image has them
    entrypoint: List[str]
    # of sandbox.create: its scope had it
    existing: bool
    # when its ttl_s is over
    expires: str
    # stopped by sandbox.stop: its files and record outlive the daemon
    kept: bool
    # names and values for people and tools, which hutch only stores
    labels: Dict[str, str]
    # its name
    name: str
    # why image is another one than was asked for
    note: str
    # while it is
    paused: "Pause"
    # pid 1, as the host sees it
    pid: int
    # that it waits in, or was acquired from
    pool: str
    # why it stopped, failed or is paused
    reason: str
    # scope names a sandbox by what it is for: sandbox.create returns the one that it has, or makes it.
    scope: "Scope"
    # the exec that its template started
    start_exec: str
    # what sandbox.stop sends; "" is SIGTERM.
    stop_signal: str
    # that it was made by
    template: str
    # its calls can be undone
    undo: bool
    # limits that this host cannot enforce: defaults, and with limits.best_effort those that were asked for.
    unenforced: List["Unenforced"]
    # name or uid, and group after a colon
    user: str


class Subscribed(TypedDict):
    """Subscribed is events.subscribe's result. Notifications follow it."""
    # of the oldest event that is kept
    first_seq: int
    # the id of the log that the numbers belong to. It changes when the daemon's state was deleted, and numbers begin
    # anew.
    log: str
    # of the next that will happen
    next_seq: int
    # its id, unique on its connection
    subscription: str


class _SyncFile(TypedDict):
    # file, folder or symlink
    type: Literal["file", "folder", "symlink", "fifo", "socket", "char_device", "block_device"]


class SyncFile(_SyncFile, total=False):
    """SyncFile is one file of the caller's. A path or target that is not UTF-8 can be given in base64 only; any
    may be."""
    # of a file
    mtime: str
    # below the folder
    path: str
    # instead of path, of a name that is no text
    path_base64: str
    # of a file
    size: int
    # of a symlink
    target: str
    # instead of target, of one that is no text
    target_base64: str


class _Template(TypedDict):
    # unique among templates
    name: str


class Template(_Template, total=False):
    """template is what is known of one."""
    # TemplateBuild is what steps have and sandboxes of the template need not have.
    build: "TemplateBuild"
    # what came of its steps; null where there are none, or before somebody needs them.
    built: "TemplateBuilt"
    # entrypoint and cmd are the command of `hutch run` without one, in the place of the image's. An empty list, [], is
    # none.
    cmd: List[str]
    # when it was made
    created: str
    # for people
    description: str
    # entrypoint and cmd are the command of `hutch run` without one, in the place of the image's. An empty list, [], is
    # none.
    entrypoint: List[str]
    # environment variables
    env: Dict[str, str]
    # Exactly one of image and template is what it begins with; of another template it has all that it does not say
    # itself.
    image: str
    # names and values for people and tools, which hutch only stores
    labels: Dict[str, str]
    # limits bound a sandbox, or one exec in it
    limits: "Limits"
    # NetPolicy says what a sandbox may reach
    network: "NetPolicy"
    # names of variables, such as an API key's, that `hutch agent` passes from its user's environment where they are
    # set. Nothing else does.
    pass_env: List[str]
    # os/arch[/variant] of the image
    platform: str
    # how many sandboxes wait in a pool of the template's name, with all that is started in them ready.
    pool_size: int
    # start runs in the background of each sandbox, ready is waited for before somebody gets it, and ports are then
    # reached from the host.
    ports: List["TemplatePort"]
    # start runs in the background of each sandbox, ready is waited for before somebody gets it, and ports are then
    # reached from the host.
    ready: "TemplateReady"
    # writable_usr and seccomp are those of a sandbox; steps that install into /usr need the first with the image
    # "host".
    seccomp: Literal["default", "strict", "build", "browser", "custom"]
    # shipped says that it comes with hutch or from the configuration file.
    shipped: bool
    # start runs in the background of each sandbox, ready is waited for before somebody gets it, and ports are then
    # reached from the host.
    start: "TemplateStart"
    # run once, in a sandbox of what the template begins with; what they have written is below all sandboxes of it.
    steps: List["TemplateStep"]
    # Exactly one of image and template is what it begins with; of another template it has all that it does not say
    # itself.
    template: str
    # name or uid, and group after a colon
    user: str
    # working directory of commands that name none
    workdir: str
    # writable_usr and seccomp are those of a sandbox; steps that install into /usr need the first with the image
    # "host".
    writable_usr: bool


class TemplateBuild(TypedDict, total=False):
    """TemplateBuild is what steps have and sandboxes of the template need not have."""
    # the same, each
    limits: "Limits"
    # default: the template's
    network: "NetPolicy"


class TemplateBuildResult(TypedDict):
    """TemplateBuildResult is template.build's result."""
    # there were steps, and nothing was to be done
    cached: bool
    # steps that were run
    ran: int
    # name of the template
    template: "Template"


class _TemplateBuilt(TypedDict):
    # what they began with
    base: str
    # digest of what the steps began with, and of all that makes a difference to them
    key: str
    # when
    time: str


class TemplateBuilt(_TemplateBuilt, total=False):
    """TemplateBuilt is what came of steps."""
    # the reference of what was committed; "" of steps over the image "host", of which no image can be made: their files
    # are kept beside it.
    image: str


class _TemplateCopy(TypedDict):
    # the folder that they are put in, absolute; made where it is missing
    target: str


class TemplateCopy(_TemplateCopy, total=False):
    """TemplateCopy puts files of the client's into the sandbox: those of template.create's archive whose names
    begin with the number of the step, from 0, and a slash."""
    # that of names, modes and contents, which template.create sets.
    digest: str
    # what they are called, for people
    sources: List[str]


class _TemplatePort(TypedDict):
    # number of the port
    port: int


class TemplatePort(_TemplatePort, total=False):
    """TemplatePort is a port that the host reaches, as port.expose makes it."""
    # default: a free port of 127.0.0.1, which only one sandbox can have otherwise
    address: str
    # whether who connects must show one
    token: bool


class TemplateReady(TypedDict, total=False):
    """TemplateReady is what is waited for: exactly one of port, argv and command."""
    # a command that succeeds, tried again and again
    argv: List[str]
    # the same for the shell
    command: str
    # that something listens on
    port: int
    # default DefaultReadyS
    timeout_s: float


class _TemplateRemoved(TypedDict):
    # sandboxes of it that waited in pools
    pooled: int
    # sandboxes of it go on; those that waited in its pool are removed.
    sandboxes: int


class TemplateRemoved(_TemplateRemoved, total=False):
    """TemplateRemoved is template.remove's result."""
    # that went with it
    image: str


class TemplateStart(TypedDict, total=False):
    """TemplateStart is a command: exactly one of argv and command."""
    # program and arguments
    argv: List[str]
    # text for the shell
    command: str
    # working directory
    cwd: str
    # environment variables
    env: Dict[str, str]
    # name or uid, and group after a colon
    user: str


class TemplateStep(TypedDict, total=False):
    """TemplateStep is one step of a build: exactly one of run, argv, copy and folder. It runs as the user of the
    image that the template begins with, mostly root, unless it names one."""
    # a command
    argv: List[str]
    # TemplateCopy puts files of the client's into the sandbox: those of template.create's archive whose names begin
    # with the number of the step, from 0, and a slash.
    copy: "TemplateCopy"
    # env, cwd and user are the step's own, over those of the template; cwd is made where it is missing.
    cwd: str
    # env, cwd and user are the step's own, over those of the template; cwd is made where it is missing.
    env: Dict[str, str]
    # one to be made, with those above it, where it is missing.
    folder: str
    # of the file that has it, for errors
    line: int
    # for the sandbox's shell
    run: str
    # default DefaultStepS
    timeout_s: float
    # env, cwd and user are the step's own, over those of the template; cwd is made where it is missing.
    user: str


class Templates(TypedDict):
    """templates is template.list's result."""
    # by name
    templates: List["Template"]


class Tool(TypedDict):
    """Tool describes a tool to a model and to whoever decides what that may do. The last four are hints as MCP
    has them."""
    # for a model
    description: str
    # it may overwrite or remove what is there
    destructive: bool
    # the same call again changes no more
    idempotent: bool
    # JSON Schema of ToolCallParams.Arguments
    input_schema: Any
    # its name
    name: str
    # it may reach what is outside the sandbox, as far as the policy goes
    open_world: bool
    # JSON Schema of ToolResult.Structured
    output_schema: Any
    # it changes nothing in the sandbox
    read_only: bool
    # for people
    title: str


class _ToolContent(TypedDict):
    # text, image or link
    type: str


class ToolContent(_ToolContent, total=False):
    """ToolContent is one piece of a result, for a model."""
    # an image's bytes in base64.
    data: str
    # of an image or a link's target
    mime_type: str
    # of a link's target
    name: str
    # of a link's target, in bytes; 0 where it is not known
    size: int
    # text
    text: str
    # of a link
    uri: str


class _ToolError(TypedDict):
    # text of the code
    code: Literal["not_found", "already_exists", "invalid_argument", "failed_precondition", "permission_denied", "resource_exhausted", "deadline_exceeded", "unavailable", "unimplemented", "canceled", "internal"]
    # what went wrong, in a sentence
    message: str


class ToolError(_ToolError, total=False):
    """ToolError is why a tool could not do what it was asked for."""
    # of the arguments
    field: str
    # what to do about it
    hint: str


class ToolList(TypedDict):
    """ToolList is tools.list's result."""
    # Tool describes a tool to a model and to whoever decides what that may do
    tools: List["Tool"]


class _ToolResult(TypedDict):
    # the id of the call. undo says that checkpoint.restore can take back what it has changed.
    call: str
    # ToolContent is one piece of a result, for a model.
    content: List["ToolContent"]
    # the tool could not do it
    is_error: bool


class ToolResult(_ToolResult, total=False):
    """ToolResult is tools.call's result. What a model can act on is a result, also where it failed: a file that
    is not there, a command that did not succeed, arguments that do not fit. Errors of tools.call are about
    its caller: an unknown sandbox or tool."""
    # what went wrong
    error: "ToolError"
    # the same for programs; it fits the tool's output schema. Missing where error is set.
    structured: Any
    # call is the id of the call. undo says that checkpoint.restore can take back what it has changed.
    undo: bool


class _Unenforced(TypedDict):
    # "memory_bytes"
    limit: str
    # what it would have been
    value: float
    # what this host lacks
    why: str


class Unenforced(_Unenforced, total=False):
    """Unenforced is a limit that is not in force."""
    # default says that nobody asked for it but the configuration.
    default: bool
    # what bounds a part of it all the same
    instead: str
    # metered says that somebody looks, several times a second, and ends what exceeds it.
    metered: bool


class Unguarded(TypedDict):
    """Unguarded is a guarded name that the sandbox can write all the same: it was not there when the sandbox was
    made."""
    # what to do about it
    hint: str
    # inside
    path: str
    # why, in a sentence
    why: str


class _Upload(TypedDict):
    # its content
    data: str
    # below user-uploads
    name: str


class Upload(_Upload, total=False):
    """Upload is a file that comes with sandbox.create."""
    # of data
    encoding: Literal["utf-8", "base64"]
    # octal, default 0644
    mode: str


class Verified(TypedDict):
    """Verified is image.verify's result."""
    # LayerCheck is what image.verify found of one layer.
    layers: List["LayerCheck"]


class _Volume(TypedDict):
    # when it was made
    created: str
    # its name
    name: str
    # ids of those that have it mounted
    sandboxes: List[str]


class Volume(_Volume, total=False):
    """Volume is a folder of the daemon's that outlives sandboxes, mounted by its name. It is one user's."""
    # on disk, where usage is asked for
    bytes: int
    # files and folders, where usage is asked for
    inodes: int


class Volumes(TypedDict):
    """volumes is volume.list's result, by name."""
    # directories for data, as the image has them
    volumes: List["Volume"]


class Wall(TypedDict):
    """Wall is one part of the isolation and whether it is in force."""
    # how, or why not
    detail: str
    # its name
    name: str
    # "yes" or "no"
    status: str


class _Workspace(TypedDict):
    # MountMode says what a sandbox may do to a host folder.
    mode: Literal["none", "ro", "rw", "overlay", "tmpfs"]


class Workspace(_Workspace, total=False):
    """Workspace is the host folder that the sandbox works on, at /workspace."""
    # the index, in the request's fds, of an O_PATH fd of path that the client opened: proof that the caller may see it,
    # and protection against a path that changes under way. A client started by root sends a detached, id-mapped mount
    # instead.
    fd: int
    # names, relative to the folder, that a sandbox in mode rw cannot write, beside those that are guarded in any such
    # folder (hutch config guard); unguarded are those of them that it can. "*" is all of them.
    guard: List[str]
    # what is done about guarded names that are not there; default "auto".
    guard_new: Literal["auto", "tell", "refuse"]
    # absolute, on the host
    path: str
    # also a folder of some, such as .git
    unguarded: List[str]


class _WorkspaceApplied(TypedDict):
    # paths
    applied: List[str]
    # that were left alone
    failed: List["WorkspaceFailure"]


class WorkspaceApplied(_WorkspaceApplied, total=False):
    """WorkspaceApplied is the result of workspace.apply."""
    # how many of both are not listed, of very many.
    more: int


class _WorkspaceChange(TypedDict):
    # added, modified, deleted or renamed
    kind: str
    # relative to the workspace
    path: str
    # the first letter of ls -l: - d l, or p s c b, which stay in the sandbox.
    type: str


_WorkspaceChangeRest = TypedDict(
    "_WorkspaceChangeRest",
    {
        # conflict says what somebody else has done to it in the folder since the sandbox touched it.
        "conflict": str,
        # the path before, of one that was renamed
        "from": str,
        # the name of the guard (GuardedNames) that it is or lies below: it is applied only when Paths name it.
        "guarded": str,
        # octal permission bits that are new
        "mode": str,
        # in bytes, of a file
        "size": int,
    },
    total=False,
)


class WorkspaceChange(_WorkspaceChange, _WorkspaceChangeRest):
    """WorkspaceChange is a name that is another in the sandbox than in the folder."""


class _WorkspaceDiff(TypedDict):
    # WorkspaceChange is a name that is another in the sandbox than in the folder.
    changes: List["WorkspaceChange"]
    # digest stands for all changes, whatever Paths say: given to workspace.apply it keeps that from applying what came
    # later.
    digest: str
    # of the folder, on the host
    path: str


class WorkspaceDiff(_WorkspaceDiff, total=False):
    """WorkspaceDiff is the result of workspace.diff."""
    # the changes as a unified diff
    diff: str
    # the path of the last change of this page where more follow: pages end behind 4 MiB of names. Each page has the
    # same digest, or the sandbox has changed something meanwhile.
    next_after: str
    # diff is not all
    truncated: bool


class _WorkspaceDiscarded(TypedDict):
    # paths
    discarded: List[str]
    # WorkspaceFailure is a change that was not applied.
    failed: List["WorkspaceFailure"]


class WorkspaceDiscarded(_WorkspaceDiscarded, total=False):
    """WorkspaceDiscarded is the result of workspace.discard."""
    # as WorkspaceApplied's
    more: int


class _WorkspaceFailure(TypedDict):
    # its path
    path: str
    # why, in a sentence
    why: str


class WorkspaceFailure(_WorkspaceFailure, total=False):
    """WorkspaceFailure is a change that was not applied."""
    # force would apply it
    conflict: bool
    # naming it would
    guarded: bool


class _ProgressNotification(TypedDict):
    # the request's id
    request: Any
    # "exec.started", "image.progress", "image.ready", "debug.break", "template.step", "code.output"
    kind: str


_ProgressNotificationRest = TypedDict(
    "_ProgressNotificationRest",
    {
        # id of the exec
        "exec": str,
        # in the sandbox
        "pid": int,
        # of kind "exec.started" of sandbox.run, with what is not as it was asked for:
        "sandbox": str,
        # see sandbox
        "note": str,
        # limits, see sandbox.
        "unenforced": List['Unenforced'],
        # of an image
        "layer": str,
        # what is done with the layer
        "phase": str,
        # bytes
        "done": int,
        # bytes, -1 when unknown
        "total": int,
        # of kind "debug.break"
        "break": 'BreakPoint',
        # of kind "template.step"
        "step": 'StepProgress',
        # of kind "code.output"
        "stream": Literal['stdout', 'stderr'],
        # written to it; bytes that are no text are replaced
        "text": str,
    },
    total=False,
)


class ProgressNotification(_ProgressNotification, _ProgressNotificationRest):
    """News about a request that is still running, whose params have asked for them."""


class _ExecOutputNotification(TypedDict):
    # id of the attachment, unique on its connection
    attachment: str
    # id of the exec
    exec: str
    # stream names an output stream.
    stream: Literal["stdout", "stderr"]
    # of the first byte of data
    offset: int
    # encoding says how bytes travel in JSON.
    encoding: Literal["utf-8", "base64"]
    # the bytes, encoded as encoding says
    data: str


class ExecOutputNotification(_ExecOutputNotification, total=False):
    """Output of an exec that exec.attach follows."""
    # how many bytes before offset are lost: they were dropped from the middle of the spool before they could be sent.
    dropped: int


class _ExecExitedNotification(TypedDict):
    # id of the attachment, unique on its connection
    attachment: str
    # how long the streams were; 0 if not followed
    ends: "Offsets"
    # id of the exec
    exec: str
    # the exit code; 128+n after signal n
    exit_code: int
    # verdict says how an exec ended.
    verdict: Literal["ok", "nonzero", "signal", "timeout_wall", "timeout_cpu", "oom", "pids", "disk", "output", "denied", "killed", "not_run", "sandbox", "cancelled", "lost"]
    # whether its time was over
    timed_out: bool
    # as stdout_encoding says
    stdout: str
    # as stdout_encoding says
    stdout_encoding: Literal["utf-8", "base64"]
    # as stderr_encoding says
    stderr: str
    # as stderr_encoding says
    stderr_encoding: Literal["utf-8", "base64"]
    # the middle of a stream is missing, or what a full disk did not take
    truncated: bool
    # how long it took, in milliseconds
    duration_ms: float
    # the most that an exec used.
    peaks: "Peaks"
    # host pids of processes that were killed
    killed: List[int]
    # Denial is an operation that the sandbox refused.
    denials: List["Denial"]


class ExecExitedNotification(_ExecExitedNotification, total=False):
    """The end of an exec that exec.attach follows, after the last byte of its streams."""
    # "SIGKILL"; exit_code is then 128+n
    signal: str
    # the limit behind the verdict, of memory, processes or disk space.
    limit: "LimitHit"
    # connections that the policy allows, and that failed outside while the command ran.
    failures: List["Failure"]
    # the paragraph of /run/hutch/policy.txt about what was refused now for the third time: the sandbox gets it once of
    # each kind.
    policy: str
    # names of the workspace's guard that turned up since the command before.
    unguarded: List["Unguarded"]
    # what to do about a command that failed, where its own message cannot know: who installs something in the image
    # host, or is killed by a rule of the sandbox's own seccomp profile.
    hint: str
    # error says why a command with the verdict not_run never ran.
    error: str


class _EventNotification(TypedDict):
    # seq numbers the events of a daemon from 1, without holes. Numbers outlive the daemon: the next one on its socket
    # goes on.
    seq: int
    # when it happened
    time: str
    # EventKind says what happened.
    kind: Literal["sandbox.state", "sandbox.reclaimed", "exec.started", "exec.exited", "exec.decided", "exec.host_exited", "limit.hit", "network.denied", "network.failed", "network.ask", "network.answered", "syscall.denied", "port.opened", "file.denied", "tool.call", "tool.message", "workspace.unguarded", "image.progress", "config.reloaded", "events.lost", "gap"]


class EventNotification(_EventNotification, total=False):
    """An event of a subscription of events.subscribe."""
    # its id
    subscription: str
    # id or name of the sandbox
    sandbox: str
    # id of the exec
    exec: str
    # depends on the kind
    data: Any


class _EventsEndNotification(TypedDict):
    # id of the subscription, unique on its connection
    subscription: str


class EventsEndNotification(_EventsEndNotification, total=False):
    """The end of a subscription of events.subscribe."""
    # why it ended, if not as asked
    error: str

