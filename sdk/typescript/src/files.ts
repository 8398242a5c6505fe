/** The files of a sandbox. */

import { randomBytes } from "node:crypto";
import { constants } from "node:fs";
import { type FileHandle, lstat, mkdir, open, rename, unlink } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";

import type { Client } from "./client.js";
import { FailedPreconditionError, fromWire, InvalidArgumentError, NotFoundError, type WireError } from "./errors.js";
import { hutch } from "./find.js";
import { pack, unpack } from "./results.js";
import type * as t from "./types.js";

/** PIECE is how much of a file travels in one call, in bytes: a request has at most 4 MiB, of which base64 takes 3. */
const PIECE = 2 << 20;

/** INLINE is how long a text may be, in UTF-16 units of which JSON may make six bytes, that is not cut into pieces. */
const INLINE = 256 << 10;

/** AHEAD is how many pieces are under way at once. */
const AHEAD = 4;

/** Whose rights count; by default those of the sandbox's user. */
export interface UserOption {
  user?: string;
}

export interface WriteOptions extends UserOption {
  /** octal, "0755" */
  mode?: string;
  append?: boolean;
}

/** LARGE is from how many bytes on a file goes through a pipe of the hutch command, which has to be started. */
const LARGE = 8 << 20;

/** What a file is written of. */
export type Content = string | Uint8Array | AsyncIterable<Uint8Array>;

/**
 * The files of a sandbox. Paths are those inside; relative ones start at its working directory. Node cannot hand file
 * descriptors to the daemon: large files that are copied from or to this machine go through the hutch command, which can,
 * and all else travels in pieces.
 */
export class Files {
  #client: Client;
  #sandbox: string;

  constructor(client: Client, sandbox: string) {
    this.#client = client;
    this.#sandbox = sandbox;
  }

  /** What a file holds. */
  async read(path: string, options: UserOption = {}): Promise<Uint8Array> {
    const pieces: Uint8Array[] = [];
    for await (const piece of this.stream(path, options)) pieces.push(piece);
    return pieces.length === 1 ? pieces[0]! : Buffer.concat(pieces);
  }

  /** What a text file holds. */
  async readText(path: string, options: UserOption = {}): Promise<string> {
    return new TextDecoder().decode(await this.read(path, options));
  }

