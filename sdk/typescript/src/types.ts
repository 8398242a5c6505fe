// Made by make generate of rpc.discover: change runtime/api.

/** The types of the daemon's JSON-RPC: what Client.rpc takes and returns. */

/** AcquireParams are those of pool.acquire. */
export interface AcquireParams {
  /** beside those of the pool */
  labels?: Record<string, string>;
  /** of the sandbox, unique among living ones */
  name?: string;
  /** see Spec.Owner */
  owner?: string;
  /** name of the pool */
  pool: string;
  /** how long, in milliseconds, to wait for a sandbox when none is ready. */
  wait_ms?: number;
}

/** Artifact is something that code has made beside text. */
export interface Artifact {
  /** what it is: PNG in base64, other values and tables as text; of files only images, in base64. */
  data?: string;
  /**
   * figure (of matplotlib), value (of the last expression, or displayed), table (JSON, orient "split") or file (made or
   * changed in the working directory).
   */
  kind: string;
  /** its media type */
  mime_type: string;
  /** of a file */
  path?: string;
  /** in bytes, also where data is left out */
  size: number;
}

/** Asks is network.asks' result. */
export interface Asks {
  /** the entries that were answered so: those of Allow and AllowCIDRs. */
  always: NetLists;
  /** the oldest first */
  pending: Question[];
}

/** Attached is exec.attach's result. Notifications follow it, never precede it. */
export interface Attached {
  /** the id that the notifications carry: unique on its connection. */
  attachment: string;
  /** where it starts */
  from: Offsets;
}

/** AuditBug is something that is wrong with a log. */
export interface AuditBug {
  /** more about it, for people */
  detail: string;
  /** and where it is */
  file: string;
  /** number of the line, from 1 */
  line?: number;
  /** of the record */
  seq: number;
}

/**
 * AuditHead names the last record of a log, at some time. Who keeps one elsewhere can tell later whether what was
 * before it is still the same.
 */
export interface AuditHead {
  /** SHA-256 of the record */
  hash: string;
  /** number of the record */
  seq: number;
}

/** AuditLog describes a log that is kept. */
export interface AuditLog {
  /** on disk */
  bytes: number;
  /** that were ever written */
  records: number;
  /** the sandbox is */
  removed: boolean;
  /** id or name of the sandbox */
  sandbox: string;
  /** last */
  written: string;
}

/** AuditLogs is audit.list's result. */
export interface AuditLogs {
  /** AuditLog describes a log that is kept. */
  logs: AuditLog[];
}

/** AuditRecords is audit.read's result. The records are AuditRecords, byte for byte as they are stored. */
export interface AuditRecords {
  /** lines that are no records: audit.verify says which */
  broken?: number;
  /** there will never be more */
  ended: boolean;
  /** there are more by now */
  more: boolean;
  /** from_seq of the next call */
  next: number;
  /** each as it was written */
  records: any[];
  /** its id */
  sandbox: string;
}

/** AuditVerified is audit.verify's result. */
export interface AuditVerified {
  /** the sandbox was removed */
  closed: boolean;
  /** number of the oldest record; those before were dropped */
  first: number;
  /** AuditHead names the last record of a log, at some time */
  head: AuditHead;
  /** records that say that others could not be written: their sum */
  lost?: number;
  /** there are no problems */
  ok: boolean;
  /** what is wrong, in words */
  problems: AuditBug[];
  /** that were read */
  records: number;
  /** how often a daemon went on that another was killed of */
  resumed?: number;
  /** id or name of the sandbox */
  sandbox?: string;
  /** further problems */
  untold?: number;
}

/** Authenticated is system.authenticate's result. */
export interface Authenticated {
  /**
   * the name that the configuration gives the token; "" where it names no tokens and serves every client of the user's.
   */
  client: string;
}

/**
 * Break stops a creation behind one of its steps. Before it stops it sends a progress notification of kind
 * "debug.break", with the BreakPoint; it goes on when the other end of the pipe is closed or written to, or fails when
 * the request is canceled.
 */
export interface Break {
  /** index, in the request's fds, of the end of a pipe that can be read */
  fd: number;
  /** one of DebugPhases */
  phase: string;
}

/** BreakPoint is what there is of a sandbox behind a step. */
export interface BreakPoint {
  /** relative to the hierarchies' mount points */
  cgroup?: string;
  /** the sandbox's own, through hutchd's /proc/pid/root */
  folder: string;
  /** pid 1, as the host sees it */
  pid?: number;
  /** id or name of the sandbox */
  sandbox: string;
}

/** CPUStats is CPU time since the sandbox began, of all processes and CPUs together. */
export interface CPUStats {
  /** CPU time per wall time */
  limit?: number;
  /** in the kernel */
  system_ms: number;
  /** it waited for its limit to let it go on */
  throttled_ms: number;
  /** CPU time since the start */
  used_ms: number;
  /** in programs */
  user_ms: number;
}

/** Check is one of the doctor's probes. */
export interface Check {
  /** more about it, for people */
  detail: string;
  /** its name */
  name: string;
  /** an exact command, "" when nothing is to be done */
  remedy: string;
  /** sandboxes cannot run without it */
  required: boolean;
  /** yes, no or inconclusive */
  status: string;
}

/** Checkpoint is what the files of a sandbox were before a call that may have changed them. */
export interface Checkpoint {
  /** bytes and inodes are what it takes beside what others have in common with it. */
  bytes: number;
  /** id of the call, as its result has it */
  call: string;
  /** its id */
  id: string;
  /** bytes and inodes are what it takes beside what others have in common with it. */
  inodes: number;
  /** that the call named; a command may have changed any */
  paths?: string[];
  /** when */
  time: string;
  /** name of the tool, or code.run, or checkpoint.restore */
  tool: string;
  /** the files are not what the call made of them */
  undone: boolean;
}

/** CheckpointRestored is checkpoint.restore's result. */
export interface CheckpointRestored {
  /**
   * background, in sandbox.list and get, is the command that exec.start with background began last, as long as its
   * output is kept.
   */
  background?: Exec;
  /** of this restore: checkpoint.restore to it takes it back */
  call: string;
  /** what `run` starts without a command of its own: Entrypoint + Cmd */
  command: string[];
  /** when it was made */
  created: string;
  /** set only in the answer to a create that asked for it. */
  debug?: SandboxDebug;
  /** of the image's manifest */
  digest?: string;
  /** what ended with the processes of a sandbox: files are kept, processes are not. */
  ended: Ended;
  /** first words of a command line, as the image has them */
  entrypoint?: string[];
  /** of sandbox.create: its scope had it */
  existing?: boolean;
  /** when its ttl_s is over */
  expires?: string;
  /** its host name */
  hostname: string;
  /** its id */
  id: string;
  /** reference of the image */
  image: string;
  /** isolation says what stands between a sandbox and the host, read back from the kernel, not from the request. */
  isolation: Isolation;
  /** stopped by sandbox.stop: its files and record outlive the daemon */
  kept?: boolean;
  /** names and values for people and tools, which hutch only stores */
  labels?: Record<string, string>;
  /** that are in force */
  limits: Limits;
  /** its name */
  name?: string;
  /** SandboxNetwork is the policy in force, and by what. */
  network: SandboxNetwork;
  /** as of Checkpoints. */
  not_covered?: string[];
  /** why image is another one than was asked for */
  note?: string;
  /** while it is */
  paused?: Pause;
  /** how long each step of its making took */
  phases_ms: Record<string, number>;
  /** pid 1, as the host sees it */
  pid?: number;
  /** that it waits in, or was acquired from */
  pool?: string;
  /** why it stopped, failed or is paused */
  reason?: string;
  /** scope names a sandbox by what it is for: sandbox.create returns the one that it has, or makes it. */
  scope?: Scope;
  /** which system calls its commands may make */
  seccomp: "default" | "strict" | "build" | "browser" | "custom";
  /** the exec that its template started */
  start_exec?: string;
  /** where a sandbox is in its life. */
  state: "removed" | "creating" | "running" | "paused" | "waiting" | "stopped" | "failed";
  /** what sandbox.stop sends; "" is SIGTERM. */
  stop_signal?: string;
  /** that it was made by */
  template?: string;
  /** the files are those of before it */
  to_call: string;
  /** its calls can be undone */
  undo?: boolean;
  /** calls, the last one first */
  undone: string[];
  /** limits that this host cannot enforce: defaults, and with limits.best_effort those that were asked for. */
  unenforced?: Unenforced[];
  /** name or uid, and group after a colon */
  user?: string;
  /** working directory of commands that name none */
  workdir: string;
}

/** checkpoints is checkpoint.list's result, oldest first. */
export interface Checkpoints {
  /** Checkpoint is what the files of a sandbox were before a call that may have changed them. */
  checkpoints: Checkpoint[];
  /** where the sandbox has volumes: what is in these stays as it is. */
  not_covered?: string[];
  /** that all of them take */
  total_bytes: number;
}

/**
 * Chunk is exec.read's result: the bytes [offset, next) of a stream. offset is behind the one asked for when what was
 * between has been dropped.
 */
export interface Chunk {
  /** the bytes, encoded as encoding says */
  data: string;
  /** encoding says how bytes travel in JSON. */
  encoding: "utf-8" | "base64";
  /** the exec has ended and next is the end */
  eof: boolean;
  /** offset after the last byte */
  next: number;
  /** offset of the first byte */
  offset: number;
}

/** CodeContext is an interpreter that is kept. */
export interface CodeContext {
  /** name of the interpreter that is kept */
  context: string;
  /** id of the exec */
  exec: string;
  /** name of the language */
  language: string;
  /** name or uid, and group after a colon */
  user?: string;
}

/** CodeContexts is code.contexts' result. */
export interface CodeContexts {
  /** CodeContext is an interpreter that is kept. */
  contexts: CodeContext[];
}

/** CodeError is an exception. */
export interface CodeError {
  /** its name */
  name: string;
  /** where it was raised */
  traceback?: string;
  /** what the error says */
  value: string;
}

/** CodeResult is code.run's result. */
export interface CodeResult {
  /** Artifact is something that code has made beside text. */
  artifacts: Artifact[];
  /** begun says that the context is new: what earlier runs have defined is not there. */
  begun?: boolean;
  /** the id of the call, for checkpoint.restore in sandboxes with undo */
  call?: string;
  /** the one it ran in */
  context?: string;
  /** Denial is an operation that the sandbox refused. */
  denials: Denial[];
  /** how long it took, in milliseconds */
  duration_ms: number;
  /** what the code has raised, or why the interpreter ended */
  error?: CodeError;
  /** of the interpreter */
  exec?: string;
  /** Of an interpreter that has ended. */
  exit_code: number;
  /** connections that the policy allows, and that failed outside. */
  failures?: Failure[];
  /** as of an ExecResult */
  policy?: string;
  /** the same of standard error */
  stderr: string;
  /** bytes that are no text are replaced */
  stdout: string;
  /** the value of the code's last expression, as the interpreter shows it. */
  text?: string;
  /** whether its time was over */
  timed_out: boolean;
  /** the middle of a stream, or an artifact, is missing */
  truncated: boolean;
  /** ok also while a context is kept; nonzero when the code has raised an error */
  verdict: "ok" | "nonzero" | "signal" | "timeout_wall" | "timeout_cpu" | "oom" | "pids" | "disk" | "output" | "denied"
    | "killed" | "not_run" | "sandbox" | "cancelled" | "lost";
  /**
   * "host" of code that ran on the host, by the mode that hutch mcp was started with; exec is then no exec of a
   * sandbox.
   */
  where?: "sandbox" | "host" | "refused";
}

/** Committed is image.commit's result. */
export interface Committed {
  /** reference of the image */
  image: Image;
  /**
   * left_out counts files that no layer can hold: devices, sockets, and names that begin with ".wh.", which mean
   * removed files there. The first few are named.
   */
  left_out: number;
  /** some of them */
  left_out_names?: string[];
}

/** ConfigChanges change how an image runs. What is left out stays as it is. */
export interface ConfigChanges {
  /** entrypoint clears the image's cmd unless that is given, too. An empty list, [], clears either. */
  cmd?: string[];
  /** entrypoint clears the image's cmd unless that is given, too. An empty list, [], clears either. */
  entrypoint?: string[];
  /** added, or replaced */
  env?: Record<string, string>;
  /** added, such as "80/tcp" */
  exposed_ports?: string[];
  /** added, or replaced */
  labels?: Record<string, string>;
  /** signal that asks it to end, as the image has it */
  stop_signal?: string;
  /** name or uid, and group after a colon */
  user?: string;
  /** added, absolute paths */
  volumes?: string[];
  /** an absolute path. */
  working_dir?: string;
}

/** Counts are how many of each a daemon holds. */
export interface Counts {
  /** that run */
  execs: number;
  /** in the store */
  images: number;
  /** launched ahead, of no image yet, for whoever creates a sandbox */
  ready: number;
  /**
   * removing counts what sandbox.remove has answered for, and whose mounts, cgroup or folder are still being removed.
   */
  removing: number;
  /** that live */
  sandboxes: number;
}

/** DebugRule is a rule of a seccomp profile. */
export interface DebugRule {
  /** "allow" or the errno, such as "EPERM" */
  action: string;
  /** why, in a sentence */
  reason: string;
  /** names of the calls */
  syscalls: string[];
  /** the arguments that it is about, such as "arg1&0xffffffff == 0x5412" */
  when?: string;
}

/** DebugStep is a step of a creation. */
export interface DebugStep {
  /** what came of it, for people */
  detail?: string;
  /** how long it took */
  ms: number;
  /** its name */
  name: string;
}

/**
 * decision is exec.decide's result. Of a command on the host the daemon has recorded that it runs, and waits for
 * exec.record_host with its id; the daemon itself runs nothing there.
 */
export interface Decision {
  /**
   * the user's folder that is the sandbox's workspace, where a command on the host is to run; "" where there is none.
   */
  cwd?: string;
  /** sandbox or host */
  decision: "sandbox" | "host" | "refused";
  /** what a scan has found, those that decided first; of mode selective only. */
  findings: Finding[];
  /** its id */
  id?: string;
  /** in force */
  mode: "all" | "selective" | "off";
  /** in a sentence */
  reason: string;
  /** the wall time after which the caller is to kill it; 0 is none. */
  timeout_s?: number;
}

/** Denial is an operation that the sandbox refused. */
export interface Denial {
  /** IP address */
  address?: string;
  /**
   * "ebpf", "proxy", "names", "route", "seccomp", "mount", "guard" or "mode"; errno is what the program saw of it:
   * EACCES, or what its protocol has, as "HTTP 403" or "NXDOMAIN".
   */
  by?: string;
  /** how often the very same happened, time when last. */
  count?: number;
  /**
   * by is "ebpf", "proxy", "names", "route", "seccomp", "mount", "guard" or "mode"; errno is what the program saw of
   * it: EACCES, or what its protocol has, as "HTTP 403" or "NXDOMAIN".
   */
  errno?: string;
  /**
   * the one that was refused, which eBPF knows; else the only exec that ran at that time, from which processes that an
   * earlier exec left behind are not told apart. Without one, several ran or none did.
   */
  exec?: string;
  /** what to change to allow it */
  how_to_allow: string;
  /** net, file, syscall, fs, limit */
  kind: string;
  /** its name */
  name?: string;
  /** of "tcp" or "udp" */
  port?: number;
  /** probe says that programs try this by themselves and do as well without it: people are shown it on request. */
  probe?: boolean;
  /** the last that was refused this; eBPF alone knows it. */
  process?: NetProcess;
  /** "" is a lookup, or unknown without a name */
  proto?: "tcp" | "udp";
  /** the rule that decided */
  rule: string;
  /** what was to be reached */
  target: string;
  /** count is how often the very same happened, time when last. */
  time?: string;
  /** why, in a sentence */
  why: string;
}

/** DiskStats is what the sandbox has written and kept. */
export interface DiskStats {
  /** files and folders of it */
  inodes?: number;
  /** the most there may be, in bytes */
  limit_bytes?: number;
  /** what it has written and kept */
  used_bytes: number;
}

/** Doctor is system.doctor's result. */
export interface Doctor {
  /** Check is one of the doctor's probes. */
  checks: Check[];
}

/** Empty is the params or result of a method that has none. */
export interface Empty {
}

/** Ended is what ended with the processes of a sandbox: files are kept, processes are not. */
export interface Ended {
  /** of code.run */
  contexts: string[];
  /** that ran */
  execs: string[];
  /** for people */
  note: string;
  /** those that the host reached. Nothing opens them again but port.expose. */
  ports?: EndedPort[];
  /** that were open */
  shells: string[];
}

/** EndedPort is a port that a stop has closed. */
export interface EndedPort {
  /** as Port.Address */
  address: string;
  /** number of the port */
  port: number;
  /** requests had to have one */
  token: boolean;
}

