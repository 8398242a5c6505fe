/** Finds hutch: its socket, its binaries, and starts a daemon. internal/paths and runtime/client do the same in Go. */

import { type ChildProcess, spawn } from "node:child_process";
import { accessSync, closeSync, constants, fstatSync, openSync, readFileSync, realpathSync, statSync } from "node:fs";
import { type FileHandle, lstat, open } from "node:fs/promises";
import { createRequire } from "node:module";
import { connect, type Socket } from "node:net";
import { basename, dirname, join, resolve } from "node:path";

import { FailedPreconditionError, PermissionDeniedError, UnavailableError, withCode } from "./errors.js";
import { here } from "./here.js";

/** O_PATH, which Node has no name for: a folder that one may pass through and need not read. */
const O_PATH = 0o10000000;

/** MAX_SAID bounds what is kept of a stream of the hutch command, in UTF-16 units. */
const MAX_SAID = 64 << 20;

/** MAX_WORD bounds what a starting daemon says of itself. */
const MAX_WORD = 64 << 10;

type Environment = Record<string, string | undefined>;

function uid(): number {
  if (process.platform !== "linux" || !process.geteuid) {
    throw new FailedPreconditionError(`hutch runs on Linux, and this is ${process.platform}`, { op: "find hutch" });
  }
  return process.geteuid();
}

/** Where the user's shared daemon listens. */
export function socketPath(): string {
  if (process.env.HUTCH_SOCKET) return resolve(process.env.HUTCH_SOCKET);
  const me = uid();
  if (me === 0) return "/run/hutch/hutchd.sock";
  if (process.env.XDG_RUNTIME_DIR) return join(process.env.XDG_RUNTIME_DIR, "hutch", "hutchd.sock");
  const own = `/run/user/${me}`;
  if (statSync(own, { throwIfNoEntry: false })?.uid === me) return join(own, "hutch", "hutchd.sock");
  return `/tmp/hutch-${me}/hutchd.sock`;
}

/** The hutch command: HUTCH_BIN, else the one in PATH, else the copy that came with this package. */
export function binary(): string {
  const named = process.env.HUTCH_BIN;
  if (named) {
    if (runs(named)) return named;
    throw new FailedPreconditionError(`HUTCH_BIN names ${JSON.stringify(named)}, which is no program`,
      { op: "find hutch", hint: "give it the path of the file hutch" });
  }
  for (const folder of (process.env.PATH ?? "").split(":")) {
    if (folder && runs(join(folder, "hutch"))) return join(folder, "hutch");
  }
  const own = ownBinary();
  if (own) return own;
  throw new FailedPreconditionError("there is no hutch in PATH, and none came with this package",
    { op: "find hutch", hint: "install hutch, or set HUTCH_BIN to the path of the file hutch" });
}

/** The copy of the command in the package for this kind of machine, which npm installs beside this one. */
function ownBinary(): string | undefined {
  try {
    const found = createRequire(here).resolve(`@hutch-sh/linux-${process.arch}/package.json`);
    const own = join(dirname(found), "bin", "hutch");
    return runs(own) ? own : undefined;
  } catch {
    return undefined; // it is optional
  }
}

function runs(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
}

/** The daemon's binary, which lies beside the command's or in ../libexec/hutch. */
function hutchd(): string {
  const real = realpathSync(binary());
  const beside = dirname(real);
  for (const path of [join(beside, "hutchd"), join(dirname(beside), "libexec", "hutch", "hutchd")]) {
    if (runs(path)) return path;
  }
  throw new FailedPreconditionError(`there is no hutchd beside ${real}`,
    { op: "find hutchd", hint: "install hutch again: its binaries belong in one folder" });
}

/** A connection to the daemon at path; undefined if none runs there. */
export async function dial(path: string): Promise<Socket | undefined> {
  let folder: FileHandle | undefined;
  try {
    folder = await open(dirname(path), O_PATH | constants.O_DIRECTORY);
    // Through its descriptor the folder is the one that is checked, and the path is short enough for an address.
    const pinned = `/proc/self/fd/${folder.fd}/${basename(path)}`;
    await checkOwner(folder, pinned, path);
    return await connected(pinned);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code === "ENOENT" || code === "ECONNREFUSED") return undefined;
    if (code === "EACCES" || code === "EPERM") {
      throw new PermissionDeniedError(`socket ${path}: ${(error as Error).message}`,
        { op: "connect", hint: "a daemon serves the user who started it", cause: error });
    }
    throw error;
  } finally {
    await folder?.close();
  }
}

/**
 * Requests have secrets, and a socket in a shared folder could be anybody's. Node cannot ask who serves a socket
 * (SO_PEERCRED), so it must be a file of the caller's or of root's in a folder where nobody else can exchange it.
 */
