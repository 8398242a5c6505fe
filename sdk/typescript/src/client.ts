/** The client: one daemon, over one connection that is made again when it is lost. */

import type { CallOptions, Connection, LateOption, Sink } from "./connection.js";
import { ConnectionLostError } from "./errors.js";
import { Link, type LinkOptions } from "./link.js";
import { Mailbox } from "./mailbox.js";
import { Rpc } from "./rpc.js";
import type * as t from "./types.js";

/** EVENTS is how many events may wait for their reader. */
const EVENTS = 256;

/** Which daemon a client talks to. */
export interface ClientOptions {
  /** path of another daemon's socket than that of the user's shared one */
  socket?: string;
  /** a daemon of this program's own, which ends with the client */
  private?: boolean;
  /** for a daemon whose configuration names tokens; by default HUTCH_TOKEN's, or that of the file HUTCH_TOKEN_FILE */
  token?: string;
  /** the file that a private daemon's log goes to; by default nowhere */
  log?: string;
}

/** What notifications come from. */
interface Following {
  connection: Connection;
  id: string;
}

/** Which events are wanted: from now on, or from an event on. */
export interface EventOptions {
  kinds?: t.EventNotification["kind"][];
  sandbox?: string;
  fromSeq?: number;
  /** false ends when what had happened before has come */
  follow?: boolean;
  signal?: AbortSignal;
}

/**
 * A daemon. Without options it is the user's shared one, which the hutch command talks to as well, and which is started
 * where none runs.
 *
 * It connects at the first call, and again when the connection was lost; sandboxes that live as long as the connection
 * are kept over the death of a shared daemon. A client that nobody waits for does not keep the program running.
 */
export class Client implements AsyncDisposable {
  /** every method of the daemon */
  readonly rpc: Rpc;
  /** @internal */
  readonly link: Link;

  constructor(options: ClientOptions = {}) {
    this.rpc = new Rpc((method, params, options) => this.call(method, params, options));
    this.link = new Link(options as LinkOptions);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** Connects now, and not at the first call, so that what is wrong is known here. */
  async connect(): Promise<void> {
    await this.link.connect();
  }

  /** Ends the connection: sandboxes that are not detached are removed. A private daemon has ended on return. */
  async close(): Promise<void> {
    await this.link.close();
  }

  /** Calls a method by its name (docs/rpc.md). Params that are undefined are left out. */
  async call(method: string, params: object = {}, options: CallOptions & LateOption = {}): Promise<any> {
    const connection = await this.link.connect();
    try {
      return await connection.call(method, params, options);
    } catch (error) {
      if (!(error instanceof ConnectionLostError) || error.sent) throw error;
    }
    return (await this.link.connect()).call(method, params, options); // nothing was sent
  }

  /** What happens. It goes on after the death of the daemon, without a gap. */
  async *events(options: EventOptions = {}): AsyncGenerator<t.EventNotification, void, void> {
    const { kinds, sandbox, follow, signal } = options;
    let from_seq = options.fromSeq;
    for (;;) {
      const box = new Mailbox<Parameters<Sink>[0]>();
      const { connection, id } = await this.follow("events.subscribe",
        { kinds, sandbox, from_seq, follow, credit: EVENTS }, "subscription", (item) => box.put(item));
      const abort = () => box.put({ lost: "aborted" });
      signal?.addEventListener("abort", abort);
      try {
        for (let owed = 0; ;) {
          signal?.throwIfAborted();
          const item = await box.get();
          if ("lost" in item) break;
          if (item.method === "events.end") return;
          const event = item.params as unknown as t.EventNotification;
          from_seq = event.seq + 1;
          yield event;
          if (++owed >= EVENTS / 2) {
            connection.tell("events.credit", { subscription: id, events: owed });
            owed = 0;
          }
        }
        signal?.throwIfAborted();
      } finally {
        signal?.removeEventListener("abort", abort);
        connection.forget(id);
        if (!connection.lost) connection.tell("events.unsubscribe", { subscription: id });
      }
    }
  }

  /**
   * Calls a method whose result has, as member, the id that notifications carry, which go to sink from then on.
   * @internal
   */
  async follow(method: string, params: object, member: string, sink: Sink): Promise<Following> {
    const connection = await this.link.connect();
    const result = await connection.call(method, params, { onResult: (r) => connection.listen(r[member], sink) });
    return { connection, id: result[member] };
  }

  /** The sandboxes that there are, also those that others have made. */
  async list(labels?: Record<string, string>): Promise<t.Sandbox[]> {
    return (await this.rpc.sandbox.list({ labels })).sandboxes;
  }
}

let common: Client | undefined;

/** The client of all sandboxes whose maker names none. */
export function shared(): Client {
  if (!common || common.link.closed) common = new Client();
  return common;
}
