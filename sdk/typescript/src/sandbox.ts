/** A sandbox. */

import { type Client, shared } from "./client.js";
import { Code } from "./code.js";
import { type SandboxConfig, spec, wantsFolders } from "./config.js";
import type { CallOptions } from "./connection.js";
import { ConnectionLostError, FailedPreconditionError, NotFoundError } from "./errors.js";
import { Files } from "./files.js";
import { unique } from "./ids.js";
import { Ports, Workspace } from "./parts.js";
import { Process } from "./process.js";
import { ExecutionResult, pack } from "./results.js";
import { createAsRoot } from "./root.js";
import type * as t from "./types.js";

/** A text for the sandbox's shell, or a program and its arguments. */
export type Command = string | readonly string[];

/** How a sandbox is made. */
export interface SandboxOptions extends SandboxConfig, CallOptions {
  /** stays until somebody removes it, also over the end of this program */
  detached?: boolean;
  /** by default that of the user's shared daemon */
  client?: Client;
}

/** How a command runs. */
export interface CommandOptions {
  env?: Record<string, string>;
  /** absolute */
  cwd?: string;
  user?: string;
  /** seconds, after which it is killed with all that it has started */
  timeout?: number;
  /** kills it, and throws the signal's reason */
  signal?: AbortSignal;
  /** further params of exec.run (docs/rpc.md) */
  options?: Partial<t.ExecRunParams>;
}

export interface RunOptions extends CommandOptions {
  /** all that it reads */
  stdin?: string | Uint8Array;
  /** throws CommandError if it fails */
  check?: boolean;
  /** gets the output as it comes */
  onStdout?: (text: string) => void;
  onStderr?: (text: string) => void;
}

export interface ExecOptions extends CommandOptions {
  /** all that it reads, or true, which leaves stdin open for Process.write */
  stdin?: string | Uint8Array | boolean;
  /** gives it a terminal, of 24 rows and 80 columns by default */
  terminal?: boolean | { rows: number; cols: number };
}

/**
 * A sandbox. Under `await using` it is removed at the end of the block with all that runs in it, otherwise when the
 * program ends, unless it was made with detached.
 */
export class Sandbox implements AsyncDisposable {
  readonly client: Client;
  readonly id: string;
  readonly files: Files;
  readonly code: Code;
  readonly ports: Ports;
  readonly workspace: Workspace;
  /** what it was when it was made or last asked for */
  record: t.Sandbox;
  #detached: boolean;

  private constructor(client: Client, record: t.Sandbox, detached: boolean) {
    this.client = client;
    this.id = record.id;
    this.record = record;
    this.files = new Files(client, this.id);
    this.code = new Code(client, this.id);
    this.ports = new Ports(client, this.id);
    this.workspace = new Workspace(client, this.id);
    this.#detached = detached;
  }

  /** The name that it was given. */
  get name(): string {
    return this.record.name ?? "";
  }

  /** Makes a sandbox: of an image, or of this machine's own programs. */
  static async create(options?: SandboxOptions): Promise<Sandbox>;
  /** Makes a sandbox of an image, such as "python:3.12". */
  static async create(image: string, options?: SandboxOptions): Promise<Sandbox>;
  static async create(first: string | SandboxOptions = {}, second: SandboxOptions = {}): Promise<Sandbox> {
    const options = typeof first === "string" ? { ...second, image: first } : first;
    const { detached = false, client = shared(), signal, onProgress, ...config } = options;
    if (wantsFolders(config) && process.geteuid?.() === 0) {
      return new Sandbox(client, await createAsRoot(client, config, detached), detached);
    }
    const params = spec(config);
    if (!detached && !params.scope) params.owner ??= "connection";
    const record = await client.call("sandbox.create", params, { signal, onProgress, onLate: remover(client, params) });
    return params.owner === "connection" ? Sandbox.owned(client, record) : new Sandbox(client, record, detached);
  }

  /**
   * One that belongs to the client's connection.
   * @internal
   */
  static owned(client: Client, record: t.Sandbox): Sandbox {
    client.link.owned.add(record.id);
    return new Sandbox(client, record, false);
  }