/** exec is the record of one exec. */
export interface Exec {
  /** program and arguments */
  argv?: string[];
  /** its stdin is empty */
  background: boolean;
  /** text for the shell */
  command?: string;
  /** how long it took, in milliseconds */
  duration_ms?: number;
  /** id of the exec */
  exec: string;
  /** Of an exec that has ended. */
  exit_code?: number;
  /** hutch talks to it: the interpreter of a code.run, or a shell */
  kept?: boolean;
  /** in the sandbox */
  pid: number;
  /** id or name of the sandbox */
  sandbox: string;
  /** when it was started */
  started: string;
  /** ExecState says whether an exec still runs. */
  state: "running" | "exited";
  /** stdout_bytes and stderr_bytes are how much there is to read so far. */
  stderr_bytes: number;
  /** stdout_bytes and stderr_bytes are how much there is to read so far. */
  stdout_bytes: number;
  /** it has a terminal */
  tty: boolean;
  /** verdict says how an exec ended. */
  verdict?: "ok" | "nonzero" | "signal" | "timeout_wall" | "timeout_cpu" | "oom" | "pids" | "disk" | "output" |
    "denied" | "killed" | "not_run" | "sandbox" | "cancelled" | "lost";
}

/** ExecBounds are what the daemon's configuration says about commands. */
export interface ExecBounds {
  /** the most that one may ask for, seconds */
  max_timeout_s: number;
  /** of commands that name none, seconds */
  timeout_s: number;
}

/** ExecParams are exec.run's params. */
export interface ExecParams {
  /** exactly one of argv and command */
  argv?: string[];
  /** background, of exec.start: stdin is empty instead of open for exec.write. */
  background?: boolean;
  /** run by the sandbox's shell */
  command?: string;
  /** absolute; default: the sandbox's workdir */
  cwd?: string;
  /**
   * detachable, of a pty with stdio: the terminal outlives its fds. Their end is not the end of input, what appears is
   * also kept as without stdio, and exec.write types, too.
   */
  detachable?: boolean;
  /** of stdin, and wanted for the output */
  encoding?: "utf-8" | "base64";
  /** over the sandbox's */
  env?: Record<string, string>;
  /**
   * the exec's id when the caller chooses it: "ex_" and 12 to 32 lower-case letters and digits, used once. A caller
   * that loses its connection before it is told the id can then still ask what became of the command.
   */
  exec?: string;
  /** the number of fds that ride on this request; stdio are indexes into them. With stdio nothing is captured. */
  fds?: number;
  /** limits bound a sandbox, or one exec in it */
  limits?: Limits;
  /** NetPolicy says what a sandbox may reach */
  network?: NetPolicy;
  /** cap of each captured stream in the reply; default 1 MiB */
  output_bytes?: number;
  /** progress asks for a notification with the exec's id when it has started. */
  progress?: boolean;
  /**
   * pty asks for a terminal in the sandbox. With stdio, its stdin and "stdout" are the pipes, sockets or terminals that
   * carry it, and its "stderr" is unused; without, what appears on it is the exec's stdout, and exec.write types.
   */
  pty?: Pty;
  /** id or name of the sandbox */
  sandbox: string;
  /** all that it reads */
  stdin?: string;
  /**
   * fds is the number of fds that ride on this request; stdio are indexes into them. With stdio nothing is captured.
   */
  stdio?: Stdio;
  /**
   * the wall time after which the command and everything it started is killed, at most the daemon's exec.max_timeout_s.
   * null is the sandbox's limits.timeout_s, else the daemon's exec.timeout_s. background commands and those with a pty
   * have no timeout unless one is given, no maximum, and 0 is none.
   */
  timeout_s?: number;
  /** default: the sandbox's user */
  user?: string;
}

/** ExecResult is exec.run's result. */
export interface ExecResult {
  /** Denial is an operation that the sandbox refused. */
  denials: Denial[];
  /** how long it took, in milliseconds */
  duration_ms: number;
  /** error says why a command with the verdict not_run never ran. */
  error?: string;
  /** id of the exec */
  exec: string;
  /** the exit code; 128+n after signal n */
  exit_code: number;
  /** connections that the policy allows, and that failed outside while the command ran. */
  failures?: Failure[];
  /**
   * what to do about a command that failed, where its own message cannot know: who installs something in the image
   * host, or is killed by a rule of the sandbox's own seccomp profile.
   */
  hint?: string;
  /** host pids of processes that were killed */
  killed: number[];
  /** the limit behind the verdict, of memory, processes or disk space. */
  limit?: LimitHit;
  /** the most that an exec used. */
  peaks: Peaks;
  /**
   * the paragraph of /run/hutch/policy.txt about what was refused now for the third time: the sandbox gets it once of
   * each kind.
   */
  policy?: string;
  /** "SIGKILL"; exit_code is then 128+n */
  signal?: string;
  /** as stderr_encoding says */
  stderr: string;
  /** as stderr_encoding says */
  stderr_encoding: "utf-8" | "base64";
  /** as stdout_encoding says */
  stdout: string;
  /** as stdout_encoding says */
  stdout_encoding: "utf-8" | "base64";
  /** whether its time was over */
  timed_out: boolean;
  /** the middle of a stream is missing, or what a full disk did not take */
  truncated: boolean;
  /** names of the workspace's guard that turned up since the command before. */
  unguarded?: Unguarded[];
  /** verdict says how an exec ended. */
  verdict: "ok" | "nonzero" | "signal" | "timeout_wall" | "timeout_cpu" | "oom" | "pids" | "disk" | "output" | "denied"
    | "killed" | "not_run" | "sandbox" | "cancelled" | "lost";
}

/** execs is exec.list's result, oldest first. */
export interface Execs {
  /** exec is the record of one exec. */
  execs: Exec[];
}

/** Exported is image.export's result. */
export interface Exported {
  /** written */
  bytes: number;
  /**
   * id and layers are the image's in the archive: layers are packed anew, and those that another program had packed get
   * other digests. Of a root file system there is no layer.
   */
  id: string;
  /**
   * id and layers are the image's in the archive: layers are packed anew, and those that another program had packed get
   * other digests. Of a root file system there is no layer.
   */
  layers: string[];
}

/** Failure is a connection or lookup that the policy allows and that could not be made outside of the sandbox. */
export interface Failure {
  /** IP address */
  address?: string;
  /** how often the very same happened, time when last. */
  count?: number;
  /** what the program saw: ECONNRESET where it was connected to hutch already */
  errno?: string;
  /** as of a Denial */
  exec?: string;
  /** what to do about it, "" where that is for whoever runs the server. */
  hint?: string;
  /** its name */
  name?: string;
  /** of "tcp" or "udp" */
  port?: number;
  /** "" is a lookup, or unknown without a name */
  proto?: "tcp" | "udp";
  /** what was to be reached */
  target: string;
  /** count is how often the very same happened, time when last. */
  time?: string;
  /** why, in a sentence */
  why: string;
}

/** File describes one file. Ids are those inside the sandbox. */
export interface File {
  /**
   * attributes, where they were asked for, are the extended attributes of a file or folder that the user may read, by
   * their names below "user.".
   */
  attributes?: Record<string, string>;
  /** error says why a folder of a recursive list was not entered. */
  error?: string;
  /** id of its group in the sandbox */
  gid: number;
  /** permissions, octal: "0644" */
  mode: string;
  /** when its content changed last */
  mtime: string;
  /** its last name */
  name: string;
  /** of a list: below the folder; else as asked for */
  path: string;
  /** path_base64 holds the bytes of a path that is not UTF-8. */
  path_base64?: string;
  /** size in bytes */
  size: number;
  /** of a symlink */
  target?: string;
  /** FileType is what kind of file something is. */
  type: "file" | "folder" | "symlink" | "fifo" | "socket" | "char_device" | "block_device";
  /** id of its user in the sandbox */
  uid: number;
  /** version, of fs.stat, changes with whatever writes the file or takes its place: see if_version of fs.write. */
  version?: string;
}

/** FileArchive is the result of fs.pack and fs.unpack. */
export interface FileArchive {
  /** of regular files */
  bytes: number;
  /** files and folders of the archive */
  entries: number;
  /** devices, fifos and sockets, which do not travel */
  skipped: number;
}

/** FileChunk is fs.read's result: the bytes [offset, next) of a file. */
export interface FileChunk {
  /** the bytes, encoded as encoding says */
  data: string;
  /** encoding says how bytes travel in JSON. */
  encoding: "utf-8" | "base64";
  /** next is the end of the file */
  eof: boolean;
  /** where the next read goes on */
  next: number;
  /** offset of the first byte */
  offset: number;
  /** of the file at this moment; 0 for those of /proc */
  size: number;
}

/** FileList is fs.list's result: each folder before what it holds, names in order. */
export interface FileList {
  /** File describes one file */
  entries: File[];
  /** there is more, or a folder was too deep */
  truncated: boolean;
}

/** FileMade is fs.mkdir's result. */
export interface FileMade {
  /** false: it existed */
  created: boolean;
}

/** FileRemoved is fs.remove's result. */
export interface FileRemoved {
  /** files and folders */
  removed: number;
}

/**
 * FileSynced is fs.sync's result. A tar archive of what is needed, with times to the nanosecond, through fs.unpack
 * makes the folders the same.
 */
export interface FileSynced {
  /** indexes, in Files, of what is missing in the sandbox, or other there */
  needed: number[];
  /** names, each with all that was below it */
  removed: number;
  /** files that are as they should be, by type, size and time */
  same: number;
}

/** FileWritten is fs.write's result. */
export interface FileWritten {
  /** it was replaced in a single step */
  atomic: boolean;
  /** it did not exist */
  created: boolean;
  /** of the file now */
  size: number;
  /** bytes */
  written: number;
}

/** Finding is one place in code that a rule is about. */
export interface Finding {
  /** category says what a finding is about. */
  category: "filesystem" | "network" | "process" | "dynamic_evaluation" | "obfuscation" | "import" | "unknown" |
    "unparsable";
  /** from 1, in bytes */
  column: number;
  /** from 1 */
  line: number;
  /** such as python.subprocess */
  rule: string;
  /** severity says what a finding is worth */
  severity: "low" | "medium" | "high";
  /** the code there, at most 120 bytes */
  text: string;
  /** what the rule is for */
  why: string;
}

/** Forked is sandbox.fork's result. Either all are made, or none. */
export interface Forked {
  /** as in Snapshot: all forks share them. */
  not_covered?: string[];
  /** for people */
  note: string;
  /** Sandbox is the record of one sandbox. */
  sandboxes: Sandbox[];
}

/** GCResult is system.gc's result: what was swept. */
export interface GCResult {
  /** freed on disk */
  bytes: number;
  /** paths and ids */
  removed: string[];
}

/**
 * Host is a name that a sandbox has an address for without asking anybody. Its network policy decides whether it can be
 * reached.
 */
export interface Host {
  /** IPv4 or IPv6 */
  address: string;
  /** its name */
  name: string;
}

/** IOStats is what went to and came from block devices, since the sandbox began. */
export interface IOStats {
  /** from disks */
  read_bytes: number;
  /** operations */
  reads: number;
  /** to disks */
  write_bytes: number;
  /** operations */
  writes: number;
}

/** Image is the record of an image in the store. */
export interface Image {
  /** ImageConfig is the part of an image's config that decides how it runs. */
  config: ImageConfig;
  /** when it was made */
  created?: string;
  /** of the manifest */
  digest: string;
  /** digest of the config */
  id: string;
  /** diff ids, lowest first */
  layers: string[];
  /** os/arch[/variant] of the image */
  platform: string;
  /** its full reference */
  ref: string;
  /** unpacked */
  size_bytes: number;
}

/** ImageConfig is the part of an image's config that decides how it runs. */
export interface ImageConfig {
  /** default arguments, as the image has them */
  cmd?: string[];
  /** first words of a command line, as the image has them */
  entrypoint?: string[];
  /** environment variables */
  env?: string[];
  /** ports that it listens on, as the image has them */
  exposed_ports?: string[];
  /** names and values for people and tools, which hutch only stores */
  labels?: Record<string, string>;
  /** signal that asks it to end, as the image has it */
  stop_signal?: string;
  /** name or uid, and group after a colon */
  user?: string;
  /** directories for data, as the image has them */
  volumes?: string[];
  /** working directory, as the image has it */
  working_dir?: string;
}

/** ImageDisk is image.du's result. bytes are allocated blocks. */
export interface ImageDisk {
  /** of all layers together, and of the host image's cache */
  bytes: number;
  /** ImageUse is what one image takes on disk. */
  images: ImageUse[];
  /** of layers that no image has and no sandbox uses: image.prune frees them */
  unused_bytes: number;
}

/** ImageUse is what one image takes on disk. */
export interface ImageUse {
  /** of all its layers */
  bytes: number;
  /** digest of its config */
  id: string;
  /** in_use says that somebody uses all its layers: a sandbox of it, or of an image made from it. */
  in_use: boolean;
  /** reference of the image */
  ref: string;
  /** of those that only images with this id have */
  unique_bytes: number;
}

/** images is image.list's result. */
export interface Images {
  /** Image is the record of an image in the store. */
  images: Image[];
}

/** Info is system.info's result. */
export interface Info {
  /** version of this contract */
  api_version: number;
  /** equal for all binaries of one build */
  build_id: string;
  /** how many of each a daemon holds. */
  counts: Counts;
  /** limits of sandboxes that ask for none, as far as this host has them. */
  defaults: Limits;
  /** it was told to shut down: what is asked of it now fails */
  ending?: boolean;
  /** id of the exec */
  exec: ExecBounds;
  /** mode is where commands run whose caller names none, and host_execution whether any may run on the host. */
  host_execution: "refused" | "allowed";
  /**
   * the kernel uid, as the initial user namespace counts them, of uid 0 in sandboxes: the caller's own, or, started by
   * root, the start of the daemon's range, which then is the gid of gid 0 as well.
   */
  id_base: number;
  /** what a sandbox of this daemon gets */
  isolation: Isolation;
  /** since then sandboxes outlive the daemon: what was made later and is not there was removed, or never made */
  launched: string;
  /** where commands run whose caller names none, and host_execution whether any may run on the host. */
  mode: "all" | "selective" | "off";
  /** what sandboxes that ask for nothing may reach. */
  network: NetPolicy;
  /** where a daemon keeps things, as the caller sees them. */
  paths: Paths;
  /** the daemon's, as the host sees it */
  pid: number;
  /** what the sandboxes of one user may have together; 0 is no quota */
  quotas: Quotas;
  /** when the daemon was */
  started: string;
  /** of hutch */
  version: string;
}

/** Isolation says what stands between a sandbox and the host, read back from the kernel, not from the request. */
export interface Isolation {
  /** "v2", "v1" or "none". */
  cgroups: string;
  /** that of the domain that all commands are in; 0 is none. */
  landlock_abi: number;
  /** network_enforcement of the network policy: "none" (no network at all), "proxy" or "ebpf". */
  network_enforcement: string;
  /** "range" when the daemon has subordinate ids, "single" when only the caller's own uid is mapped. */
  user_map: string;
  /** Wall is one part of the isolation and whether it is in force. */
  walls: Wall[];
}

/** KillResult lists the host pids that a kill ended. */
export interface KillResult {
  /** host pids */
  killed: number[];
}

/** LayerCheck is what image.verify found of one layer. */
export interface LayerCheck {
  /** read */
  bytes: number;
  /** nodes of any kind that were looked at */
  files: number;
  /** that have it */
  images: string[];
  /** folder in the store */
  layer: string;
  /** that problems has no place for */
  more_problems?: number;
  /** what is wrong, in words */
  problems?: string[];
  /** LayerStatus is what image.verify found. */
  status: "good" | "damaged" | "repaired" | "unknown";
}

/** LimitHit is a limit that ended a command, or made it fail. */
export interface LimitHit {
  /** what to do about it */
  hint: string;
  /** its value */
  limit: number;
  /** "memory_bytes", "pids", "disk_bytes", "inodes", "rlimits.fsize": as in Limits */
  name: string;
  /** "sandbox" or "exec" */
  of: string;
  /** the most that was in use at once, of the same */
  peak?: number;
}

/**
 * Limits bound a sandbox, or one exec in it. Zero means the default: the configuration's for a sandbox, none for an
 * exec. cpus, memory_bytes, disk_bytes and pids may be Unlimited: no limit, not even the default.
 */
export interface Limits {
  /**
   * best_effort, of a sandbox, allows limits that this host cannot enforce. They are told in Sandbox.Unenforced, with
   * what stands in for them.
   */
  best_effort?: boolean;
  /**
   * how much CPU time, in seconds, an exec may use. Where execs have cgroups it is that of the whole tree; elsewhere
   * each process has it for its own, in whole seconds (RLIMIT_CPU), and what the leader has waited for counts at its
   * end.
   */
  cpu_time_s?: number;
  /** share of busy cpus against others, 1 to 10000; 100 is usual */
  cpu_weight?: number;
  /**
   * CPU time per wall time, 1.5 = one and a half cores. Of all processes together: of the sandbox, or of one exec where
   * it has a cgroup with these controllers.
   */
  cpus?: number;
  /** cpus to run on, such as "0-1,3" */
  cpuset?: string;
  /**
   * what the sandbox may write and keep, and what is in volumes that it may write; workspaces in mode rw do not count
   */
  disk_bytes?: number;
  /** files and folders that it may make; with disk_bytes there is a default */
  inodes?: number;
  /** bytes a second from the disk of the state folder */
  io_read_bps?: number;
  /** and to it */
  io_write_bps?: number;
  /** memory; with swap_bytes more in swap */
  memory_bytes?: number;
  /** above it processes are slowed down, not killed; cgroup v2 */
  memory_high_bytes?: number;
  /**
   * oom_group makes the kernel kill all of an exec that reaches its own memory_bytes and not one process of it; cgroup
   * v2, execs only.
   */
  oom_group?: boolean;
  /**
   * how much an exec may write to stdout and stderr together. It needs output that is captured, as a terminal's is
   * without stdio or detachable.
   */
  output_bytes?: number;
  /** processes and threads, PID 1's own not counted */
  pids?: number;
  /** resource limits of each process (setrlimit(2)), named as in ulimit(1) and docker's --ulimit */
  rlimits?: Rlimits;
  /**
   * shm_bytes, of a sandbox only, is the size of /dev/shm, which is in memory and counts there. By default it is half
   * of memory_bytes; without that of the machine's memory, at most 1 GiB.
   */
  shm_bytes?: number;
  /** on top of memory_bytes, which it needs. Of a sandbox only, where its cgroup has the controllers. */
  swap_bytes?: number;
  /**
   * wall time, seconds; exec.timeout_s goes before it. Of each exec; in a sandbox's limits the default of those that
   * name none.
   */
  timeout_s?: number;
}