  /** What a file holds, piece by piece, in bounded memory. */
  async *stream(path: string, options: UserOption = {}): AsyncGenerator<Uint8Array, void, void> {
    const ask = (offset: number) => this.#client.rpc.fs.read(
      { sandbox: this.#sandbox, path, user: options.user, offset, limit: PIECE, encoding: "base64" });
    const ahead: Promise<t.FileChunk>[] = [];
    for (let end = 0, asked = PIECE; ;) {
      let piece = await (ahead.shift() ?? ask(end));
      if (piece.offset !== end) piece = await ask(end); // one before it was shorter than asked for
      for (; ahead.length < AHEAD && asked < piece.size; asked += PIECE) {
        const next = ask(asked);
        next.catch(() => {}); // it is thrown when its turn comes
        ahead.push(next);
      }
      const data = unpack(piece.data, piece.encoding);
      end += data.length;
      if (data.length > 0) yield data;
      if (piece.eof || data.length === 0) return;
    }
  }

  /**
   * Writes a file, and makes missing folders above it. Up to 2 MiB go in a single step; who reads a larger file
   * meanwhile sees a part of it. data may be a stream, which is copied in bounded memory.
   */
  async write(path: string, data: Content, options: WriteOptions = {}): Promise<void> {
    const { user, mode, append } = options;
    const target = { sandbox: this.#sandbox, path, user };
    const first = { ...target, mode, append, parents: true };
    if (typeof data === "string" && data.length <= INLINE) {
      await this.#client.rpc.fs.write({ ...first, ...pack(data) });
      return;
    }
    const pieces = typeof data === "string" || data instanceof Uint8Array ? cut(data) : gathered(data);
    const begin = await pieces.next();
    let { size: at } = await this.#client.rpc.fs.write({ ...first, ...pack(begin.done ? "" : begin.value) });
    const under = new Set<Promise<unknown>>();
    try {
      for await (const piece of pieces) {
        const call = this.#client.rpc.fs.write({ ...target, ...pack(piece), offset: at, atomic: false });
        under.add(call);
        call.then(() => under.delete(call), () => {}); // one that fails stays
        at += piece.length;
        if (under.size >= AHEAD) await Promise.race(under);
      }
      await Promise.all(under);
    } finally {
      await Promise.allSettled(under);
    }
  }

  /**
   * Copies a file or a folder of this machine into the sandbox. path is that of the copy, or ends in "/" and is the folder
   * that it goes to. What a folder there holds already stays, but for what has the same name. mode is a file's.
   */
  async upload(local: string, path: string, options: UserOption & { mode?: string } = {}): Promise<void> {
    const file = await open(local, "r");
    try {
      const st = await file.stat();
      const to = path.endsWith("/") ? path + basename(local) : path;
      if (st.isDirectory()) {
        await this.mkdir(to, { user: options.user });
        await this.#copy(`${resolve(local)}/.`, `${this.#sandbox}:${to}`, options);
        return;
      }
      const mode = options.mode ?? (st.mode & 0o777).toString(8).padStart(4, "0");
      if (!this.#piped(st.size)) {
        await this.write(to, contents(file), { ...options, mode });
        return;
      }
      const params = { sandbox: this.#sandbox, path: to, user: options.user, mode, parents: true, size_bytes: st.size };
      await this.#pipe("fs.write", params, "--in", { stdin: file.fd });
    } finally {
      await file.close();
    }
  }

  /**
   * Copies a file or a folder of the sandbox to this machine. local is the copy itself. A file takes its place when all of
   * it is there, a link is replaced and not followed, and a new file has mode 0600. Of a folder this leaves out what is
   * dangerous here: devices, links that lead out of it, and what programs of yours would obey, such as .envrc and hooks of
   * git (docs/guarded.md). It returns what was left out, a line for each reason.
   */
  async download(path: string, local: string, options: UserOption = {}): Promise<string[]> {
    const found = await this.stat(path, options);
    if (found.type === "folder") {
      await mkdir(local, { recursive: true });
      const said = await this.#copy(`${this.#sandbox}:${path}/.`, resolve(local), options);
      return said.split("\n").filter((line) => line).map((line) => line.replace(/^hutch: /, ""));
    }
    if (local.endsWith("/")) {
      throw new InvalidArgumentError(`${local} is a folder: the name of a file is wanted`,
        { op: "download", field: "local" });
    }
    const name = `.${basename(local).slice(0, 64)}.${randomBytes(6).toString("hex")}`;
    const temporary = join(dirname(resolve(local)), name);
    const file = await open(temporary, constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL, 0o600);
    try {
      if (this.#piped(found.size)) {
        // No more than it had: the sandbox may be writing on.
        const params = { sandbox: this.#sandbox, path, user: options.user, limit: found.size };
        await this.#pipe("fs.read", params, "--out", { stdout: file.fd });
      } else {
        for await (const piece of this.stream(path, options)) await file.writeFile(piece);
      }
      const old = await lstat(local).catch(() => undefined);
      if (old?.isDirectory()) {
        throw new InvalidArgumentError(`${local} is a folder: the name of a file is wanted`,
          { op: "download", field: "local" });
      }
      if (old?.isFile()) await file.chmod(old.mode & 0o777);
      await rename(temporary, local);
      return [];
    } catch (error) {
      await unlink(temporary);
      throw error;
    } finally {
      await file.close();
    }
  }

  /** Whether a file goes through the hutch command, which a private daemon does not know. */
  #piped(size: number): boolean {
    return size >= LARGE && !this.#client.link.private;
  }

  /** Calls a method that moves data through a pipe, which the hutch command makes for a file of this machine. */
  async #pipe(method: string, params: object, way: string, io: { stdin?: number; stdout?: number }): Promise<void> {
    const args = ["rpc", way, "--error-json", method, JSON.stringify(params)];
    const said = await hutch(args, this.#client.link.environment(), io);
    if (said.code === 0) return;
    let error: WireError = { message: said.stderr };
    try {
      error = JSON.parse(said.stderr.slice(said.stderr.search(/^\{/m))) as WireError; // warnings come before it
    } catch {
      // the command has ended before it could say so: its own words will do
    }
    throw fromWire(error, method);
  }

  /** Copies a folder by the command line, which knows what must not get to the host. Returns what it says. */
  async #copy(source: string, target: string, { user }: UserOption): Promise<string> {
    const flags = user === undefined ? [] : [`--user=${user}`];
    const said = await hutch(["cp", ...flags, "--", source, target], this.#client.link.environment());
    if (said.code !== 0) throw new FailedPreconditionError(said.stderr.replace(/^hutch: /, ""), { op: "copy" });
    return said.stderr;
  }

  /** What is in a folder, and below it if asked to. */
  async list(path = ".", options: UserOption & { recursive?: boolean; depth?: number } = {}): Promise<t.File[]> {
    const entries: t.File[] = [];
    for (;;) {
      const page = await this.#client.rpc.fs.list(
        { sandbox: this.#sandbox, path, ...options, offset: entries.length });
      entries.push(...page.entries);
      if (!page.truncated || page.entries.length === 0) return entries;
    }
  }

  /** What is known of a file. */
  async stat(path: string, options: UserOption & { follow?: boolean } = {}): Promise<t.File> {
    return this.#client.rpc.fs.stat({ sandbox: this.#sandbox, path, follow: true, ...options });
  }

  async exists(path: string, options: UserOption = {}): Promise<boolean> {
    try {
      await this.stat(path, { ...options, follow: false });
      return true;
    } catch (error) {
      if (error instanceof NotFoundError) return false;
      throw error;
    }
  }

  /** Makes a folder, and those above it; false says that it was there. */
  async mkdir(path: string, options: UserOption & { parents?: boolean; mode?: string } = {}): Promise<boolean> {
    return (await this.#client.rpc.fs.mkdir({ sandbox: this.#sandbox, path, parents: true, ...options })).created;
  }

  /** Removes a file or a folder, and returns how many went. */
  async remove(path: string, options: UserOption & { recursive?: boolean; missingOk?: boolean } = {}): Promise<number> {
    const { missingOk: missing_ok, ...rest } = options;
    return (await this.#client.rpc.fs.remove({ sandbox: this.#sandbox, path, missing_ok, ...rest })).removed;
  }

  /** Renames a file or a folder. to is the new path itself, also where that is a folder. */
  async move(path: string, to: string, options: UserOption & { replace?: boolean } = {}): Promise<void> {
    const { replace = true, user } = options;
    await this.#client.rpc.fs.move({ sandbox: this.#sandbox, path, to, no_replace: !replace, user });
  }
}

async function* cut(data: string | Uint8Array): AsyncGenerator<Uint8Array, void, void> {
  const bytes = typeof data === "string" ? new TextEncoder().encode(data) : data;
  for (let start = 0; start < bytes.length; start += PIECE) yield bytes.subarray(start, start + PIECE);
}

/** A stream in pieces of one size, of which each is a call. */
async function* gathered(source: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array, void, void> {
  let waiting: Uint8Array[] = [];
  let bytes = 0;
  for await (const some of source) {
    waiting.push(some);
    bytes += some.length;
    if (bytes < PIECE) continue;
    const all = Buffer.concat(waiting);
    const whole = bytes - (bytes % PIECE);
    yield* cut(all.subarray(0, whole));
    waiting = [all.subarray(whole)];
    bytes -= whole;
  }
  if (bytes > 0) yield Buffer.concat(waiting);
}

async function* contents(file: FileHandle): AsyncGenerator<Uint8Array, void, void> {
  for (;;) {
    const { bytesRead, buffer } = await file.read(Buffer.allocUnsafe(PIECE), 0, PIECE, null);
    if (bytesRead === 0) return;
    yield buffer.subarray(0, bytesRead);
  }
}