  /** A sandbox that there is, by its id or name. It is not removed at the end of a block. */
  static async get(sandbox: string, options: { client?: Client } = {}): Promise<Sandbox> {
    const client = options.client ?? shared();
    return new Sandbox(client, await client.rpc.sandbox.get({ sandbox }), true);
  }

  /** The sandboxes that there are. */
  static async list(options: { labels?: Record<string, string>; client?: Client } = {}): Promise<Sandbox[]> {
    const client = options.client ?? shared();
    return (await client.list(options.labels)).map((record) => new Sandbox(client, record, true));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#detached) return;
    try {
      await this.remove();
    } catch (error) {
      if (error instanceof NotFoundError || error instanceof ConnectionLostError) return; // it is gone
      throw error;
    }
  }

  /** Runs a command and returns what became of it. One that fails is no error, unless check is true. */
  async run(command: Command, options: RunOptions = {}): Promise<ExecutionResult> {
    const { stdin, check, onStdout, onStderr, signal } = options;
    const params = { ...this.#params(command, options), ...input(stdin) };
    const result = onStdout || onStderr
      ? await this.#follow(params, options)
      : new ExecutionResult(await this.#run(params, signal));
    return check ? result.check() : result;
  }

  async #follow(params: ExecParams, options: RunOptions): Promise<ExecutionResult> {
    const process = this.#start(params, options.signal, options.stdin === undefined);
    try {
      await process.copy(options.onStdout, options.onStderr);
    } catch (error) {
      await process[Symbol.asyncDispose]().catch(() => {}); // where a function has thrown nobody waits for the rest
      throw error;
    }
    return process.wait();
  }

  #run(params: ExecParams, signal: AbortSignal | undefined): Promise<t.ExecResult> {
    return this.#insist(() => this.client.call("exec.run", params, { signal }),
      () => this.client.rpc.exec.wait({ exec: params.exec }, { signal }));
  }

  /**
   * Starts a command, and asks for it where the daemon dies meanwhile. If it was not started it is started again: its
   * id is taken once.
   */
  async #insist<T>(start: () => Promise<T>, ask: () => Promise<T>): Promise<T> {
    for (;;) {
      try {
        return await start();
      } catch (error) {
        if (!(error instanceof ConnectionLostError && error.sent)) throw error;
      }
      try {
        return await ask();
      } catch (error) {
        if (error instanceof NotFoundError) await this.refresh(); // throws if it has gone with its sandbox
        else if (!(error instanceof ConnectionLostError && error.sent)) throw error;
      }
    }
  }

  /**
   * Starts a command: iterate over its output, write to it, or wait for it. What keeps it from running is thrown there,
   * and by Process.started.
   */
  exec(command: Command, options: ExecOptions = {}): Process {
    const { stdin, terminal, signal } = options;
    const params = { ...this.#params(command, options), ...(typeof stdin === "boolean" ? {} : input(stdin)) };
    if (terminal) params.pty = terminal === true ? { rows: 24, cols: 80 } : terminal;
    return this.#start(params, signal, !terminal && !stdin);
  }

  #start(params: ExecParams, signal: AbortSignal | undefined, close: boolean): Process {
    const exec = params.exec;
    const start = async () => {
      signal?.throwIfAborted();
      await this.#insist(() => this.client.call("exec.start", params), () => this.client.rpc.exec.get({ exec }));
      if (close) await this.client.rpc.exec.close_stdin({ exec }).catch(ended);
    };
    return new Process(this.client, exec, start(), signal);
  }

  #params(command: Command, { env, cwd, user, timeout, options }: CommandOptions): ExecParams {
    const what = typeof command === "string" ? { command } : { argv: [...command] };
    return { sandbox: this.id, exec: `ex_${unique()}`, ...what, env, cwd, user, timeout_s: timeout, ...options };
  }

  /** What it is now. */
  async refresh(): Promise<t.Sandbox> {
    return this.record = await this.client.rpc.sandbox.get({ sandbox: this.id });
  }

  /** Removes it, with its processes and files. */
  async remove(): Promise<void> {
    this.client.link.disown(this.id);
    await this.client.rpc.sandbox.remove({ sandbox: this.id });
    this.#detached = true;
  }

  /** Ends all of its processes, and with them itself; the record stays until it is removed. */
  async kill(): Promise<void> {
    await this.client.rpc.sandbox.kill({ sandbox: this.id });
  }

  async pause(): Promise<void> {
    this.record = await this.client.rpc.sandbox.pause({ sandbox: this.id });
  }

  async resume(): Promise<void> {
    this.record = await this.client.rpc.sandbox.resume({ sandbox: this.id });
  }

  /** Ends its processes and keeps its files, also over the end of this program, until start or remove. */
  async stop(options: { timeout?: number } = {}): Promise<void> {
    this.client.link.disown(this.id);
    await this.client.rpc.sandbox.stop({ sandbox: this.id, timeout_s: options.timeout });
    this.#detached = true;
  }

  /** Makes one that was stopped run again. */
  async start(): Promise<void> {
    await this.client.rpc.sandbox.start({ sandbox: this.id });
    await this.refresh();
  }

  /**
   * Sandboxes that go on from the files of this one, each for itself. They stay until they are removed, or until the
   * end of a block under `await using`.
   */
  async fork(count = 1): Promise<Sandbox[]> {
    const { sandboxes } = await this.client.rpc.sandbox.fork({ sandbox: this.id, count });
    return sandboxes.map((record) => new Sandbox(this.client, record, false));
  }

  /** Keeps what its files are now. Processes are not in it. */
  async snapshot(name?: string): Promise<t.Snapshot> {
    return this.client.rpc.snapshot.create({ sandbox: this.id, name });
  }

  /** Gives it the files of a snapshot that was taken of it; its processes end. */
  async restore(snapshot: string): Promise<void> {
    const { snapshots } = await this.client.rpc.snapshot.list({ sandbox: this.id });
    if (!snapshots.some(({ id, name }) => snapshot === id || snapshot === name)) {
      throw new NotFoundError(`there is no snapshot ${JSON.stringify(snapshot)} of the sandbox ${this.id}`,
        { op: "restore", hint: "fork goes on from another's: client.rpc.sandbox.fork({ snapshot })" });
    }
    await this.client.rpc.snapshot.restore({ snapshot });
  }

  /**
   * Takes back what the last call of code.run or of a tool did to its files, or all since a call. It must have been
   * made with undo; its processes end.
   */
  async undo(toCall?: string): Promise<void> {
    await this.client.rpc.checkpoint.restore({ sandbox: this.id, to_call: toCall });
  }

  /** What it uses. */
  async stats(): Promise<t.Stats> {
    return this.client.rpc.sandbox.stats({ sandbox: this.id });
  }

  /** What it was refused so far, each with why, and with what would allow it. */
  async why(): Promise<t.Denial[]> {
    return (await this.client.rpc.network.get({ sandbox: this.id })).denials;
  }

  /** Lets it reach more names, such as "pypi.org" and "*.example.com:8443". */
  async allow(...names: string[]): Promise<void> {
    await this.client.rpc.network.update({ sandbox: this.id, add: { allow: names } });
  }

  /** Lets it live so many seconds from now on; 0 is no end. */
  async extend(ttl: number): Promise<void> {
    await this.client.rpc.sandbox.update({ sandbox: this.id, ttl_s: ttl });
  }
}

type ExecParams = Partial<t.ExecRunParams> & { exec: string };

/** Removes what was made after all although its maker had given up. One of a scope may be somebody else's, too. */
function remover(client: Client, params: Partial<t.Spec>): (late: t.Sandbox) => void {
  return (late) => {
    if (!params.scope) client.rpc.sandbox.remove({ sandbox: late.id }).catch(() => {});
  };
}

function input(stdin: string | Uint8Array | undefined): Partial<t.ExecRunParams> {
  if (stdin === undefined) return {};
  const { data, encoding } = pack(stdin);
  return encoding === "utf-8" ? { stdin: data } : { stdin: data, encoding };
}

/** A command that has ended already needs no end of its input. */
function ended(error: unknown): void {
  if (!(error instanceof FailedPreconditionError)) throw error;
}