/** Login is what is known of somebody who is logged in. */
export interface Login {
  /** host name of the registry, with its port if it has one */
  registry: string;
  /** stored says to people where image.login put the password. */
  stored?: string;
  /** name at the registry */
  username: string;
}

/**
 * MemoryStats is memory in bytes. Current includes the page cache of files, which the kernel takes back before it kills
 * anything.
 */
export interface MemoryStats {
  /** the processes' own */
  anon_bytes: number;
  /** in use now */
  current_bytes: number;
  /** page cache, with what is in tmpfs */
  file_bytes?: number;
  /** the most there may be, in bytes */
  limit_bytes?: number;
  /** processes that the kernel killed at the limit */
  oom_kills: number;
  /** most that was in use */
  peak_bytes?: number;
  /** of that, what is in tmpfs and shared memory */
  shmem_bytes?: number;
  /** in swap */
  swap_bytes?: number;
}

/** Mount is a further host folder or file, a volume, or a folder in memory. */
export interface Mount {
  /** of source */
  fd?: number;
  /** guard, unguarded and guard_new are as Workspace's, of a folder in mode rw. */
  guard?: string[];
  /** guard, unguarded and guard_new are as Workspace's, of a folder in mode rw. */
  guard_new?: "auto" | "tell" | "refuse";
  /** ro, rw or overlay; tmpfs without source and volume */
  mode: "none" | "ro" | "rw" | "overlay" | "tmpfs";
  /**
   * size_bytes bounds a tmpfs, by default as limits.shm_bytes bounds /dev/shm; no_exec keeps programs in it from being
   * executed; permissions are its own, octal, by default 1777.
   */
  no_exec?: boolean;
  /**
   * size_bytes bounds a tmpfs, by default as limits.shm_bytes bounds /dev/shm; no_exec keeps programs in it from being
   * executed; permissions are its own, octal, by default 1777.
   */
  permissions?: string;
  /**
   * size_bytes bounds a tmpfs, by default as limits.shm_bytes bounds /dev/shm; no_exec keeps programs in it from being
   * executed; permissions are its own, octal, by default 1777.
   */
  size_bytes?: number;
  /** absolute, on the host */
  source?: string;
  /** absolute, in the sandbox */
  target: string;
  /** guard, unguarded and guard_new are as Workspace's, of a folder in mode rw. */
  unguarded?: string[];
  /** a name; instead of source, and made where there is none and mode is rw */
  volume?: string;
}

/** NetEnforcement says how a network policy is enforced. */
export interface NetEnforcement {
  /** "on" where the kernel itself refuses what the policy does not name, else "off", for a reason. */
  ebpf: string;
  /** what connect(2) to an address that the policy does not name fails with. */
  errno: string;
  /**
   * how connections come to the proxy, which enforces the policy in any case: "tproxy-hold", "tproxy", "redirect" or
   * "per-port"; "" in mode none, which has no way out.
   */
  proxy?: string;
  /** ebpf is "on" where the kernel itself refuses what the policy does not name, else "off", for a reason. */
  reason?: string;
}

/** NetLists are entries of a policy's lists. */
export interface NetLists {
  /** names, with a port if it is another than 80 and 443 */
  allow?: string[];
  /** addresses */
  allow_cidrs?: string[];
  /** names that are refused */
  block?: string[];
  /** addresses that are refused */
  block_cidrs?: string[];
}

/**
 * NetPolicy says what a sandbox may reach. The zero policy is mode none. Names are matched label by label, whatever
 * address they have; see ParseNetPattern for the patterns of allow and block. block wins over allow, and block_cidrs
 * over all else. A name that is allowed and has an address that is not public (private, link-local, a cloud's metadata,
 * the host's own, ...) is refused unless allow_cidrs names that range.
 */
export interface NetPolicy {
  /** names, patterns such as *.example.com, each with a port if it is another than 80 and 443 */
  allow?: string[];
  /** "tcp" to these addresses, also without a name */
  allow_cidrs?: string[];
  /**
   * ask belongs to mode allow: a connection over "tcp" that no entry allows, and none blocks, is held while somebody is
   * asked (network.ask, network.answer), for ask_s seconds (default DefaultAskS, at most MaxAskS). Without an answer it
   * is refused.
   */
  ask?: boolean;
  /**
   * ask belongs to mode allow: a connection over "tcp" that no entry allows, and none blocks, is held while somebody is
   * asked (network.ask, network.answer), for ask_s seconds (default DefaultAskS, at most MaxAskS). Without an answer it
   * is refused.
   */
  ask_s?: number;
  /** names that are refused whatever allow says */
  block?: string[];
  /** addresses that are refused whatever else is allowed */
  block_cidrs?: string[];
  /** learn belongs to mode learn. */
  learn?: "deny" | "allow";
  /** NetMode is the network policy's mode. */
  mode?: "none" | "allow" | "open" | "learn";
  /** require names enforcement without which creation fails: "ebpf", by the kernel itself. */
  require?: ("ebpf")[];
  /** instead of mode */
  tier?: "restricted" | "standard" | "elevated";
}

/**
 * NetProcess is a process of a sandbox as the kernel has it. What it says of itself, its command, is what it wants to
 * say.
 */
export interface NetProcess {
  /** its arguments, without control characters and cut after 1 KiB; none when it was gone. */
  command?: string[];
  /** as the host counts */
  host_pid: number;
  /** its user, as the host counts */
  host_uid: number;
  /** as the sandbox counts; 0 when it was gone */
  pid?: number;
}

/** NetUse counts what a rule has let pass, and refused. */
export interface NetUse {
  /** that were made */
  connections: number;
  /** that the rule has refused */
  denials: number;
  /** by the sandbox */
  received_bytes: number;
  /** the rule that decided */
  rule: string;
  /** by the sandbox */
  sent_bytes: number;
}

/** NetVerdict is network.check's result. */
export interface NetVerdict {
  /** whether it is allowed */
  allow: boolean;
  /** it is refused unless somebody who is asked allows it */
  ask?: boolean;
  /**
   * check, of an allowed connection, is what its stream must show: "tls", "http", "tls or http" (that the host's name
   * is this name), "block" (that it is no blocked one), or "none".
   */
  check?: string;
  /** what to change to allow it */
  how_to_allow?: string;
  /** an entry of the policy after the name of its list, a mode, or a rule of hutch's */
  rule: string;
  /** where it was decided: "lookup", "connect" or "dial", which is when hutch has the address of a name. */
  step: string;
  /** why, in a sentence */
  why: string;
}

/** network is network.get's result: the policy in force, and what it has done. */
export interface Network {
  /** what was refused, once each, the latest last; untold counts what there was no room for. */
  denials: Denial[];
  /** NetEnforcement says how a network policy is enforced. */
  enforcement: NetEnforcement;
  /** what was allowed and failed, in the same way. */
  failures?: Failure[];
  /**
   * learned, of mode learn, is the smallest policy that would have allowed what the sandbox has reached or wanted to
   * reach so far.
   */
  learned?: NetPolicy;
  /** NetPolicy says what a sandbox may reach */
  network: NetPolicy;
  /** NetUse counts what a rule has let pass, and refused. */
  rules: NetUse[];
  /** id or name of the sandbox */
  sandbox: string;
  /** denials that denials has no place for */
  untold?: number;
}

/** Offsets are places in the output streams of an exec, in bytes from their start. */
export interface Offsets {
  /** standard error, or where that is: an offset in bytes, or the index of an fd */
  stderr: number;
  /** standard output, or where that is: an offset in bytes, or the index of an fd */
  stdout: number;
}

/** PIDStats counts processes and threads, but for PID 1's own. */
export interface PIDStats {
  /** processes and threads now */
  current: number;
  /** the most there may be */
  limit?: number;
  /** the most there were */
  peak?: number;
  /** forks that the limit refused */
  refused: number;
}

/** Paths are where a daemon keeps things, as the caller sees them. */
export interface Paths {
  /** file of the configuration */
  config: string;
  /** file that the daemon logs to */
  log: string;
  /** folder of sockets */
  runtime: string;
  /** socket of the daemon */
  socket: string;
  /** folder of all that lasts */
  state: string;
}

/** Pause is how a paused sandbox stands still. */
export interface Pause {
  /** PauseMeans is what stops the processes of a paused sandbox. */
  by: "freezer" | "sigstop";
  /**
   * what memory it uses less since its page cache was taken back, behind the reply to sandbox.pause; absent before
   * that, and where it cannot be (cgroup v1 or none, before Linux 5.19). The event sandbox.reclaimed tells of it.
   */
  reclaimed_bytes?: number;
  /** since when */
  since: string;
}

/** Peaks are the most that an exec used. */
export interface Peaks {
  /** user and system time together */
  cpu_ms: number;
  /**
   * disk_bytes and inodes are what the whole sandbox has written and kept, as far as it was seen; only with a limit of
   * it.
   */
  disk_bytes?: number;
  /**
   * disk_bytes and inodes are what the whole sandbox has written and kept, as far as it was seen; only with a limit of
   * it.
   */
  inodes?: number;
  /** of all its processes together */
  memory_bytes: number;
}

/** Pool is a pool and how it is filled. */
export interface Pool {
  /** wait for whoever asks next */
  available: number;
  /** configured says that the configuration file has it, and has it again when it is removed. */
  configured?: boolean;
  /** why the last attempt to make one has failed; it is made again, after a while. */
  error?: string;
  /** acquired, and not released yet */
  in_use: number;
  /** unique among pools */
  name: string;
  /** prewarm makes them now, which is the default; false makes the first when somebody asks for it. */
  prewarm?: boolean;
  /**
   * what they are. name, Owner, Workspace and Mounts are not possible: they belong to one user of a sandbox, who gives
   * the first two to pool.acquire. TTLS counts from then on.
   */
  sandbox: Spec;
  /** how many wait, 1 to MaxPoolSize */
  size: number;
  /** available and in_use */
  total: number;
}

/** PoolRemoved is the result of pool.remove. */
export interface PoolRemoved {
  /** that go on, and are gone when they are released */
  in_use: number;
  /** sandboxes that waited */
  removed: number;
}

/** pools are the pools of a daemon. */
export interface Pools {
  /** by name */
  pools: Pool[];
}

/** port is a "tcp" port of a sandbox that can be reached from the host. */
export interface Port {
  /** connections are open, accepted have been made since hutchd started. */
  accepted: number;
  /** "IP:PORT", or the path of a Unix socket */
  address: string;
  /** open, accepted have been made since hutchd started. */
  connections: number;
  /** number of the port */
  port: number;
  /** id or name of the sandbox */
  sandbox: string;
  /** what HTTP requests must have: "Authorization: Bearer TOKEN", or once "?token=TOKEN", which sets a cookie. */
  token?: string;
  /** tool says that sandbox_expose_port has exposed it, so that sandbox_close_port may close it. */
  tool?: boolean;
  /** for browsers, with the token; "" of a Unix socket */
  url?: string;
}

/** ports is a list of ports, by sandbox, port and address. */
export interface Ports {
  /** port is a "tcp" port of a sandbox that can be reached from the host. */
  ports: Port[];
}

/** Pressure is the wait for one resource: of some process, and of all at once. */
export interface Pressure {
  /**
   * PressureShare is the share of wall time in the last 10, 60 and 300 seconds, in per cent, and the sum since the
   * sandbox began.
   */
  full: PressureShare;
  /**
   * PressureShare is the share of wall time in the last 10, 60 and 300 seconds, in per cent, and the sum since the
   * sandbox began.
   */
  some: PressureShare;
}

/**
 * PressureShare is the share of wall time in the last 10, 60 and 300 seconds, in per cent, and the sum since the
 * sandbox began.
 */
export interface PressureShare {
  /** percent of the last 10 seconds */
  avg10: number;
  /** percent of the last 5 minutes */
  avg300: number;
  /** percent of the last minute */
  avg60: number;
  /** since the start */
  total_ms: number;
}

/**
 * Pressures says how long processes of the sandbox had to wait for something that was scarce (PSI,
 * Documentation/accounting/psi.rst). It needs cgroup v2, hybrid hosts included.
 */
export interface Pressures {
  /** Pressure is the wait for one resource: of some process, and of all at once. */
  cpu?: Pressure;
  /** Pressure is the wait for one resource: of some process, and of all at once. */
  io?: Pressure;
  /** Pressure is the wait for one resource: of some process, and of all at once. */
  memory?: Pressure;
}

/** Process is one process of a sandbox. name and argv are the sandbox's own words. */
export interface Process {
  /** at most 4 KiB of it */
  argv?: string[];
  /** CPU time since its start */
  cpu_ms: number;
  /** as the daemon's host sees it */
  host_pid: number;
  /** its name */
  name: string;
  /** in the sandbox */
  pid: number;
  /** in the sandbox; 0 for pid 1 */
  ppid: number;
  /** memory that it has */
  rss_bytes: number;
  /** when it was started */
  started: string;
  /** R, S, D, T, Z, as in proc_pid_stat(5) */
  state: string;
  /** how many it has */
  threads: number;
}

/** processes is sandbox.processes's result, PID 1 first. */
export interface Processes {
  /** Process is one process of a sandbox */
  processes: Process[];
  /** there are more than are listed */
  truncated: boolean;
}

/** Pruned is image.prune's result. */
export interface Pruned {
  /** freed */
  bytes: number;
  /** references */
  removed: string[];
}

/** Pty is a terminal's size in characters. */
export interface Pty {
  /** columns */
  cols: number;
  /** lines */
  rows: number;
}

/** Pushed is image.push's result. */
export interface Pushed {
  /** of the manifest */
  digest: string;
  /** digest of the config */
  id: string;
  /** digests in the registry, lowest first */
  layers: string[];
  /** reference of the image */
  ref: string;
}

/** Question is a network.ask that waits. */
export interface Question {
  /** IP address */
  address?: string;
  /** the entry, as a flag, that session and always add */
  how_to_allow: string;
  /** for network.answer */
  id: string;
  /** its name */
  name?: string;
  /** of "tcp" or "udp" */
  port?: number;
  /** "" is a lookup, or unknown without a name */
  proto?: "tcp" | "udp";
  /** id or name of the sandbox */
  sandbox: string;
  /** when no answer becomes no */
  until: string;
  /** why, in a sentence */
  why: string;
}

/**
 * Quotas are what the sandboxes of one user may have together; 0 is no quota. A limit that a sandbox does not have
 * counts as all that the machine has.
 */
export interface Quotas {
  /** CPU time per wall time */
  cpus?: number;
  /** of their limits together */
  memory_bytes?: number;
  /** how many */
  sandboxes?: number;
}

/** Rlimit is one resource limit. A process may raise soft up to hard. */
export interface Rlimit {
  /** default: soft */
  hard?: number;
  /** Unlimited or more */
  soft: number;
}

/**
 * Rlimits are resource limits of each process (setrlimit(2)), named as in ulimit(1) and docker's --ulimit. A missing
 * one is the sandbox's. Not here are cpu, which is Limits.CPUTimeS, those that Linux ignores, and priorities.
 */
export interface Rlimits {
  /** address space, bytes */
  as?: Rlimit;
  /** core files, bytes; sandboxes write none */
  core?: Rlimit;
  /** data segment and private mappings, bytes */
  data?: Rlimit;
  /** size of a file, bytes */
  fsize?: Rlimit;
  /** locked memory, bytes */
  memlock?: Rlimit;
  /** POSIX message queues, bytes */
  msgqueue?: Rlimit;
  /** fds */
  nofile?: Rlimit;
  /** processes of the user in the sandbox */
  nproc?: Rlimit;
  /** queued signals */
  sigpending?: Rlimit;
  /** main thread's stack, bytes */
  stack?: Rlimit;
}

/** RunResult is sandbox.run's result. */
export interface RunResult {
  /** id of the exec */
  exec: ExecResult;
  /** what it was when the command was started. */
  sandbox: Sandbox;
}