async function checkOwner(folder: FileHandle, pinned: string, path: string): Promise<void> {
  const trusted = [0, uid()];
  const hint = "set HUTCH_SOCKET to your own daemon's socket";
  const [above, own] = [await folder.stat(), await lstat(pinned)];
  if (!trusted.includes(own.uid)) {
    throw new PermissionDeniedError(`socket ${path} belongs to uid ${own.uid}, not to uid ${trusted[1]}`,
      { op: "connect", hint });
  }
  const sticky = (above.mode & 0o1000) !== 0;
  if (!trusted.includes(above.uid) || ((above.mode & 0o022) !== 0 && !sticky)) {
    throw new PermissionDeniedError(`others can exchange the socket ${path}: its folder belongs to uid ${above.uid} ` +
      `and has mode ${(above.mode & 0o7777).toString(8)}`, { op: "connect", hint });
  }
}

function connected(path: string): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect({ path });
    socket.once("error", reject);
    socket.once("connect", () => {
      socket.off("error", reject);
      resolve(socket);
    });
  });
}

/** Connects to the user's shared daemon after the command line has started it, which knows how many may try. */
export async function startShared(path: string, token = process.env.HUTCH_TOKEN): Promise<Socket> {
  const said = await hutch(["rpc", "system.info", "{}"], { HUTCH_SOCKET: path, HUTCH_TOKEN: token });
  if (said.code !== 0) {
    throw new UnavailableError(said.stderr, { op: "start hutchd", hint: "hutch doctor says what this machine lacks" });
  }
  const socket = await dial(path);
  if (socket) return socket;
  throw new UnavailableError(`no daemon answers on ${path} after it was started`,
    { op: "start hutchd", hint: "its log says why: hutch doctor" });
}

/** What the hutch command has said. */
export interface Said {
  code: number;
  stdout: string;
  stderr: string;
}

/** Runs the hutch command. Its standard input and output may be open files, by their descriptors. */
export function hutch(args: string[], env: Environment, io: { stdin?: number; stdout?: number } = {}): Promise<Said> {
  const child = spawn(binary(), args,
    { env: { ...process.env, ...env }, stdio: [io.stdin ?? "ignore", io.stdout ?? "pipe", "pipe"] });
  const said = { stdout: "", stderr: "" };
  for (const name of ["stdout", "stderr"] as const) {
    child[name]?.setEncoding("utf8").on("data", (text: string) => {
      if (said[name].length + text.length <= MAX_SAID) said[name] += text;
    });
  }
  return new Promise((resolve, reject) => {
    child.once("error", reject);
    child.once("close", (code) => resolve({ code: code ?? 1, stdout: said.stdout, stderr: said.stderr.trim() }));
  });
}

/** A daemon of this program's own. It serves nobody else and ends, with its sandboxes, when the connection does. */
export async function startPrivate(log?: string): Promise<{ socket: Socket; daemon: ChildProcess }> {
  const { HUTCH_TOKEN, HUTCH_TOKEN_FILE, ...env } = process.env;
  const path = hutchd();
  const sink = log === undefined ? "ignore" : openSync(log, "a", 0o600);
  let daemon: ChildProcess;
  try {
    // A session of its own: a Ctrl-C at the caller's terminal is not for it. Pipes are pairs of sockets here.
    daemon = spawn(path, ["serve", "--private-fd", "3", "--ready-fd", "4"],
      { stdio: ["ignore", sink, sink, "pipe", "pipe"], detached: true, cwd: "/", env });
  } finally {
    if (typeof sink === "number") closeSync(sink);
  }
  const [socket, ready] = [daemon.stdio[3] as Socket, daemon.stdio[4] as Socket];
  try {
    await Promise.race([
      isReady(ready),
      new Promise((_, reject) => daemon.once("error", reject)),
    ]);
  } catch (error) {
    socket.destroy();
    daemon.kill("SIGKILL");
    throw error;
  } finally {
    ready.destroy();
  }
  daemon.unref();
  return { socket, daemon };
}

/** Waits for the line of a starting daemon: that it is ready, or why it is not. */
async function isReady(pipe: Socket): Promise<void> {
  let text = "";
  for await (const piece of pipe.setEncoding("utf8")) {
    text += piece;
    if (text.includes("\n") || text.length > MAX_WORD) break;
  }
  if (!text.trim()) {
    throw new UnavailableError("the daemon ended before it was ready",
      { op: "start hutchd", hint: "hutch doctor says what this machine lacks" });
  }
  const { error } = JSON.parse(text) as { error?: { code: string; op: string; msg: string; hint: string } };
  if (error) throw withCode(error.code, error.msg, { op: error.op, hint: error.hint });
}

/** The token that the environment has for a daemon whose configuration names some. */
export function token(): string {
  const { HUTCH_TOKEN: value = "", HUTCH_TOKEN_FILE: path = "" } = process.env;
  if (value || !path) return value;
  const fd = openSync(path, "r");
  try {
    const st = fstatSync(fd);
    if (st.isFile() && (st.mode & 0o077) !== 0) {
      throw new PermissionDeniedError(`${path} can be read by others`, { op: "connect", hint: `chmod 600 ${path}` });
    }
    return readFileSync(fd, "ascii").trim();
  } finally {
    closeSync(fd);
  }
}

