/** The way to one daemon: a connection that is made at the first call, and again when it was lost. */

import { type ChildProcess, spawn } from "node:child_process";

import { Connection } from "./connection.js";
import { ConnectionLostError, HutchError, InvalidArgumentError } from "./errors.js";
import * as find from "./find.js";

/** LEASE_WAIT is how long a private daemon may take, in milliseconds, to remove its sandboxes (runtime/client). */
const LEASE_WAIT = 30_000;

export interface LinkOptions {
  socket?: string;
  private?: boolean;
  token?: string;
  log?: string;
}

export class Link {
  /** the sandboxes that live as long as the connection does, which its successor claims */
  readonly owned = new Set<string>();
  /** those that nothing but this program's end removes */
  readonly #orphans = new Set<string>();
  closed = false;
  #options: LinkOptions;
  #connection: Connection | undefined;
  #connecting: Promise<Connection> | undefined;
  #daemon: ChildProcess | undefined;
  #exited: Promise<void> | undefined;

  constructor(options: LinkOptions) {
    this.#options = options;
  }

  /** The connection, which is made if there is none. It may take as long as a daemon takes to start. */
  connect(): Promise<Connection> {
    if (this.#connection && !this.#connection.lost) return Promise.resolve(this.#connection);
    this.#connecting ??= this.#open().finally(() => { this.#connecting = undefined; });
    return this.#connecting;
  }

  /** Ends the connection; a private daemon has ended on return. */
  async close(): Promise<void> {
    this.closed = true;
    await this.#connecting?.catch(() => {});
    this.#connection?.close();
    if (!this.#daemon) return;
    this.#daemon.ref();
    const late = setTimeout(() => this.#daemon?.kill("SIGKILL"), LEASE_WAIT);
    await this.#exited;
    clearTimeout(late);
  }

  /** Leaves a sandbox to whoever wants it, or to nobody. */
  disown(sandbox: string): void {
    this.owned.delete(sandbox);
    this.#orphans.delete(sandbox);
  }

  /** Removes a sandbox that belongs to no connection when the program ends. */
  removeAtExit(sandbox: string): void {
    if (this.#orphans.size === 0) process.once("exit", () => this.#removeOrphans());
    this.#orphans.add(sandbox);
  }

  /** Who exits cannot wait: the command goes on by itself. */
  #removeOrphans(): void {
    if (this.#orphans.size === 0) return;
    const env = { ...process.env, ...this.environment() };
    spawn(find.binary(), ["rm", "--force", ...this.#orphans], { env, stdio: "ignore", detached: true }).unref();
  }

  /** The daemon is this program's own. */
  get private(): boolean {
    return this.#options.private ?? false;
  }

  /** What makes the hutch command talk to the same daemon. */
  environment(): Record<string, string> {
    if (this.#options.private) {
      throw new InvalidArgumentError("a private daemon cannot take this folder of the host's",
        { op: "connect", hint: "use the shared daemon, or upload and download files one by one" });
    }
    const { socket = find.socketPath(), token } = this.#options;
    return { HUTCH_SOCKET: socket, ...(token ? { HUTCH_TOKEN: token } : {}) };
  }

  async #open(): Promise<Connection> {
    if (this.closed || (this.#options.private && this.#connection)) {
      throw new ConnectionLostError(this.closed ? "the client is closed" : "the private daemon has ended", false,
        { op: "connect", hint: "make another client" });
    }
    const connection = new Connection(await this.#socket(), () => this.#lost());
    try {
      const token = this.#options.token ?? find.token();
      if (token) await connection.call("system.authenticate", { token });
      await this.#claim(connection);
    } catch (error) {
      connection.close();
      throw error;
    }
    this.#connection = connection;
    return connection;
  }

  async #socket() {
    if (!this.#options.private) {
      const path = this.#options.socket ?? find.socketPath();
      return (await find.dial(path)) ?? (await find.startShared(path, this.#options.token));
    }
    const { socket, daemon } = await find.startPrivate(this.#options.log);
    this.#daemon = daemon;
    this.#exited = new Promise((resolve) => daemon.once("exit", () => resolve()));
    return socket;
  }

  /** Connects again at once where sandboxes hang on it: the next daemon waits ten seconds for them to be claimed. */
  #lost(): void {
    if (this.owned.size === 0 || this.closed || this.#options.private) return;
    this.connect().catch(() => {}); // the next call says so
  }

  /**
   * Ties the sandboxes of the connection that was lost to its successor. Those that are gone say so when they are used.
   */
  async #claim(connection: Connection): Promise<void> {
    await Promise.all([...this.owned].map(async (sandbox) => {
      try {
        await connection.call("sandbox.claim", { sandbox });
      } catch (error) {
        if (error instanceof ConnectionLostError || !(error instanceof HutchError)) throw error;
        this.owned.delete(sandbox);
      }
    }));
  }
}