/** Sandbox is the record of one sandbox. */
export interface Sandbox {
  /**
   * background, in sandbox.list and get, is the command that exec.start with background began last, as long as its
   * output is kept.
   */
  background?: Exec;
  /** what `run` starts without a command of its own: Entrypoint + Cmd */
  command: string[];
  /** when it was made */
  created: string;
  /** set only in the answer to a create that asked for it. */
  debug?: SandboxDebug;
  /** of the image's manifest */
  digest?: string;
  /** first words of a command line, as the image has them */
  entrypoint?: string[];
  /** of sandbox.create: its scope had it */
  existing?: boolean;
  /** when its ttl_s is over */
  expires?: string;
  /** its host name */
  hostname: string;
  /** its id */
  id: string;
  /** reference of the image */
  image: string;
  /** isolation says what stands between a sandbox and the host, read back from the kernel, not from the request. */
  isolation: Isolation;
  /** stopped by sandbox.stop: its files and record outlive the daemon */
  kept?: boolean;
  /** names and values for people and tools, which hutch only stores */
  labels?: Record<string, string>;
  /** that are in force */
  limits: Limits;
  /** its name */
  name?: string;
  /** SandboxNetwork is the policy in force, and by what. */
  network: SandboxNetwork;
  /** why image is another one than was asked for */
  note?: string;
  /** while it is */
  paused?: Pause;
  /** how long each step of its making took */
  phases_ms: Record<string, number>;
  /** pid 1, as the host sees it */
  pid?: number;
  /** that it waits in, or was acquired from */
  pool?: string;
  /** why it stopped, failed or is paused */
  reason?: string;
  /** scope names a sandbox by what it is for: sandbox.create returns the one that it has, or makes it. */
  scope?: Scope;
  /** which system calls its commands may make */
  seccomp: "default" | "strict" | "build" | "browser" | "custom";
  /** the exec that its template started */
  start_exec?: string;
  /** where a sandbox is in its life. */
  state: "removed" | "creating" | "running" | "paused" | "waiting" | "stopped" | "failed";
  /** what sandbox.stop sends; "" is SIGTERM. */
  stop_signal?: string;
  /** that it was made by */
  template?: string;
  /** its calls can be undone */
  undo?: boolean;
  /** limits that this host cannot enforce: defaults, and with limits.best_effort those that were asked for. */
  unenforced?: Unenforced[];
  /** name or uid, and group after a colon */
  user?: string;
  /** working directory of commands that name none */
  workdir: string;
}

/** SandboxDebug is what `hutch debug` shows of how a sandbox was made. */
export interface SandboxDebug {
  /**
   * the libcontainer configuration that the sandbox was launched with. Its shape is libcontainer's and changes with it.
   */
  config?: any;
  /**
   * the rules of the profile that commands are under, in order: the first that matches a call decides. None of a custom
   * profile, whose text the caller has.
   */
  seccomp?: DebugRule[];
  /** what a call that no rule names fails with. */
  seccomp_other?: string;
  /** what was done, in order. */
  steps: DebugStep[];
}

/** SandboxList is sandbox.list's result. */
export interface SandboxList {
  /** Sandbox is the record of one sandbox. */
  sandboxes: Sandbox[];
}

/** SandboxNetwork is the policy in force, and by what. */
export interface SandboxNetwork {
  /** names, patterns such as *.example.com, each with a port if it is another than 80 and 443 */
  allow?: string[];
  /** "tcp" to these addresses, also without a name */
  allow_cidrs?: string[];
  /**
   * ask belongs to mode allow: a connection over "tcp" that no entry allows, and none blocks, is held while somebody is
   * asked (network.ask, network.answer), for ask_s seconds (default DefaultAskS, at most MaxAskS). Without an answer it
   * is refused.
   */
  ask?: boolean;
  /**
   * ask belongs to mode allow: a connection over "tcp" that no entry allows, and none blocks, is held while somebody is
   * asked (network.ask, network.answer), for ask_s seconds (default DefaultAskS, at most MaxAskS). Without an answer it
   * is refused.
   */
  ask_s?: number;
  /** names that are refused whatever allow says */
  block?: string[];
  /** addresses that are refused whatever else is allowed */
  block_cidrs?: string[];
  /** NetEnforcement says how a network policy is enforced. */
  enforcement: NetEnforcement;
  /** learn belongs to mode learn. */
  learn?: "deny" | "allow";
  /** NetMode is the network policy's mode. */
  mode?: "none" | "allow" | "open" | "learn";
  /** require names enforcement without which creation fails: "ebpf", by the kernel itself. */
  require?: ("ebpf")[];
  /** instead of mode */
  tier?: "restricted" | "standard" | "elevated";
}

/** ScanImport is a module that code imports, as far as that can be told without running it. */
export interface ScanImport {
  /** false of a module that is not in allowed_imports. */
  allowed: boolean;
  /** number of the line, from 1 */
  line: number;
  /** what is imported */
  module: string;
}

/** ScanResult is code.scan's result: a hint, not a wall. Code without findings may still do harm. */
export interface ScanResult {
  /** by line */
  findings: Finding[];
  /** ScanImport is a module that code imports, as far as that can be told without running it. */
  imports: ScanImport[];
  /** name of the language */
  language: string;
  /** risky says that there are findings of medium severity or more, or that the code cannot be parsed. */
  risky: boolean;
  /** there are more findings than are told */
  truncated: boolean;
}

/** Scope names a sandbox by what it is for: sandbox.create returns the one that it has, or makes it. */
export interface Scope {
  /** 1 to 128 printable characters without a space */
  key: string;
  /** ScopeKind says how long a scope's sandbox lives. */
  kind: "session" | "agent" | "shared";
  /** undo, of sandbox.create, is Spec.Undo. */
  undo?: boolean;
}

/** ScopeInfo is a scope that has a sandbox. */
export interface ScopeInfo {
  /** that have asked for it and still are */
  connections: number;
  /** when it was made */
  created: string;
  /** reference of the image */
  image: string;
  /** 1 to 128 printable characters without a space */
  key: string;
  /** ScopeKind says how long a scope's sandbox lives. */
  kind: "session" | "agent" | "shared";
  /** its name */
  name?: string;
  /** its id */
  sandbox: string;
  /** where a sandbox is in its life. */
  state: "removed" | "creating" | "running" | "paused" | "waiting" | "stopped" | "failed";
  /** undo, of sandbox.create, is Spec.Undo. */
  undo?: boolean;
}

/** scopes is scope.list's result, oldest first. */
export interface Scopes {
  /** ScopeInfo is a scope that has a sandbox. */
  scopes: ScopeInfo[];
}

/** shell is the record of a stateful shell. */
export interface Shell {
  /** busy says that a command runs in it, over that the shell has ended. */
  busy: boolean;
  /** the exec that the shell is: it can be read, attached to and killed. */
  exec: string;
  /** busy says that a command runs in it, over that the shell has ended. */
  over: boolean;
  /** in the sandbox */
  pid: number;
  /** the number of the last command that was run in it, 0 before the first. */
  runs: number;
  /** id or name of the sandbox */
  sandbox: string;
  /** id of the shell */
  shell: string;
}

/** ShellResult is shell.run's result. ExecResult.Exec is the shell's. */
export interface ShellResult {
  /** closed says that the shell has ended with the command, by exit say. */
  closed: boolean;
  /** Denial is an operation that the sandbox refused. */
  denials: Denial[];
  /** how long it took, in milliseconds */
  duration_ms: number;
  /** error says why a command with the verdict not_run never ran. */
  error?: string;
  /** id of the exec */
  exec: string;
  /** the exit code; 128+n after signal n */
  exit_code: number;
  /** connections that the policy allows, and that failed outside while the command ran. */
  failures?: Failure[];
  /** from and to are where the command's output is in the streams of the exec. */
  from: Offsets;
  /**
   * what to do about a command that failed, where its own message cannot know: who installs something in the image
   * host, or is killed by a rule of the sandbox's own seccomp profile.
   */
  hint?: string;
  /** host pids of processes that were killed */
  killed: number[];
  /** the limit behind the verdict, of memory, processes or disk space. */
  limit?: LimitHit;
  /** the most that an exec used. */
  peaks: Peaks;
  /**
   * the paragraph of /run/hutch/policy.txt about what was refused now for the third time: the sandbox gets it once of
   * each kind.
   */
  policy?: string;
  /** the number of the command */
  run: number;
  /** id of the shell */
  shell: string;
  /** "SIGKILL"; exit_code is then 128+n */
  signal?: string;
  /** as stderr_encoding says */
  stderr: string;
  /** as stderr_encoding says */
  stderr_encoding: "utf-8" | "base64";
  /** as stdout_encoding says */
  stdout: string;
  /** as stdout_encoding says */
  stdout_encoding: "utf-8" | "base64";
  /** whether its time was over */
  timed_out: boolean;
  /** from and to are where the command's output is in the streams of the exec. */
  to: Offsets;
  /** the middle of a stream is missing, or what a full disk did not take */
  truncated: boolean;
  /** names of the workspace's guard that turned up since the command before. */
  unguarded?: Unguarded[];
  /** verdict says how an exec ended. */
  verdict: "ok" | "nonzero" | "signal" | "timeout_wall" | "timeout_cpu" | "oom" | "pids" | "disk" | "output" | "denied"
    | "killed" | "not_run" | "sandbox" | "cancelled" | "lost";
}

/** shells is shell.list's result, oldest first. */
export interface Shells {
  /** shell is the record of a stateful shell. */
  shells: Shell[];
}

/**
 * Snapshot is what the files of a sandbox were at a time, with its spec, policy, environment and labels. It is one
 * user's, and stays when the sandbox and the daemon are gone.
 */
export interface Snapshot {
  /**
   * bytes and inodes are what it takes by itself, as limits.disk_bytes counts; where the file system has reflinks, the
   * sandbox and the snapshot share blocks. total_bytes is with the snapshots that the sandbox had been forked from.
   */
  bytes: number;
  /** when it was made */
  created: string;
  /** its id */
  id: string;
  /** reference of the image */
  image: string;
  /**
   * bytes and inodes are what it takes by itself, as limits.disk_bytes counts; where the file system has reflinks, the
   * sandbox and the snapshot share blocks. total_bytes is with the snapshots that the sandbox had been forked from.
   */
  inodes: number;
  /** names and values for people and tools, which hutch only stores */
  labels?: Record<string, string>;
  /** its name */
  name?: string;
  /** where the sandbox has folders of the host's in mode rw, and volumes: these are as they are. */
  not_covered?: string[];
  /** for people: processes are not in it */
  note: string;
  /** the id of the one it was taken of */
  sandbox: string;
  /**
   * bytes and inodes are what it takes by itself, as limits.disk_bytes counts; where the file system has reflinks, the
   * sandbox and the snapshot share blocks. total_bytes is with the snapshots that the sandbox had been forked from.
   */
  total_bytes: number;
}

/** SnapshotChange is a name that is another than in the snapshot. */
export interface SnapshotChange {
  /**
   * added, modified (its content, and maybe its mode), deleted, type (a file has become a folder, say) or mode
   * (permissions or owner alone). Of a folder that was added or deleted all that is in it is listed, too.
   */
  kind: string;
  /** octal permission bits that are new */
  mode?: string;
  /** in the sandbox */
  path: string;
  /** in bytes, of a file */
  size?: number;
  /** as of WorkspaceChange */
  type: string;
  /** the type before, where it is another */
  was?: string;
}

/** SnapshotDiff is snapshot.diff's result, in the order of a walk. */
export interface SnapshotDiff {
  /** SnapshotChange is a name that is another than in the snapshot. */
  changes: SnapshotChange[];
  /** the changes as a unified diff */
  diff?: string;
  /** there are more from here on */
  next_offset?: number;
  /** as in snapshot, a writable /usr and, while the sandbox does not run, folders of the host's in mode overlay. */
  not_covered?: string[];
  /** id or name of the sandbox */
  sandbox: string;
  /** ids */
  snapshot: string;
  /** "" is the sandbox as it is now */
  to?: string;
  /** diff is not all */
  truncated?: boolean;
}

/** SnapshotRestored is snapshot.restore's result. */
export interface SnapshotRestored {
  /**
   * background, in sandbox.list and get, is the command that exec.start with background began last, as long as its
   * output is kept.
   */
  background?: Exec;
  /** what `run` starts without a command of its own: Entrypoint + Cmd */
  command: string[];
  /** when it was made */
  created: string;
  /** set only in the answer to a create that asked for it. */
  debug?: SandboxDebug;
  /** of the image's manifest */
  digest?: string;
  /** what ended with the processes of a sandbox: files are kept, processes are not. */
  ended: Ended;
  /** first words of a command line, as the image has them */
  entrypoint?: string[];
  /** of sandbox.create: its scope had it */
  existing?: boolean;
  /** when its ttl_s is over */
  expires?: string;
  /** its host name */
  hostname: string;
  /** its id */
  id: string;
  /** reference of the image */
  image: string;
  /** isolation says what stands between a sandbox and the host, read back from the kernel, not from the request. */
  isolation: Isolation;
  /** stopped by sandbox.stop: its files and record outlive the daemon */
  kept?: boolean;
  /** names and values for people and tools, which hutch only stores */
  labels?: Record<string, string>;
  /** that are in force */
  limits: Limits;
  /** its name */
  name?: string;
  /** SandboxNetwork is the policy in force, and by what. */
  network: SandboxNetwork;
  /** why image is another one than was asked for */
  note?: string;
  /** while it is */
  paused?: Pause;
  /** how long each step of its making took */
  phases_ms: Record<string, number>;
  /** pid 1, as the host sees it */
  pid?: number;
  /** that it waits in, or was acquired from */
  pool?: string;
  /** why it stopped, failed or is paused */
  reason?: string;
  /** scope names a sandbox by what it is for: sandbox.create returns the one that it has, or makes it. */
  scope?: Scope;
  /** which system calls its commands may make */
  seccomp: "default" | "strict" | "build" | "browser" | "custom";
  /** id or name of the snapshot */
  snapshot: string;
  /** the exec that its template started */
  start_exec?: string;
  /** where a sandbox is in its life. */
  state: "removed" | "creating" | "running" | "paused" | "waiting" | "stopped" | "failed";
  /** what sandbox.stop sends; "" is SIGTERM. */
  stop_signal?: string;
  /** that it was made by */
  template?: string;
  /** its calls can be undone */
  undo?: boolean;
  /** limits that this host cannot enforce: defaults, and with limits.best_effort those that were asked for. */
  unenforced?: Unenforced[];
  /** name or uid, and group after a colon */
  user?: string;
  /** working directory of commands that name none */
  workdir: string;
}

/** snapshots is snapshot.list's result, oldest first. */
export interface Snapshots {
  /** Snapshot is what the files of a sandbox were at a time, with its spec, policy, environment and labels */
  snapshots: Snapshot[];
}

/** Spec is what sandbox.create asks for. */
export interface Spec {
  /** whether the sandbox must be under hutch's own apparmor profile; default "auto". */
  apparmor?: "auto" | "on";
  /** capabilities that commands of uid 0 do not have, such as CHOWN or CAP_CHOWN, or ALL. Other users have none. */
  cap_drop?: string[];
  /** for every exec, over the image's */
  env?: Record<string, string>;
  /** default: the sandbox's id */
  hostname?: string;
  /** more lines of /etc/hosts */
  hosts?: Host[];
  /** LifeAction is what happens to a sandbox when ttl_s or idle_s is over. */
  idle_action?: "remove" | "pause" | "stop" | "kill";
  /** seconds without an exec that it may be, 0 = any */
  idle_s?: number;
  /** who answers for users and groups that the sandbox does not have; default "auto". */
  ids?: "auto" | "emulate" | "real";
  /** reference, or "host" */
  image?: string;
  /**
   * keep keeps the sandbox's files on disk without the short cuts that only ephemeral sandboxes may take (overlay
   * `volatile`).
   */
  keep?: boolean;
  /** names and values for people and tools, which hutch only stores */
  labels?: Record<string, string>;
  /** whether commands are in a landlock domain; default "auto". */
  landlock?: "auto" | "on" | "off";
  /** limits bound a sandbox, or one exec in it */
  limits?: Limits;
  /** Mount is a further host folder or file, a volume, or a folder in memory. */
  mounts?: Mount[];
  /** unique among living sandboxes */
  name?: string;
  /** NetPolicy says what a sandbox may reach */
  network?: NetPolicy;
  /**
   * owner says whose life the sandbox shares: "" is nobody's; "connection" removes it when the connection that created
   * it is lost.
   */
  owner?: string;
  /** os/arch[/variant] of the image; default: this machine's */
  platform?: string;
  /** default "missing" */
  pull?: "missing" | "always" | "never";
  /**
   * read_only makes everything read-only but the mounts that say otherwise, /dev/shm, and /tmp, /var/tmp and /run,
   * which are then in memory.
   */
  read_only?: boolean;
  /** scope names a sandbox by what it is for: sandbox.create returns the one that it has, or makes it. */
  scope?: Scope;
  /** which system calls commands may make; default "default". */
  seccomp?: "default" | "strict" | "build" | "browser" | "custom";
  /**
   * seccomp_profile is, with "custom", the text of a profile as the OCI runtime specification has it, at most
   * MaxSeccompProfile bytes. It can take away from "default" and not add.
   */
  seccomp_profile?: string;
  /**
   * stop_signal asks commands to end when the sandbox is stopped: a name or number; default: the image's, then SIGTERM.
   */
  stop_signal?: string;
  /** instead of image */
  template?: string;
  /** What is done when they are over; default "remove". */
  ttl_action?: "remove" | "pause" | "stop" | "kill";
  /** life of the sandbox in seconds, 0 = no end */
  ttl_s?: number;
  /**
   * undo keeps what the files were before each call of a tool that may change them, and of code.run, so that
   * checkpoint.restore can take it back. It goes with workspaces in mode overlay or ro.
   */
  undo?: boolean;
  /** written to the folder user-uploads in the working directory, also of a scope's sandbox that there is. */
  uploads?: Upload[];
  /** name|uid[:group|gid]; default: the image's, then 0:0 */
  user?: string;
  /** absolute; default: the image's, then / */
  workdir?: string;
  /** the host folder that the sandbox works on, at /workspace. */
  workspace?: Workspace;
  /**
   * writable_usr, with the image "host", lets the sandbox make, remove and replace files in /usr, which is the host's:
   * the host sees nothing of it. Otherwise /usr can only be read. Files that are the host's cannot be changed in place.
   */
  writable_usr?: boolean;
}

