/** One connection to hutchd: JSON-RPC 2.0, one value a line (docs/rpc.md). Calls do not wait for each other. */

import type { Socket } from "node:net";

import { ConnectionLostError, fromWire, InvalidArgumentError, type WireError } from "./errors.js";
import type { ProgressNotification } from "./types.js";

/** MAX_LINE is the longest request in bytes. */
const MAX_LINE = 4 << 20;

/** Takes notifications of an attachment or subscription, and, once, that the connection was lost. */
export type Sink = (item: Notice) => void;

/** A notification with the name of its method, or the loss of the connection. */
export type Notice = { method: string; params: Record<string, unknown> } | { lost: string };

/** How a call is made. */
export interface CallOptions {
  /** Cancels the call, and what it has started, and rejects its promise with the signal's reason. */
  signal?: AbortSignal;
  onProgress?: (news: ProgressNotification) => void;
}

/** What is done about a call that was cancelled too late. */
export interface LateOption {
  /** gets the result */
  onLate?: (result: any) => void;
}

interface InnerOptions extends CallOptions, LateOption {
  /** gets the result before any line after it is looked at */
  onResult?: (result: any) => void;
}

interface Call {
  method: string;
  options: InnerOptions;
  resolve: (result: any) => void;
  reject: (error: unknown) => void;
}

export class Connection {
  #socket: Socket;
  #calls = new Map<number, Call>();
  #sinks = new Map<string, Sink>();
  #next = 0;
  #rest: Buffer[] = [];
  #why = "";
  #onLost: () => void;

  constructor(socket: Socket, onLost: () => void = () => {}) {
    this.#socket = socket;
    this.#onLost = onLost;
    socket.on("data", (piece: Buffer) => this.#read(piece));
    socket.on("error", (error) => this.#lose(`the connection to the daemon failed: ${error.message}`));
    socket.on("end", () => this.#lose("the daemon closed the connection"));
    socket.on("close", () => this.#fail("the daemon closed the connection"));
    this.#hold();
  }

  get lost(): boolean {
    return this.#why !== "";
  }

  /** Sends a request and returns the result. Params that are undefined are left out. */
  call(method: string, params: object, options: InnerOptions = {}): Promise<any> {
    return new Promise((resolve, reject) => {
      options.signal?.throwIfAborted();
      if (this.lost) throw new ConnectionLostError(this.#why, false, { op: method });
      const id = ++this.#next;
      const asked = options.onProgress ? { ...params, progress: true } : params;
      const line = encode({ jsonrpc: "2.0", id, method, params: asked });
      const abort = () => this.#cancel(id, options.signal?.reason);
      const over = () => options.signal?.removeEventListener("abort", abort);
      this.#calls.set(id, {
        method, options,
        resolve: (result) => { over(); resolve(result); },
        reject: (error) => { over(); reject(error); },
      });
      options.signal?.addEventListener("abort", abort);
      this.#hold();
      // A line that was not taken whole is none to the daemon.
      this.#socket.write(line, (error) => {
        if (!error) return;
        this.#lose(`the connection to the daemon failed: ${error.message}`);
        this.#take(id)?.reject(new ConnectionLostError(this.#why, false, { op: method, cause: error }));
      });
    });
  }

  /** Sends a request whose answer nobody needs. */
  tell(method: string, params: object): void {
    this.call(method, params).catch(() => {});
  }

  /** Hands the notifications of an attachment or subscription to sink. */
  listen(id: string, sink: Sink): void {
    if (this.lost) return sink({ lost: this.#why });
    this.#sinks.set(id, sink);
    this.#hold();
  }

  forget(id: string): void {
    this.#sinks.delete(id);
    this.#hold();
  }

  /** Ends the connection, and with it what the daemon runs for its calls. */
  close(): void {
    this.#fail("the connection is closed");
  }

  /** Keeps the program running while somebody waits for the daemon, and no longer. */
  #hold(): void {
    if (this.#calls.size + this.#sinks.size > 0) this.#socket.ref();
    else this.#socket.unref();
  }

  #take(id: number): Call | undefined {
    const call = this.#calls.get(id);
    this.#calls.delete(id);
    this.#hold();
    return call;
  }

  /** Tells the daemon that nobody wants a result. What the call has started ends. */
  #cancel(id: number, reason: unknown): void {
    const call = this.#calls.get(id);
    if (!call) return;
    call.reject(reason);
    call.resolve = (result) => call.options.onLate?.(result);
    call.reject = () => {};
    call.options = { onLate: call.options.onLate };
    this.#socket.write(encode({ jsonrpc: "2.0", method: "rpc.cancel", params: { id } }));
  }

  #read(piece: Buffer): void {
    let start = 0;
    for (let end; (end = piece.indexOf(10, start)) >= 0; start = end + 1) {
      this.#rest.push(piece.subarray(start, end));
      const line = Buffer.concat(this.#rest).toString("utf8");
      this.#rest = [];
      try {
        this.#dispatch(JSON.parse(line));
      } catch (error) {
        return this.#fail(`the daemon sent a line that is no JSON-RPC message: ${error}`);
      }
    }
    if (start < piece.length) this.#rest.push(piece.subarray(start));
  }

  #dispatch(message: any): void {
    if (message.method !== undefined) return this.#notify(message.method, message.params);
    const call = this.#take(message.id);
    if (!call) return;
    if (message.error) return call.reject(fromWire(message.error as WireError, call.method));
    call.options.onResult?.(message.result);
    call.resolve(message.result);
  }

  #notify(method: string, params: any): void {
    if (method === "progress") {
      const news = this.#calls.get(params.request)?.options.onProgress;
      if (news) queueMicrotask(() => news(params)); // what the caller throws is not the connection's
      return;
    }
    this.#sinks.get(params.attachment ?? params.subscription)?.({ method, params });
  }

  /** Takes no more calls; those under way are over when the socket is closed. The first reason stays. */
  #lose(why: string): void {
    this.#why ||= why;
    this.#socket.destroy();
  }

  /** Ends the connection. */
  #fail(why: string): void {
    const calls = [...this.#calls.values()];
    const sinks = [...this.#sinks.values()];
    this.#calls.clear();
    this.#sinks.clear();
    this.#lose(why);
    for (const call of calls) call.reject(new ConnectionLostError(this.#why, true, { op: call.method }));
    for (const sink of sinks) sink({ lost: this.#why });
    const lost = this.#onLost;
    this.#onLost = () => {};
    lost();
  }
}

/** A message as a line. */
function encode(message: { jsonrpc: "2.0"; id?: number; method: string; params: object }): string {
  const op = message.method;
  let text: string;
  try {
    text = JSON.stringify(message);
  } catch (error) {
    throw new InvalidArgumentError(`the params cannot be sent as JSON: ${error}`, { op, cause: error });
  }
  // JSON.stringify escapes halves of surrogate pairs and no whole ones. The daemon would take them for U+FFFD.
  if (text.includes("\\ud") && /(?<!\\)(?:\\\\)*\\ud[89a-f]/.test(text)) {
    throw new InvalidArgumentError("a text has half a surrogate pair, which UTF-8 cannot express",
      { op, hint: "pass bytes as a Uint8Array" });
  }
  const bytes = Buffer.byteLength(text) + 1;
  if (bytes > MAX_LINE) {
    throw new InvalidArgumentError(`the request has ${bytes} bytes, at most ${MAX_LINE} are possible`,
      { op, hint: "write large files by files.write or files.upload, which send pieces" });
  }
  return text + "\n";
}