/** StartFolder is a folder that is handed over. */
export interface StartFolder {
  /** index in the request's fds; as in Workspace */
  fd: number;
  /** where the sandbox has it: /workspace, or the target of a mount */
  target: string;
}

/** StartResult is exec.start's result. */
export interface StartResult {
  /** id of the exec */
  exec: string;
  /** in the sandbox */
  pid: number;
}

/**
 * Stats is sandbox.stats's result: what a sandbox uses at one moment, and has used since it began. What the source
 * cannot tell is missing; it is never 0 for that reason.
 */
export interface Stats {
  /** CPUStats is cpu time since the sandbox began, of all processes and CPUs together. */
  cpu?: CPUStats;
  /** DiskStats is what the sandbox has written and kept. */
  disk?: DiskStats;
  /** IOStats is what went to and came from block devices, since the sandbox began. */
  io?: IOStats;
  /** MemoryStats is memory in bytes */
  memory?: MemoryStats;
  /** its name */
  name?: string;
  /** PIDStats counts processes and threads, but for PID 1's own. */
  pids?: PIDStats;
  /**
   * Pressures says how long processes of the sandbox had to wait for something that was scarce (PSI,
   * Documentation/accounting/psi.rst)
   */
  pressure?: Pressures;
  /** commands that run */
  running_execs: number;
  /** id or name of the sandbox */
  sandbox: string;
  /** source says where numbers about a sandbox come from. */
  source: "cgroup-v2" | "cgroup-v1" | "processes";
  /** when */
  time: string;
}

/** Stdio are indexes into the fds of a request. A missing one is /dev/null. */
export interface Stdio {
  /** standard error, or where that is: an offset in bytes, or the index of an fd */
  stderr?: number;
  /** what it reads, or the index of the fd that it reads */
  stdin?: number;
  /** standard output, or where that is: an offset in bytes, or the index of an fd */
  stdout?: number;
}

/** StepProgress tells of a step of a build. */
export interface StepProgress {
  /** what it has written since */
  output?: string;
  /** from 1; steps + 1 is the commit */
  step: number;
  /** how many there are */
  steps: number;
  /** name of the template */
  template: string;
  /** of one that begins */
  text?: string;
}

/** StopResult is sandbox.stop's result. */
export interface StopResult {
  /**
   * background, in sandbox.list and get, is the command that exec.start with background began last, as long as its
   * output is kept.
   */
  background?: Exec;
  /** what `run` starts without a command of its own: Entrypoint + Cmd */
  command: string[];
  /** when it was made */
  created: string;
  /** set only in the answer to a create that asked for it. */
  debug?: SandboxDebug;
  /** of the image's manifest */
  digest?: string;
  /** what ended with the processes of a sandbox: files are kept, processes are not. */
  ended: Ended;
  /** first words of a command line, as the image has them */
  entrypoint?: string[];
  /** of sandbox.create: its scope had it */
  existing?: boolean;
  /** when its ttl_s is over */
  expires?: string;
  /** its host name */
  hostname: string;
  /** its id */
  id: string;
  /** reference of the image */
  image: string;
  /** isolation says what stands between a sandbox and the host, read back from the kernel, not from the request. */
  isolation: Isolation;
  /** stopped by sandbox.stop: its files and record outlive the daemon */
  kept?: boolean;
  /** names and values for people and tools, which hutch only stores */
  labels?: Record<string, string>;
  /** that are in force */
  limits: Limits;
  /** its name */
  name?: string;
  /** SandboxNetwork is the policy in force, and by what. */
  network: SandboxNetwork;
  /** why image is another one than was asked for */
  note?: string;
  /** while it is */
  paused?: Pause;
  /** how long each step of its making took */
  phases_ms: Record<string, number>;
  /** pid 1, as the host sees it */
  pid?: number;
  /** that it waits in, or was acquired from */
  pool?: string;
  /** why it stopped, failed or is paused */
  reason?: string;
  /** scope names a sandbox by what it is for: sandbox.create returns the one that it has, or makes it. */
  scope?: Scope;
  /** which system calls its commands may make */
  seccomp: "default" | "strict" | "build" | "browser" | "custom";
  /** the exec that its template started */
  start_exec?: string;
  /** where a sandbox is in its life. */
  state: "removed" | "creating" | "running" | "paused" | "waiting" | "stopped" | "failed";
  /** what sandbox.stop sends; "" is SIGTERM. */
  stop_signal?: string;
  /** that it was made by */
  template?: string;
  /** its calls can be undone */
  undo?: boolean;
  /** limits that this host cannot enforce: defaults, and with limits.best_effort those that were asked for. */
  unenforced?: Unenforced[];
  /** name or uid, and group after a colon */
  user?: string;
  /** working directory of commands that name none */
  workdir: string;
}

/** Subscribed is events.subscribe's result. Notifications follow it. */
export interface Subscribed {
  /** of the oldest event that is kept */
  first_seq: number;
  /**
   * the id of the log that the numbers belong to. It changes when the daemon's state was deleted, and numbers begin
   * anew.
   */
  log: string;
  /** of the next that will happen */
  next_seq: number;
  /** its id, unique on its connection */
  subscription: string;
}

/** SyncFile is one file of the caller's. A path or target that is not UTF-8 can be given in base64 only; any may be. */
export interface SyncFile {
  /** of a file */
  mtime?: string;
  /** below the folder */
  path?: string;
  /** instead of path, of a name that is no text */
  path_base64?: string;
  /** of a file */
  size?: number;
  /** of a symlink */
  target?: string;
  /** instead of target, of one that is no text */
  target_base64?: string;
  /** file, folder or symlink */
  type: "file" | "folder" | "symlink" | "fifo" | "socket" | "char_device" | "block_device";
}

/** template is what is known of one. */
export interface Template {
  /** TemplateBuild is what steps have and sandboxes of the template need not have. */
  build?: TemplateBuild;
  /** what came of its steps; null where there are none, or before somebody needs them. */
  built?: TemplateBuilt;
  /**
   * entrypoint and cmd are the command of `hutch run` without one, in the place of the image's. An empty list, [], is
   * none.
   */
  cmd?: string[];
  /** when it was made */
  created?: string;
  /** for people */
  description?: string;
  /**
   * entrypoint and cmd are the command of `hutch run` without one, in the place of the image's. An empty list, [], is
   * none.
   */
  entrypoint?: string[];
  /** environment variables */
  env?: Record<string, string>;
  /**
   * Exactly one of image and template is what it begins with; of another template it has all that it does not say
   * itself.
   */
  image?: string;
  /** names and values for people and tools, which hutch only stores */
  labels?: Record<string, string>;
  /** limits bound a sandbox, or one exec in it */
  limits?: Limits;
  /** unique among templates */
  name: string;
  /** NetPolicy says what a sandbox may reach */
  network?: NetPolicy;
  /**
   * names of variables, such as an API key's, that `hutch agent` passes from its user's environment where they are set.
   * Nothing else does.
   */
  pass_env?: string[];
  /** os/arch[/variant] of the image */
  platform?: string;
  /** how many sandboxes wait in a pool of the template's name, with all that is started in them ready. */
  pool_size?: number;
  /**
   * start runs in the background of each sandbox, ready is waited for before somebody gets it, and ports are then
   * reached from the host.
   */
  ports?: TemplatePort[];
  /**
   * start runs in the background of each sandbox, ready is waited for before somebody gets it, and ports are then
   * reached from the host.
   */
  ready?: TemplateReady;
  /**
   * writable_usr and seccomp are those of a sandbox; steps that install into /usr need the first with the image "host".
   */
  seccomp?: "default" | "strict" | "build" | "browser" | "custom";
  /** shipped says that it comes with hutch or from the configuration file. */
  shipped?: boolean;
  /**
   * start runs in the background of each sandbox, ready is waited for before somebody gets it, and ports are then
   * reached from the host.
   */
  start?: TemplateStart;
  /** run once, in a sandbox of what the template begins with; what they have written is below all sandboxes of it. */
  steps?: TemplateStep[];
  /**
   * Exactly one of image and template is what it begins with; of another template it has all that it does not say
   * itself.
   */
  template?: string;
  /** name or uid, and group after a colon */
  user?: string;
  /** working directory of commands that name none */
  workdir?: string;
  /**
   * writable_usr and seccomp are those of a sandbox; steps that install into /usr need the first with the image "host".
   */
  writable_usr?: boolean;
}

/** TemplateBuild is what steps have and sandboxes of the template need not have. */
export interface TemplateBuild {
  /** the same, each */
  limits?: Limits;
  /** default: the template's */
  network?: NetPolicy;
}

/** TemplateBuildResult is template.build's result. */
export interface TemplateBuildResult {
  /** there were steps, and nothing was to be done */
  cached: boolean;
  /** steps that were run */
  ran: number;
  /** name of the template */
  template: Template;
}

/** TemplateBuilt is what came of steps. */
export interface TemplateBuilt {
  /** what they began with */
  base: string;
  /**
   * the reference of what was committed; "" of steps over the image "host", of which no image can be made: their files
   * are kept beside it.
   */
  image?: string;
  /** digest of what the steps began with, and of all that makes a difference to them */
  key: string;
  /** when */
  time: string;
}

/**
 * TemplateCopy puts files of the client's into the sandbox: those of template.create's archive whose names begin with
 * the number of the step, from 0, and a slash.
 */
export interface TemplateCopy {
  /** that of names, modes and contents, which template.create sets. */
  digest?: string;
  /** what they are called, for people */
  sources?: string[];
  /** the folder that they are put in, absolute; made where it is missing */
  target: string;
}

/** TemplatePort is a port that the host reaches, as port.expose makes it. */
export interface TemplatePort {
  /** default: a free port of 127.0.0.1, which only one sandbox can have otherwise */
  address?: string;
  /** number of the port */
  port: number;
  /** whether who connects must show one */
  token?: boolean;
}

/** TemplateReady is what is waited for: exactly one of port, argv and command. */
export interface TemplateReady {
  /** a command that succeeds, tried again and again */
  argv?: string[];
  /** the same for the shell */
  command?: string;
  /** that something listens on */
  port?: number;
  /** default DefaultReadyS */
  timeout_s?: number;
}

/** TemplateRemoved is template.remove's result. */
export interface TemplateRemoved {
  /** that went with it */
  image?: string;
  /** sandboxes of it that waited in pools */
  pooled: number;
  /** sandboxes of it go on; those that waited in its pool are removed. */
  sandboxes: number;
}

/** TemplateStart is a command: exactly one of argv and command. */
export interface TemplateStart {
  /** program and arguments */
  argv?: string[];
  /** text for the shell */
  command?: string;
  /** working directory */
  cwd?: string;
  /** environment variables */
  env?: Record<string, string>;
  /** name or uid, and group after a colon */
  user?: string;
}

/**
 * TemplateStep is one step of a build: exactly one of run, argv, copy and folder. It runs as the user of the image that
 * the template begins with, mostly root, unless it names one.
 */
export interface TemplateStep {
  /** a command */
  argv?: string[];
  /**
   * TemplateCopy puts files of the client's into the sandbox: those of template.create's archive whose names begin with
   * the number of the step, from 0, and a slash.
   */
  copy?: TemplateCopy;
  /** env, cwd and user are the step's own, over those of the template; cwd is made where it is missing. */
  cwd?: string;
  /** env, cwd and user are the step's own, over those of the template; cwd is made where it is missing. */
  env?: Record<string, string>;
  /** one to be made, with those above it, where it is missing. */
  folder?: string;
  /** of the file that has it, for errors */
  line?: number;
  /** for the sandbox's shell */
  run?: string;
  /** default DefaultStepS */
  timeout_s?: number;
  /** env, cwd and user are the step's own, over those of the template; cwd is made where it is missing. */
  user?: string;
}

/** templates is template.list's result. */
export interface Templates {
  /** by name */
  templates: Template[];
}

/**
 * Tool describes a tool to a model and to whoever decides what that may do. The last four are hints as MCP has them.
 */
export interface Tool {
  /** for a model */
  description: string;
  /** it may overwrite or remove what is there */
  destructive: boolean;
  /** the same call again changes no more */
  idempotent: boolean;
  /** JSON Schema of ToolCallParams.Arguments */
  input_schema: any;
  /** its name */
  name: string;
  /** it may reach what is outside the sandbox, as far as the policy goes */
  open_world: boolean;
  /** JSON Schema of ToolResult.Structured */
  output_schema: any;
  /** it changes nothing in the sandbox */
  read_only: boolean;
  /** for people */
  title: string;
}

/** ToolContent is one piece of a result, for a model. */
export interface ToolContent {
  /** an image's bytes in base64. */
  data?: string;
  /** of an image or a link's target */
  mime_type?: string;
  /** of a link's target */
  name?: string;
  /** of a link's target, in bytes; 0 where it is not known */
  size?: number;
  /** text */
  text?: string;
  /** text, image or link */
  type: string;
  /** of a link */
  uri?: string;
}

/** ToolError is why a tool could not do what it was asked for. */
export interface ToolError {
  /** text of the code */
  code: "not_found" | "already_exists" | "invalid_argument" | "failed_precondition" | "permission_denied" |
    "resource_exhausted" | "deadline_exceeded" | "unavailable" | "unimplemented" | "canceled" | "internal";
  /** of the arguments */
  field?: string;
  /** what to do about it */
  hint?: string;
  /** what went wrong, in a sentence */
  message: string;
}

/** ToolList is tools.list's result. */
export interface ToolList {
  /** Tool describes a tool to a model and to whoever decides what that may do */
  tools: Tool[];
}

/**
 * ToolResult is tools.call's result. What a model can act on is a result, also where it failed: a file that is not
 * there, a command that did not succeed, arguments that do not fit. Errors of tools.call are about its caller: an
 * unknown sandbox or tool.
 */
export interface ToolResult {
  /** the id of the call. undo says that checkpoint.restore can take back what it has changed. */
  call: string;
  /** ToolContent is one piece of a result, for a model. */
  content: ToolContent[];
  /** what went wrong */
  error?: ToolError;
  /** the tool could not do it */
  is_error: boolean;
  /** the same for programs; it fits the tool's output schema. Missing where error is set. */
  structured?: any;
  /** call is the id of the call. undo says that checkpoint.restore can take back what it has changed. */
  undo?: boolean;
}

/** Unenforced is a limit that is not in force. */
export interface Unenforced {
  /** default says that nobody asked for it but the configuration. */
  default?: boolean;
  /** what bounds a part of it all the same */
  instead?: string;
  /** "memory_bytes" */
  limit: string;
  /** metered says that somebody looks, several times a second, and ends what exceeds it. */
  metered?: boolean;
  /** what it would have been */
  value: number;
  /** what this host lacks */
  why: string;
}

/** Unguarded is a guarded name that the sandbox can write all the same: it was not there when the sandbox was made. */
export interface Unguarded {
  /** what to do about it */
  hint: string;
  /** inside */
  path: string;
  /** why, in a sentence */
  why: string;
}

/** Upload is a file that comes with sandbox.create. */
export interface Upload {
  /** its content */
  data: string;
  /** of data */
  encoding?: "utf-8" | "base64";
  /** octal, default 0644 */
  mode?: string;
  /** below user-uploads */
  name: string;
}

/** Verified is image.verify's result. */
export interface Verified {
  /** LayerCheck is what image.verify found of one layer. */
  layers: LayerCheck[];
}

/** Volume is a folder of the daemon's that outlives sandboxes, mounted by its name. It is one user's. */
export interface Volume {
  /** on disk, where usage is asked for */
  bytes?: number;
  /** when it was made */
  created: string;
  /** files and folders, where usage is asked for */
  inodes?: number;
  /** its name */
  name: string;
  /** ids of those that have it mounted */
  sandboxes: string[];
}

/** volumes is volume.list's result, by name. */
export interface Volumes {
  /** directories for data, as the image has them */
  volumes: Volume[];
}

/** Wall is one part of the isolation and whether it is in force. */
export interface Wall {
  /** how, or why not */
  detail: string;
  /** its name */
  name: string;
  /** "yes" or "no" */
  status: string;
}

/** Workspace is the host folder that the sandbox works on, at /workspace. */
export interface Workspace {
  /**
   * the index, in the request's fds, of an O_PATH fd of path that the client opened: proof that the caller may see it,
   * and protection against a path that changes under way. A client started by root sends a detached, id-mapped mount
   * instead.
   */
  fd?: number;
  /**
   * names, relative to the folder, that a sandbox in mode rw cannot write, beside those that are guarded in any such
   * folder (hutch config guard); unguarded are those of them that it can. "*" is all of them.
   */
  guard?: string[];
  /** what is done about guarded names that are not there; default "auto". */
  guard_new?: "auto" | "tell" | "refuse";
  /** MountMode says what a sandbox may do to a host folder. */
  mode: "none" | "ro" | "rw" | "overlay" | "tmpfs";
  /** absolute, on the host */
  path?: string;
  /** also a folder of some, such as .git */
  unguarded?: string[];
}

/** WorkspaceApplied is the result of workspace.apply. */
export interface WorkspaceApplied {
  /** paths */
  applied: string[];
  /** that were left alone */
  failed: WorkspaceFailure[];
  /** how many of both are not listed, of very many. */
  more?: number;
}

/** WorkspaceChange is a name that is another in the sandbox than in the folder. */
export interface WorkspaceChange {
  /** conflict says what somebody else has done to it in the folder since the sandbox touched it. */
  conflict?: string;
  /** the path before, of one that was renamed */
  from?: string;
  /** the name of the guard (GuardedNames) that it is or lies below: it is applied only when Paths name it. */
  guarded?: string;
  /** added, modified, deleted or renamed */
  kind: string;
  /** octal permission bits that are new */
  mode?: string;
  /** relative to the workspace */
  path: string;
  /** in bytes, of a file */
  size?: number;
  /** the first letter of ls -l: - d l, or p s c b, which stay in the sandbox. */
  type: string;
}

/** WorkspaceDiff is the result of workspace.diff. */
export interface WorkspaceDiff {
  /** WorkspaceChange is a name that is another in the sandbox than in the folder. */
  changes: WorkspaceChange[];
  /** the changes as a unified diff */
  diff?: string;
  /**
   * digest stands for all changes, whatever Paths say: given to workspace.apply it keeps that from applying what came
   * later.
   */
  digest: string;
  /**
   * the path of the last change of this page where more follow: pages end behind 4 MiB of names. Each page has the same
   * digest, or the sandbox has changed something meanwhile.
   */
  next_after?: string;
  /** of the folder, on the host */
  path: string;
  /** diff is not all */
  truncated?: boolean;
}

/** WorkspaceDiscarded is the result of workspace.discard. */
export interface WorkspaceDiscarded {
  /** paths */
  discarded: string[];
  /** WorkspaceFailure is a change that was not applied. */
  failed: WorkspaceFailure[];
  /** as WorkspaceApplied's */
  more?: number;
}

/** WorkspaceFailure is a change that was not applied. */
export interface WorkspaceFailure {
  /** force would apply it */
  conflict?: boolean;
  /** naming it would */
  guarded?: boolean;
  /** its path */
  path: string;
  /** why, in a sentence */
  why: string;
}

/** News about a request that is still running, whose params have asked for them. */
export interface ProgressNotification {
  /** the request's id */
  request: any;
  /** "exec.started", "image.progress", "image.ready", "debug.break", "template.step", "code.output" */
  kind: string;
  /** id of the exec */
  exec?: string;
  /** in the sandbox */
  pid?: number;
  /** of kind "exec.started" of sandbox.run, with what is not as it was asked for: */
  sandbox?: string;
  /** see sandbox */
  note?: string;
  /** limits, see sandbox. */
  unenforced?: Unenforced[];
  /** of an image */
  layer?: string;
  /** what is done with the layer */
  phase?: string;
  /** bytes */
  done?: number;
  /** bytes, -1 when unknown */
  total?: number;
  /** of kind "debug.break" */
  break?: BreakPoint;
  /** of kind "template.step" */
  step?: StepProgress;
  /** of kind "code.output" */
  stream?: "stdout" | "stderr";
  /** written to it; bytes that are no text are replaced */
  text?: string;
}

/** Output of an exec that exec.attach follows. */
export interface ExecOutputNotification {
  /** id of the attachment, unique on its connection */
  attachment: string;
  /** id of the exec */
  exec: string;
  /** stream names an output stream. */
  stream: "stdout" | "stderr";
  /** of the first byte of data */
  offset: number;
  /**
   * how many bytes before offset are lost: they were dropped from the middle of the spool before they could be sent.
   */
  dropped?: number;
  /** encoding says how bytes travel in JSON. */
  encoding: "utf-8" | "base64";
  /** the bytes, encoded as encoding says */
  data: string;
}

/** The end of an exec that exec.attach follows, after the last byte of its streams. */
export interface ExecExitedNotification {
  /** id of the attachment, unique on its connection */
  attachment: string;
  /** how long the streams were; 0 if not followed */
  ends: Offsets;
  /** id of the exec */
  exec: string;
  /** the exit code; 128+n after signal n */
  exit_code: number;
  /** "SIGKILL"; exit_code is then 128+n */
  signal?: string;
  /** verdict says how an exec ended. */
  verdict: "ok" | "nonzero" | "signal" | "timeout_wall" | "timeout_cpu" | "oom" | "pids" | "disk" | "output" | "denied"
    | "killed" | "not_run" | "sandbox" | "cancelled" | "lost";
  /** whether its time was over */
  timed_out: boolean;
  /** as stdout_encoding says */
  stdout: string;
  /** as stdout_encoding says */
  stdout_encoding: "utf-8" | "base64";
  /** as stderr_encoding says */
  stderr: string;
  /** as stderr_encoding says */
  stderr_encoding: "utf-8" | "base64";
  /** the middle of a stream is missing, or what a full disk did not take */
  truncated: boolean;
  /** how long it took, in milliseconds */
  duration_ms: number;
  /** the most that an exec used. */
  peaks: Peaks;
  /** the limit behind the verdict, of memory, processes or disk space. */
  limit?: LimitHit;
  /** host pids of processes that were killed */
  killed: number[];
  /** Denial is an operation that the sandbox refused. */
  denials: Denial[];
  /** connections that the policy allows, and that failed outside while the command ran. */
  failures?: Failure[];
  /**
   * the paragraph of /run/hutch/policy.txt about what was refused now for the third time: the sandbox gets it once of
   * each kind.
   */
  policy?: string;
  /** names of the workspace's guard that turned up since the command before. */
  unguarded?: Unguarded[];
  /**
   * what to do about a command that failed, where its own message cannot know: who installs something in the image
   * host, or is killed by a rule of the sandbox's own seccomp profile.
   */
  hint?: string;
  /** error says why a command with the verdict not_run never ran. */
  error?: string;
}

/** An event of a subscription of events.subscribe. */
export interface EventNotification {
  /** its id */
  subscription?: string;
  /**
   * seq numbers the events of a daemon from 1, without holes. Numbers outlive the daemon: the next one on its socket
   * goes on.
   */
  seq: number;
  /** when it happened */
  time: string;
  /** EventKind says what happened. */
  kind: "sandbox.state" | "sandbox.reclaimed" | "exec.started" | "exec.exited" | "exec.decided" | "exec.host_exited" |
    "limit.hit" | "network.denied" | "network.failed" | "network.ask" | "network.answered" | "syscall.denied" |
    "port.opened" | "file.denied" | "tool.call" | "tool.message" | "workspace.unguarded" | "image.progress" |
    "config.reloaded" | "events.lost" | "gap";
  /** id or name of the sandbox */
  sandbox?: string;
  /** id of the exec */
  exec?: string;
  /** depends on the kind */
  data?: any;
}

/** The end of a subscription of events.subscribe. */
export interface EventsEndNotification {
  /** id of the subscription, unique on its connection */
  subscription: string;
  /** why it ended, if not as asked */
  error?: string;
}

/** The params of system.authenticate. */
export interface SystemAuthenticateParams {
  /** as it was given to the client */
  token: string;
}

/** The params of system.shutdown. */
export interface SystemShutdownParams {
  /**
   * mode: "kill" ends every sandbox; with "keep", the default, they live on, and the daemon that is started next has
   * them. Only a private daemon refuses to keep.
   */
  mode?: string;
}

/** The params of sandbox.create. */
export interface SandboxCreateParams {
  /** reference, or "host" */
  image?: string;
  /** instead of image */
  template?: string;
  /** unique among living sandboxes */
  name?: string;
  /** names and values for people and tools, which hutch only stores */
  labels?: Record<string, string>;
  /** for every exec, over the image's */
  env?: Record<string, string>;
  /** absolute; default: the image's, then / */
  workdir?: string;
  /** name|uid[:group|gid]; default: the image's, then 0:0 */
  user?: string;
  /** default: the sandbox's id */
  hostname?: string;
  /**
   * stop_signal asks commands to end when the sandbox is stopped: a name or number; default: the image's, then SIGTERM.
   */
  stop_signal?: string;
  /** the host folder that the sandbox works on, at /workspace. */
  workspace?: Workspace;
  /** Mount is a further host folder or file, a volume, or a folder in memory. */
  mounts?: Mount[];
  /** limits bound a sandbox, or one exec in it */
  limits?: Limits;
  /** NetPolicy says what a sandbox may reach */
  network?: NetPolicy;
  /**
   * writable_usr, with the image "host", lets the sandbox make, remove and replace files in /usr, which is the host's:
   * the host sees nothing of it. Otherwise /usr can only be read. Files that are the host's cannot be changed in place.
   */
  writable_usr?: boolean;
  /**
   * read_only makes everything read-only but the mounts that say otherwise, /dev/shm, and /tmp, /var/tmp and /run,
   * which are then in memory.
   */
  read_only?: boolean;
  /** more lines of /etc/hosts */
  hosts?: Host[];
  /** capabilities that commands of uid 0 do not have, such as CHOWN or CAP_CHOWN, or ALL. Other users have none. */
  cap_drop?: string[];
  /** which system calls commands may make; default "default". */
  seccomp?: "default" | "strict" | "build" | "browser" | "custom";
  /**
   * seccomp_profile is, with "custom", the text of a profile as the OCI runtime specification has it, at most
   * MaxSeccompProfile bytes. It can take away from "default" and not add.
   */
  seccomp_profile?: string;
  /** whether commands are in a landlock domain; default "auto". */
  landlock?: "auto" | "on" | "off";
  /** who answers for users and groups that the sandbox does not have; default "auto". */
  ids?: "auto" | "emulate" | "real";
  /** whether the sandbox must be under hutch's own apparmor profile; default "auto". */
  apparmor?: "auto" | "on";
  /** scope names a sandbox by what it is for: sandbox.create returns the one that it has, or makes it. */
  scope?: Scope;
  /**
   * undo keeps what the files were before each call of a tool that may change them, and of code.run, so that
   * checkpoint.restore can take it back. It goes with workspaces in mode overlay or ro.
   */
  undo?: boolean;
  /** written to the folder user-uploads in the working directory, also of a scope's sandbox that there is. */
  uploads?: Upload[];
  /** life of the sandbox in seconds, 0 = no end */
  ttl_s?: number;
  /** seconds without an exec that it may be, 0 = any */
  idle_s?: number;
  /** What is done when they are over; default "remove". */
  ttl_action?: "remove" | "pause" | "stop" | "kill";
  /** LifeAction is what happens to a sandbox when ttl_s or idle_s is over. */
  idle_action?: "remove" | "pause" | "stop" | "kill";
  /** os/arch[/variant] of the image; default: this machine's */
  platform?: string;
  /** default "missing" */
  pull?: "missing" | "always" | "never";
  /**
   * keep keeps the sandbox's files on disk without the short cuts that only ephemeral sandboxes may take (overlay
   * `volatile`).
   */
  keep?: boolean;
  /**
   * owner says whose life the sandbox shares: "" is nobody's; "connection" removes it when the connection that created
   * it is lost.
   */
  owner?: string;
  /** debug asks for Sandbox.Debug in the answer. */
  debug?: boolean;
  /** break stops the creation on its way; only with debug. */
  break?: Break;
}

/** The params of sandbox.run. */
export interface SandboxRunParams {
  /**
   * the command; its sandbox is not said. Argv follows the image's entrypoint, and without it and Command the image's
   * own command runs.
   */
  exec: ExecParams;
  /** Exactly one of sandbox and acquire says where the sandbox comes from. Its Owner is the connection. */
  sandbox?: Spec;
  /** out of a pool */
  acquire?: AcquireParams;
  /** instead of the image's entrypoint and Cmd, as docker has it; "" for none. */
  entrypoint?: string;
  /**
   * if_build refuses the call, with failed_precondition, unless the daemon is of this build (Info.BuildID): a client
   * that need not ask before.
   */
  if_build?: string;
  /** if_state refuses the call likewise, unless that is the daemon's state folder (Info.Paths.State). */
  if_state?: string;
  /**
   * the index of an eventfd(2), made with EFD_NONBLOCK, that the caller writes to when the command may start. The
   * sandbox is made meanwhile: a caller that is to be ready for its command, to catch signals for example, need not be
   * ready before it calls.
   */
  gate?: number;
  /**
   * the index of another one, for a caller that shows downloads: when it was told about one, the command starts only
   * after this is written to as well. A notification of kind "image.ready" says that no more of them follow.
   */
  progress_gate?: number;
}

/** The params of sandbox.get. */
export interface SandboxGetParams {
  /** id or name of the sandbox */
  sandbox: string;
}

/** The params of sandbox.list. */
export interface SandboxListParams {
  /** only sandboxes that have all of them */
  labels?: Record<string, string>;
}

/** The params of sandbox.claim. */
export interface SandboxClaimParams {
  /** id or name of the sandbox */
  sandbox: string;
}

/** The params of sandbox.kill. */
export interface SandboxKillParams {
  /** id or name of the sandbox */
  sandbox: string;
}

/** The params of sandbox.remove. */
export interface SandboxRemoveParams {
  /** id or name of the sandbox */
  sandbox: string;
}

/** The params of sandbox.pause. */
export interface SandboxPauseParams {
  /** id or name of the sandbox */
  sandbox: string;
}

/** The params of sandbox.resume. */
export interface SandboxResumeParams {
  /** id or name of the sandbox */
  sandbox: string;
}

/** The params of sandbox.update. */
export interface SandboxUpdateParams {
  /** id or name of the sandbox */
  sandbox: string;
  /** limits bound a sandbox, or one exec in it */
  limits?: Limits;
  /** how many seconds the sandbox lives from now on, 0 for no end. */
  ttl_s?: number;
}

/** The params of sandbox.stats. */
export interface SandboxStatsParams {
  /** id or name of the sandbox */
  sandbox: string;
}

/** The params of sandbox.processes. */
export interface SandboxProcessesParams {
  /** id or name of the sandbox */
  sandbox: string;
}

/** The params of sandbox.stop. */
export interface SandboxStopParams {
  /** id or name of the sandbox */
  sandbox: string;
  /**
   * how long commands may take to end after the sandbox's stop signal, in seconds; default 10, at most MaxStopS, 0 is
   * none.
   */
  timeout_s?: number;
}

/** The params of sandbox.start. */
export interface SandboxStartParams {
  /** id or name of the sandbox */
  sandbox: string;
  /**
   * folders hand over folders of the host's that the sandbox had mounted: by root, whose folders the daemon cannot open
   * itself. Those that are not among them the daemon opens by their paths. Each must be the very folder that it was.
   */
  folders?: StartFolder[];
}

/** The params of sandbox.fork. */
export interface SandboxForkParams {
  /** id or name of the sandbox */
  sandbox?: string;
  /** instead of sandbox */
  snapshot?: string;
  /** 1 to MaxForks; default 1 */
  count?: number;
  /** of a single one */
  name?: string;
  /** over those of the sandbox */
  labels?: Record<string, string>;
  /** folders, for a single fork, are as of StartParams. Those of a sandbox that runs need not be handed over. */
  folders?: StartFolder[];
}

/** The params of snapshot.create. */
export interface SnapshotCreateParams {
  /** id or name of the sandbox */
  sandbox: string;
  /** for people and for later calls; unique among a user's snapshots */
  name?: string;
  /** names and values for people and tools, which hutch only stores */
  labels?: Record<string, string>;
}

/** The params of snapshot.list. */
export interface SnapshotListParams {
  /** id or name of the sandbox */
  sandbox?: string;
}

/** The params of snapshot.diff. */
export interface SnapshotDiffParams {
  /** id or name of the snapshot */
  snapshot: string;
  /** another snapshot; default: the sandbox as it is now */
  to?: string;
  /**
   * offset leaves out so many changes, and limit bounds them: default DefaultSnapshotChanges, at most
   * MaxSnapshotChanges.
   */
  offset?: number;
  /**
   * offset leaves out so many changes, and limit bounds them: default DefaultSnapshotChanges, at most
   * MaxSnapshotChanges.
   */
  limit?: number;
  /** unified, context and max_bytes are as of WorkspaceDiffParams; the text is about the changes of this reply. */
  unified?: boolean;
  /** unified, context and max_bytes are as of WorkspaceDiffParams; the text is about the changes of this reply. */
  context?: number;
  /** unified, context and max_bytes are as of WorkspaceDiffParams; the text is about the changes of this reply. */
  max_bytes?: number;
}

/** The params of snapshot.restore. */
export interface SnapshotRestoreParams {
  /** id or name of the snapshot */
  snapshot: string;
  /** as of StopParams; default 0 */
  timeout_s?: number;
  /** as of StartParams */
  folders?: StartFolder[];
}

/** The params of snapshot.remove. */
export interface SnapshotRemoveParams {
  /** id or name of the snapshot */
  snapshot: string;
}

/** The params of checkpoint.list. */
export interface CheckpointListParams {
  /** id or name of the sandbox */
  sandbox: string;
}

/** The params of checkpoint.restore. */
export interface CheckpointRestoreParams {
  /** id or name of the sandbox */
  sandbox: string;
  /** the call, or the id of its checkpoint; default: the last that was not undone. */
  to_call?: string;
  /** as of StopParams; default 0 */
  timeout_s?: number;
  /** as of StartParams; those of a sandbox that runs need not be handed over */
  folders?: StartFolder[];
}

/** The params of template.create. */
export interface TemplateCreateParams {
  /** unique among templates */
  name: string;
  /** for people */
  description?: string;
  /**
   * Exactly one of image and template is what it begins with; of another template it has all that it does not say
   * itself.
   */
  image?: string;
  /**
   * Exactly one of image and template is what it begins with; of another template it has all that it does not say
   * itself.
   */
  template?: string;
  /** os/arch[/variant] of the image */
  platform?: string;
  /** environment variables */
  env?: Record<string, string>;
  /** names and values for people and tools, which hutch only stores */
  labels?: Record<string, string>;
  /**
   * names of variables, such as an API key's, that `hutch agent` passes from its user's environment where they are set.
   * Nothing else does.
   */
  pass_env?: string[];
  /** working directory of commands that name none */
  workdir?: string;
  /** name or uid, and group after a colon */
  user?: string;
  /** limits bound a sandbox, or one exec in it */
  limits?: Limits;
  /** NetPolicy says what a sandbox may reach */
  network?: NetPolicy;
  /**
   * writable_usr and seccomp are those of a sandbox; steps that install into /usr need the first with the image "host".
   */
  writable_usr?: boolean;
  /**
   * writable_usr and seccomp are those of a sandbox; steps that install into /usr need the first with the image "host".
   */
  seccomp?: "default" | "strict" | "build" | "browser" | "custom";
  /** run once, in a sandbox of what the template begins with; what they have written is below all sandboxes of it. */
  steps?: TemplateStep[];
  /** TemplateBuild is what steps have and sandboxes of the template need not have. */
  build?: TemplateBuild;
  /**
   * entrypoint and cmd are the command of `hutch run` without one, in the place of the image's. An empty list, [], is
   * none.
   */
  entrypoint?: string[];
  /**
   * entrypoint and cmd are the command of `hutch run` without one, in the place of the image's. An empty list, [], is
   * none.
   */
  cmd?: string[];
  /**
   * start runs in the background of each sandbox, ready is waited for before somebody gets it, and ports are then
   * reached from the host.
   */
  start?: TemplateStart;
  /**
   * start runs in the background of each sandbox, ready is waited for before somebody gets it, and ports are then
   * reached from the host.
   */
  ready?: TemplateReady;
  /**
   * start runs in the background of each sandbox, ready is waited for before somebody gets it, and ports are then
   * reached from the host.
   */
  ports?: TemplatePort[];
  /** how many sandboxes wait in a pool of the template's name, with all that is started in them ready. */
  pool_size?: number;
  /** replace puts it in the place of one of that name. */
  replace?: boolean;
  /** the index of an fd: the read end of a pipe with a tar archive of the files that steps copy. */
  context?: number;
}

/** The params of template.inspect. */
export interface TemplateInspectParams {
  /** name of the template */
  template: string;
}

/** The params of template.build. */
export interface TemplateBuildParams {
  /** name of the template */
  template: string;
  /** run the steps although nothing has changed */
  no_cache?: boolean;
  /** of the image that it begins with; default "missing" */
  pull?: "missing" | "always" | "never";
}

/** The params of template.remove. */
export interface TemplateRemoveParams {
  /** name of the template */
  template: string;
}

/** The params of pool.create. */
export interface PoolCreateParams {
  /** unique among pools */
  name: string;
  /** how many wait, 1 to MaxPoolSize */
  size: number;
  /**
   * what they are. name, Owner, Workspace and Mounts are not possible: they belong to one user of a sandbox, who gives
   * the first two to pool.acquire. TTLS counts from then on.
   */
  sandbox: Spec;
  /** prewarm makes them now, which is the default; false makes the first when somebody asks for it. */
  prewarm?: boolean;
}

/** The params of pool.acquire. */
export interface PoolAcquireParams {
  /** name of the pool */
  pool: string;
  /** how long, in milliseconds, to wait for a sandbox when none is ready. */
  wait_ms?: number;
  /** of the sandbox, unique among living ones */
  name?: string;
  /** beside those of the pool */
  labels?: Record<string, string>;
  /** see Spec.Owner */
  owner?: string;
}

/** The params of pool.release. */
export interface PoolReleaseParams {
  /** id or name of the sandbox */
  sandbox: string;
}

/** The params of pool.status. */
export interface PoolStatusParams {
  /** name of the pool */
  pool: string;
}

/** The params of pool.resize. */
export interface PoolResizeParams {
  /** name of the pool */
  pool: string;
  /** how many are to wait */
  size: number;
}

/** The params of pool.remove. */
export interface PoolRemoveParams {
  /** name of the pool */
  pool: string;
}

/** The params of workspace.diff. */
export interface WorkspaceDiffParams {
  /** id or name of the sandbox */
  sandbox: string;
  /** paths, relative to the workspace, choose what is meant, each with all that is below it; none means all. */
  paths?: string[];
  /** exact leaves out what is below paths. */
  exact?: boolean;
  /** unified asks for the text of the diff, as git writes it. */
  unified?: boolean;
  /** how many lines around a change it has; default 3. */
  context?: number;
  /** max_bytes bounds the text; default and most DefaultDiffBytes. */
  max_bytes?: number;
  /**
   * after asks for the changes that follow those of this path: Next of the page before. The text is that of the first
   * page's call.
   */
  after?: string;
}

/** The params of workspace.apply. */
export interface WorkspaceApplyParams {
  /** id or name of the sandbox */
  sandbox: string;
  /** paths, relative to the workspace, choose what is meant, each with all that is below it; none means all. */
  paths?: string[];
  /** exact leaves out what is below paths. */
  exact?: boolean;
  /** digest, where it is not "", must be that of the diff that was looked at. */
  digest?: string;
  /** force applies also what somebody else has changed in the folder, whose changes are lost. */
  force?: boolean;
  /**
   * hunks choose parts of modified text files: by path the numbers of its hunks, from 1, in a diff with context lines
   * around each change (default 3). The rest of such a file stays as it is in the folder.
   */
  hunks?: Record<string, number[]>;
  /**
   * hunks choose parts of modified text files: by path the numbers of its hunks, from 1, in a diff with context lines
   * around each change (default 3). The rest of such a file stays as it is in the folder.
   */
  context?: number;
  /**
   * the index, in the request's fds, of the workspace's folder, for this call to write to. Root's folders are read-only
   * for the daemon otherwise, which lives as another user and never gets more than it is handed.
   */
  fd?: number;
}

/** The params of workspace.discard. */
export interface WorkspaceDiscardParams {
  /** id or name of the sandbox */
  sandbox: string;
  /** paths, relative to the workspace, choose what is meant, each with all that is below it; none means all. */
  paths?: string[];
  /** exact leaves out what is below paths. */
  exact?: boolean;
}

/** The params of scope.reset. */
export interface ScopeResetParams {
  /** ScopeKind says how long a scope's sandbox lives. */
  kind: "session" | "agent" | "shared";
  /** 1 to 128 printable characters without a space */
  key: string;
  /** undo, of sandbox.create, is Spec.Undo. */
  undo?: boolean;
}

/** The params of scope.end. */
export interface ScopeEndParams {
  /** ScopeKind says how long a scope's sandbox lives. */
  kind: "session" | "agent" | "shared";
  /** 1 to 128 printable characters without a space */
  key: string;
  /** undo, of sandbox.create, is Spec.Undo. */
  undo?: boolean;
}

/** The params of volume.create. */
export interface VolumeCreateParams {
  /** its name */
  name: string;
}

/** The params of volume.list. */
export interface VolumeListParams {
  /** usage asks what they hold. Every file is looked at. */
  usage?: boolean;
}

/** The params of volume.remove. */
export interface VolumeRemoveParams {
  /** its name */
  name: string;
}

/** The params of code.run. */
export interface CodeRunParams {
  /** python, javascript, shell, go, ruby */
  language: string;
  /** text of the code */
  code: string;
  /** exactly one of sandbox and runtime */
  sandbox?: string;
  /** an image, or the name of a runtime such as python@3.12, for a sandbox of this call's alone. */
  runtime?: string;
  /**
   * context names an interpreter that is kept for the next run: variables and imports persist. "" is a context as well,
   * each language's default one. fresh runs the code in an interpreter of its own, as do the languages that have no
   * contexts.
   */
  context?: string;
  /**
   * context names an interpreter that is kept for the next run: variables and imports persist. "" is a context as well,
   * each language's default one. fresh runs the code in an interpreter of its own, as do the languages that have no
   * contexts.
   */
  fresh?: boolean;
  /**
   * allowed_imports, of python, are the modules that the code may import; empty means all. A scan checks them before
   * anything runs, and the interpreter meanwhile: a rule for honest code, and no wall.
   */
  allowed_imports?: string[];
  /** of a fresh interpreter */
  env?: Record<string, string>;
  /** of a fresh interpreter; default: the sandbox's workdir */
  cwd?: string;
  /** default: the sandbox's user */
  user?: string;
  /** default 30, at most 1800 */
  timeout_s?: number;
  /** cap of each captured stream in the reply, in bytes; default 1 MiB */
  output_bytes?: number;
  /** network, with runtime, is the policy of its sandbox. */
  network?: NetPolicy;
}

/** The params of code.contexts. */
export interface CodeContextsParams {
  /** id or name of the sandbox */
  sandbox: string;
}

/** The params of code.end_context. */
export interface CodeEndContextParams {
  /** id or name of the sandbox */
  sandbox: string;
  /** name of the language */
  language: string;
  /** name of the interpreter that is kept */
  context?: string;
}

/** The params of code.scan. */
export interface CodeScanParams {
  /** python, javascript, shell */
  language: string;
  /** at most 1 MiB */
  code: string;
  /**
   * allowed_imports, of python and javascript, are the modules that the code may import, with what is below them; empty
   * means all.
   */
  allowed_imports?: string[];
}

/** The params of tools.call. */
export interface ToolsCallParams {
  /** id or name of the sandbox */
  sandbox: string;
  /** its name */
  name: string;
  /** an object that fits the tool's input schema. */
  arguments?: any;
  /** name|uid[:group|gid]; default: the sandbox's user */
  user?: string;
}

/** The params of exec.decide. */
export interface ExecDecideParams {
  /** default: the configuration's */
  mode?: "all" | "selective" | "off";
  /** where it runs if not on the host, if there is one already */
  sandbox?: string;
  /** exactly one of argv, command, and language with code */
  argv?: string[];
  /** for bash */
  command?: string;
  /**
   * language and code are what code.run takes, for an interpreter of its own or one that the caller keeps on the host.
   */
  language?: string;
  /**
   * language and code are what code.run takes, for an interpreter of its own or one that the caller keeps on the host.
   */
  code?: string;
  /**
   * the caller's word that on the host it lets the command write nothing, connect to nothing and read no file of the
   * user's but those below its folder. Without it mode selective leaves to the host what has no finding at all.
   */
  read_only?: boolean;
  /** the wall time after which the caller is to kill it; null is the configuration's exec.timeout_s, 0 none. */
  timeout_s?: number;
}

/** The params of exec.record_host. */
export interface ExecRecordHostParams {
  /** as exec.decide gave it */
  id: string;
  /** the exit code; 128+n after signal n */
  exit_code: number;
  /** how long it took, in milliseconds */
  duration_ms: number;
  /** "SIGKILL"; exit_code is then 128+n */
  signal?: string;
  /** whether its time was over */
  timed_out?: boolean;
  /** why it never ran, or what became of it */
  error?: string;
}

/** The params of exec.run. */
export interface ExecRunParams {
  /** id or name of the sandbox */
  sandbox: string;
  /**
   * the exec's id when the caller chooses it: "ex_" and 12 to 32 lower-case letters and digits, used once. A caller
   * that loses its connection before it is told the id can then still ask what became of the command.
   */
  exec?: string;
  /** exactly one of argv and command */
  argv?: string[];
  /** run by the sandbox's shell */
  command?: string;
  /** over the sandbox's */
  env?: Record<string, string>;
  /** absolute; default: the sandbox's workdir */
  cwd?: string;
  /** default: the sandbox's user */
  user?: string;
  /** all that it reads */
  stdin?: string;
  /** of stdin, and wanted for the output */
  encoding?: "utf-8" | "base64";
  /**
   * the wall time after which the command and everything it started is killed, at most the daemon's exec.max_timeout_s.
   * null is the sandbox's limits.timeout_s, else the daemon's exec.timeout_s. background commands and those with a pty
   * have no timeout unless one is given, no maximum, and 0 is none.
   */
  timeout_s?: number;
  /** limits bound a sandbox, or one exec in it */
  limits?: Limits;
  /** NetPolicy says what a sandbox may reach */
  network?: NetPolicy;
  /** cap of each captured stream in the reply; default 1 MiB */
  output_bytes?: number;
  /** background, of exec.start: stdin is empty instead of open for exec.write. */
  background?: boolean;
  /**
   * fds is the number of fds that ride on this request; stdio are indexes into them. With stdio nothing is captured.
   */
  stdio?: Stdio;
  /**
   * pty asks for a terminal in the sandbox. With stdio, its stdin and "stdout" are the pipes, sockets or terminals that
   * carry it, and its "stderr" is unused; without, what appears on it is the exec's stdout, and exec.write types.
   */
  pty?: Pty;
  /**
   * detachable, of a pty with stdio: the terminal outlives its fds. Their end is not the end of input, what appears is
   * also kept as without stdio, and exec.write types, too.
   */
  detachable?: boolean;
}

/** The params of exec.start. */
export interface ExecStartParams {
  /** id or name of the sandbox */
  sandbox: string;
  /**
   * the exec's id when the caller chooses it: "ex_" and 12 to 32 lower-case letters and digits, used once. A caller
   * that loses its connection before it is told the id can then still ask what became of the command.
   */
  exec?: string;
  /** exactly one of argv and command */
  argv?: string[];
  /** run by the sandbox's shell */
  command?: string;
  /** over the sandbox's */
  env?: Record<string, string>;
  /** absolute; default: the sandbox's workdir */
  cwd?: string;
  /** default: the sandbox's user */
  user?: string;
  /** all that it reads */
  stdin?: string;
  /** of stdin, and wanted for the output */
  encoding?: "utf-8" | "base64";
  /**
   * the wall time after which the command and everything it started is killed, at most the daemon's exec.max_timeout_s.
   * null is the sandbox's limits.timeout_s, else the daemon's exec.timeout_s. background commands and those with a pty
   * have no timeout unless one is given, no maximum, and 0 is none.
   */
  timeout_s?: number;
  /** limits bound a sandbox, or one exec in it */
  limits?: Limits;
  /** NetPolicy says what a sandbox may reach */
  network?: NetPolicy;
  /** cap of each captured stream in the reply; default 1 MiB */
  output_bytes?: number;
  /** background, of exec.start: stdin is empty instead of open for exec.write. */
  background?: boolean;
  /**
   * fds is the number of fds that ride on this request; stdio are indexes into them. With stdio nothing is captured.
   */
  stdio?: Stdio;
  /**
   * pty asks for a terminal in the sandbox. With stdio, its stdin and "stdout" are the pipes, sockets or terminals that
   * carry it, and its "stderr" is unused; without, what appears on it is the exec's stdout, and exec.write types.
   */
  pty?: Pty;
  /**
   * detachable, of a pty with stdio: the terminal outlives its fds. Their end is not the end of input, what appears is
   * also kept as without stdio, and exec.write types, too.
   */
  detachable?: boolean;
  /** progress asks for a notification with the exec's id when it has started. */
  progress?: boolean;
}

/** The params of exec.wait. */
export interface ExecWaitParams {
  /** id of the exec */
  exec: string;
  /**
   * how long to wait, in seconds; without it, until the exec ends. When the time is over the call fails with
   * deadline_exceeded and the exec goes on.
   */
  wait_s?: number;
  /** encoding says how bytes travel in JSON. */
  encoding?: "utf-8" | "base64";
  /** cap of each captured stream in the reply, in bytes; default 1 MiB */
  output_bytes?: number;
}

/** The params of exec.read. */
export interface ExecReadParams {
  /** id of the exec */
  exec: string;
  /** stream names an output stream. */
  stream: "stdout" | "stderr";
  /** of the first byte wanted; negative: so many bytes before the end */
  offset: number;
  /** bytes; default 256 KiB */
  limit?: number;
  /** how long to wait for a byte at offset, in seconds, while the exec runs; 0 returns what there is. */
  wait_s?: number;
  /** encoding says how bytes travel in JSON. */
  encoding?: "utf-8" | "base64";
}

/** The params of exec.attach. */
export interface ExecAttachParams {
  /** id of the exec */
  exec: string;
  /** the offsets of the first bytes wanted, negative: so many before the end. */
  from: Offsets;
  /** those to follow; empty means both. */
  streams?: ("stdout" | "stderr")[];
  /**
   * how many bytes of output may be sent before exec.credit gives more; both streams share it. 0 means
   * DefaultCreditBytes.
   */
  credit_bytes?: number;
  /** encoding says how bytes travel in JSON. */
  encoding?: "utf-8" | "base64";
}

/** The params of exec.credit. */
export interface ExecCreditParams {
  /** id of the exec */
  exec: string;
  /** of output, on top of what is left */
  bytes: number;
  /** attachment may be left out where the connection has one of the exec only. */
  attachment?: string;
}

/** The params of exec.detach. */
export interface ExecDetachParams {
  /** id of the exec */
  exec: string;
  /** as in CreditParams */
  attachment?: string;
}

/** The params of exec.write. */
export interface ExecWriteParams {
  /** id of the exec */
  exec: string;
  /** the bytes, encoded as encoding says */
  data: string;
  /** encoding says how bytes travel in JSON. */
  encoding?: "utf-8" | "base64";
}

/** The params of exec.close_stdin. */
export interface ExecCloseStdinParams {
  /** id of the exec */
  exec: string;
}

/** The params of exec.kill. */
export interface ExecKillParams {
  /** id of the exec */
  exec: string;
}

/** The params of exec.list. */
export interface ExecListParams {
  /** id or name of the sandbox */
  sandbox: string;
}

/** The params of exec.get. */
export interface ExecGetParams {
  /** id of the exec */
  exec: string;
}

/** The params of exec.signal. */
export interface ExecSignalParams {
  /** id of the exec */
  exec: string;
  /** "SIGINT", "INT" or "2" */
  signal: string;
}

/** The params of exec.resize. */
export interface ExecResizeParams {
  /** id of the exec */
  exec: string;
  /** lines */
  rows: number;
  /** columns */
  cols: number;
}

/** The params of shell.open. */
export interface ShellOpenParams {
  /** id or name of the sandbox */
  sandbox: string;
  /** default: the sandbox's user */
  user?: string;
  /** absolute; default: the sandbox's workdir */
  cwd?: string;
  /** over the sandbox's */
  env?: Record<string, string>;
}

/** The params of shell.run. */
export interface ShellRunParams {
  /** id of the shell */
  shell: string;
  /** one line or many; its stdin is /dev/null */
  command: string;
  /**
   * run, when set, is the number of the command: one more than that of the last. The same number and command again wait
   * for that command instead of running another, and give its result: for callers whose call was lost with the daemon.
   */
  run?: number;
  /** as exec.run's. A command that is killed by it leaves the shell as it was before. */
  timeout_s?: number;
  /** wanted for the output */
  encoding?: "utf-8" | "base64";
  /** as exec.run's */
  output_bytes?: number;
}

/** The params of shell.close. */
export interface ShellCloseParams {
  /** id of the shell */
  shell: string;
}

/** The params of shell.list. */
export interface ShellListParams {
  /** id or name of the sandbox */
  sandbox: string;
}

/** The params of fs.read. */
export interface FsReadParams {
  /** id or name of the sandbox */
  sandbox: string;
  /** relative ones start at the sandbox's workdir */
  path: string;
  /** name|uid[:group|gid]; default: the sandbox's user */
  user?: string;
  /** of the first byte wanted; negative: so many bytes before the end */
  offset?: number;
  /** bytes; default 256 KiB, with fd everything */
  limit?: number;
  /** base64 may be asked for */
  encoding?: "utf-8" | "base64";
  /** special reads also from a fifo or a device: what it has at this moment. */
  special?: boolean;
  /**
   * the index, in the request's fds, of a pipe that takes the bytes instead of the reply. The call ends when all are in
   * the pipe.
   */
  fd?: number;
}

/** The params of fs.write. */
export interface FsWriteParams {
  /** id or name of the sandbox */
  sandbox: string;
  /** relative ones start at the sandbox's workdir */
  path: string;
  /** name|uid[:group|gid]; default: the sandbox's user */
  user?: string;
  /** the new bytes */
  data?: string;
  /** of data */
  encoding?: "utf-8" | "base64";
  /** write at the end of the file */
  append?: boolean;
  /** write there; the rest of the file stays */
  offset?: number;
  /** make a missing file; default true */
  create?: boolean;
  /** fail if it exists */
  exclusive?: boolean;
  /** make missing folders above it */
  parents?: boolean;
  /** octal, "0755"; default: the old file's, else 0644 */
  mode?: string;
  /** if_version fails where the file is not the one that had this version in fs.stat: no write of another's is lost. */
  if_version?: string;
  /**
   * atomic true fails where the old file cannot be replaced in a single step (it has several names, say); false writes
   * into the file itself. By default that is done where it must be.
   */
  atomic?: boolean;
  /**
   * extended attributes that the file gets, by their names below "user.". A file that is replaced in a single step has
   * no others; another one keeps those that it had besides.
   */
  attributes?: Record<string, string>;
  /**
   * the index, in the request's fds, of a pipe that holds the content instead of data. size_bytes, where it is known,
   * makes a pipe that ends too early an error, which leaves the old file as it was.
   */
  fd?: number;
  /**
   * fd is the index, in the request's fds, of a pipe that holds the content instead of data. size_bytes, where it is
   * known, makes a pipe that ends too early an error, which leaves the old file as it was.
   */
  size_bytes?: number;
}

/** The params of fs.list. */
export interface FsListParams {
  /** id or name of the sandbox */
  sandbox: string;
  /** relative ones start at the sandbox's workdir */
  path: string;
  /** name|uid[:group|gid]; default: the sandbox's user */
  user?: string;
  /** folders below, too; symlinks are never followed */
  recursive?: boolean;
  /** levels of a recursive list; default: all */
  depth?: number;
  /** entries; default 10000, at most 100000 */
  limit?: number;
  /**
   * offset leaves out so many entries, so that pages of a long list fit together. Without it a folder with more names
   * than the limit may show any of them.
   */
  offset?: number;
  /** tell extended attributes, too */
  attributes?: boolean;
}

/** The params of fs.stat. */
export interface FsStatParams {
  /** id or name of the sandbox */
  sandbox: string;
  /** relative ones start at the sandbox's workdir */
  path: string;
  /** name|uid[:group|gid]; default: the sandbox's user */
  user?: string;
  /** describe what a symlink leads to */
  follow?: boolean;
  /** tell extended attributes, too */
  attributes?: boolean;
}

/** The params of fs.mkdir. */
export interface FsMkdirParams {
  /** id or name of the sandbox */
  sandbox: string;
  /** relative ones start at the sandbox's workdir */
  path: string;
  /** name|uid[:group|gid]; default: the sandbox's user */
  user?: string;
  /** make missing folders above it; one that exists is no error */
  parents?: boolean;
  /** octal; default 0755 */
  mode?: string;
}

/** The params of fs.remove. */
export interface FsRemoveParams {
  /** id or name of the sandbox */
  sandbox: string;
  /** relative ones start at the sandbox's workdir */
  path: string;
  /** name|uid[:group|gid]; default: the sandbox's user */
  user?: string;
  /** with all that is in it; symlinks are removed, never followed */
  recursive?: boolean;
  /** one that does not exist is no error */
  missing_ok?: boolean;
}

/** The params of fs.move. */
export interface FsMoveParams {
  /** id or name of the sandbox */
  sandbox: string;
  /** relative ones start at the sandbox's workdir */
  path: string;
  /** the new path itself, also where that is a folder */
  to: string;
  /** name|uid[:group|gid]; default: the sandbox's user */
  user?: string;
  /** no_replace fails if to exists. Otherwise a file takes the place of a file, a folder that of an empty one. */
  no_replace?: boolean;
}

/** The params of fs.pack. */
export interface FsPackParams {
  /** id or name of the sandbox */
  sandbox: string;
  /** relative ones start at the sandbox's workdir */
  path: string;
  /** index of the pipe that takes the archive */
  fd: number;
  /** name|uid[:group|gid]; default: the sandbox's user */
  user?: string;
  /** the name of the topmost entry; without it all names are relative to the folder. */
  as?: string;
  /** pack what a symlink leads to */
  follow?: boolean;
}

/** The params of fs.unpack. */
export interface FsUnpackParams {
  /** id or name of the sandbox */
  sandbox: string;
  /** relative ones start at the sandbox's workdir */
  path: string;
  /** index of the pipe that holds the archive */
  fd: number;
  /** name|uid[:group|gid]; default: the sandbox's user */
  user?: string;
  /** uid and gid as in the archive, where the sandbox has them; default: the user */
  keep_owner?: boolean;
  /** the archive's topmost entry is the folder's mode and time */
  root?: boolean;
  /** folders that are there already get the archive's mode and time, too */
  folders?: boolean;
}

/** The params of fs.sync. */
export interface FsSyncParams {
  /** id or name of the sandbox */
  sandbox: string;
  /** relative ones start at the sandbox's workdir */
  path: string;
  /** in order, each folder before what it holds */
  files: SyncFile[];
  /** name|uid[:group|gid]; default: the sandbox's user */
  user?: string;
  /** delete removes what the folder in the sandbox holds in the page's range beside files. */
  delete?: boolean;
  /** the last path of the page before; none for the first. */
  after?: string;
  /** in place of after */
  after_base64?: string;
  /** another page follows */
  more?: boolean;
}

/** The params of network.get. */
export interface NetworkGetParams {
  /** id or name of the sandbox */
  sandbox: string;
}

/** The params of network.update. */
export interface NetworkUpdateParams {
  /** id or name of the sandbox */
  sandbox: string;
  /** instead of the policy in force */
  network?: NetPolicy;
  /** to its lists */
  add?: NetLists;
  /** from its lists; each entry must be in them */
  remove?: NetLists;
}

/** The params of network.check. */
export interface NetworkCheckParams {
  /** exactly one of sandbox and network */
  sandbox?: string;
  /** one that asks for nothing is the configuration's */
  network?: NetPolicy;
  /** "" is a lookup, or unknown without a name */
  proto?: "tcp" | "udp";
  /** its name */
  name?: string;
  /** IP address */
  address?: string;
  /** of "tcp" or "udp" */
  port?: number;
}

/** The params of network.answer. */
export interface NetworkAnswerParams {
  /** its id */
  id: string;
  /** NetAnswer is what somebody says who is asked about a connection. */
  answer: "once" | "session" | "always" | "deny";
}

/** The params of network.forget. */
export interface NetworkForgetParams {
  /** entries of always, as network.asks lists them */
  entries: string[];
}

/** The params of port.expose. */
export interface PortExposeParams {
  /** id or name of the sandbox */
  sandbox: string;
  /** number of the port */
  port: number;
  /**
   * where hutchd listens: "IP:PORT", "PORT" or the absolute path of a Unix socket; PORT 0 is a free one. By default,
   * and where there is no IP, that is 127.0.0.1: other machines reach it only where an address such as "0.0.0.0:8080"
   * says so.
   */
  address?: string;
  /**
   * the index, in the request's fds, of a socket that listens already, with the rights of the caller: on a port or a
   * path that hutchd may not use. address then is missing, or of a Unix socket its path, which the socket itself does
   * not know.
   */
  listener?: number;
  /** token asks for one: only HTTP requests that have it pass. */
  token?: boolean;
}

/** The params of port.list. */
export interface PortListParams {
  /** id or name of the sandbox */
  sandbox?: string;
}

/** The params of port.close. */
export interface PortCloseParams {
  /** id or name of the sandbox */
  sandbox: string;
  /** number of the port */
  port: number;
  /** only this one; default: all of the port */
  address?: string;
}

/** The params of events.subscribe. */
export interface EventsSubscribeParams {
  /**
   * the number of the first event wanted; what is left of the past is replayed. Without it only what happens from now
   * on is sent.
   */
  from_seq?: number;
  /** empty means all */
  kinds?: ("sandbox.state" | "sandbox.reclaimed" | "exec.started" | "exec.exited" | "exec.decided" | "exec.host_exited"
    | "limit.hit" | "network.denied" | "network.failed" | "network.ask" | "network.answered" | "syscall.denied" |
    "port.opened" | "file.denied" | "tool.call" | "tool.message" | "workspace.unguarded" | "image.progress" |
    "config.reloaded" | "events.lost" | "gap")[];
  /** empty means all */
  sandbox?: string;
  /**
   * follow false ends the subscription with events.end when what had happened before the call has been sent; absent
   * means true.
   */
  follow?: boolean;
  /** how many events may be sent before events.credit gives more; 0 means as many as the connection takes. */
  credit?: number;
}

/** The params of events.credit. */
export interface EventsCreditParams {
  /** id of the subscription, unique on its connection */
  subscription: string;
  /** on top of those that are left */
  events: number;
}

/** The params of events.unsubscribe. */
export interface EventsUnsubscribeParams {
  /** id of the subscription, unique on its connection */
  subscription: string;
}

/** The params of audit.read. */
export interface AuditReadParams {
  /** of one that was removed: its id */
  sandbox: string;
  /** 0 is the oldest that is kept */
  from_seq?: number;
  /** records before are left out */
  since?: string;
  /** empty means all */
  kinds?: ("audit.opened" | "audit.resumed" | "audit.left" | "audit.closed" | "audit.lost" | "audit.skipped" |
    "audit.dropped" | "sandbox.created" | "pool.acquire" | "workspace.apply" | "workspace.discard" | "sandbox.state" |
    "sandbox.kill" | "sandbox.remove" | "sandbox.stop" | "sandbox.start" | "snapshot.create" | "snapshot.restore" |
    "checkpoint.restore" | "sandbox.updated" | "network.updated" | "port.exposed" | "port.closed" | "network.denied" |
    "network.failed" | "network.answered" | "network.allowed" | "syscall.denied" | "limit.hit" | "exec.started" |
    "exec.failed" | "exec.exited" | "exec.decided" | "exec.host_exited" | "exec.stdin" | "exec.signal" | "exec.kill" |
    "shell.run" | "shell.ended")[];
  /** id of the exec */
  exec?: string;
  /** records, at most 1000, the default */
  limit?: number;
  /** for the next record, where there is none */
  wait_s?: number;
}

/** The params of audit.verify. */
export interface AuditVerifyParams {
  /** id or name of the sandbox */
  sandbox: string;
  /** that the log had at some time */
  head?: AuditHead;
}

/** The params of audit.head. */
export interface AuditHeadParams {
  /** id or name of the sandbox */
  sandbox: string;
}

/** The params of image.pull. */
export interface ImagePullParams {
  /** reference of the image */
  ref: string;
  /** os/arch[/variant] of the image */
  platform?: string;
  /** default "always" */
  policy?: "missing" | "always" | "never";
}

/** The params of image.inspect. */
export interface ImageInspectParams {
  /** reference of the image */
  ref: string;
}

/** The params of image.remove. */
export interface ImageRemoveParams {
  /** reference of the image */
  ref: string;
}

/** The params of image.import. */
export interface ImageImportParams {
  /** ImageFormat says how a file holds images. */
  format: "oci-archive" | "docker-archive" | "archive" | "rootfs";
  /**
   * the index of the file among those of the request: a regular file open for reading, or the read end of a pipe made
   * for the call, a tar stream either way.
   */
  fd: number;
  /** what the image will be called; it may be left out when an archive names the image. */
  ref?: string;
  /** image chooses one of several images in an archive, by name or digest. */
  image?: string;
  /** os/arch[/variant] of the image */
  platform?: string;
  /** changes say how a root file system is run; an archive's image says that itself. */
  changes?: ConfigChanges;
}

/** The params of image.commit. */
export interface ImageCommitParams {
  /** id or name of the sandbox */
  sandbox: string;
  /** what the image will be called */
  ref: string;
  /** changes say how the image is run; without them as the sandbox's is. */
  changes?: ConfigChanges;
  /** author and message go to the image's history. */
  author?: string;
  /** author and message go to the image's history. */
  message?: string;
}

/** The params of image.export. */
export interface ImageExportParams {
  /** reference of the image */
  ref: string;
  /** ImageFormat says how a file holds images. */
  format: "oci-archive" | "docker-archive" | "archive" | "rootfs";
  /**
   * the index of the file among those of the request: a regular file open for writing, or the write end of a pipe made
   * for the call.
   */
  fd: number;
}

/** The params of image.push. */
export interface ImagePushParams {
  /** reference of the image */
  ref: string;
  /** where it goes, if not to what ref names: registry/repository:tag. */
  target?: string;
}

/** The params of image.login. */
export interface ImageLoginParams {
  /** HOST[:PORT], such as docker.io; with a path after it, what is below. */
  registry: string;
  /** name at the registry */
  username: string;
  /** Secret is text that is not shown: it prints as something else. */
  password: string;
}

/** The params of image.logout. */
export interface ImageLogoutParams {
  /** host name of the registry, with its port if it has one */
  registry: string;
}

/** The params of image.get_login. */
export interface ImageGetLoginParams {
  /** host name of the registry, with its port if it has one */
  registry: string;
}

/** The params of image.tag. */
export interface ImageTagParams {
  /** what the image is called */
  ref: string;
  /** what it is to be called, too */
  target: string;
}

/** The params of image.prune. */
export interface ImagePruneParams {
  /** all removes images that no sandbox uses, too, and not only layers that no image has. */
  all?: boolean;
}

/** The params of image.verify. */
export interface ImageVerifyParams {
  /** default: all images */
  ref?: string;
  /** repair fetches damaged layers again, from the registry that the image came from. */
  repair?: boolean;
}
