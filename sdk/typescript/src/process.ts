/** A command that runs in a sandbox. */

import type { Client } from "./client.js";
import type { Notice } from "./connection.js";
import { ConnectionLostError } from "./errors.js";
import { Mailbox } from "./mailbox.js";
import { ExecutionResult, Output, pack, unpack } from "./results.js";
import type * as t from "./types.js";

/** WINDOW is how many bytes of output may be on their way or wait for their reader. */
const WINDOW = 4 << 20;

/** PIECE is how much of stdin goes in one call, in bytes. */
const PIECE = 1 << 20;

/**
 * A command that was started and may still run. Iterating gives its output as it comes, and ends with it; wait returns
 * its result. Under `await using` it is killed at the end of the block, if it still runs.
 */
export class Process implements AsyncIterable<Output>, AsyncDisposable {
  readonly id: string;
  #client: Client;
  #started: Promise<unknown>;
  #signal: AbortSignal | undefined;
  #next = { stdout: 0, stderr: 0 }; // of the first bytes that the reader has not got
  #over = false;

  /** One that there is, by its id. */
  constructor(client: Client, id: string, started: Promise<unknown> = Promise.resolve(), signal?: AbortSignal) {
    this.id = id;
    this.#client = client;
    this.#started = started;
    this.#signal = signal;
    signal?.addEventListener("abort", this.#abort);
    started.catch(() => this.#end()); // whoever uses it is told
  }

  #abort = () => void this.kill().catch(() => {});

  #end(): void {
    this.#over = true;
    this.#signal?.removeEventListener("abort", this.#abort);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#started.catch(() => {});
    if (!this.#over) await this.kill();
  }

  /** Returns when it runs, or throws what keeps it from running. */
  async started(): Promise<this> {
    await this.#started;
    return this;
  }

  /**
   * The output, from where the last iteration ended. A reader that is slower than the command does not hold it up: what
   * it falls too far behind of is dropped, and dropped of the next piece counts it. It goes on after the death of the
   * daemon, without a gap.
   */
  async *[Symbol.asyncIterator](): AsyncGenerator<Output, void, void> {
    await this.#started;
    while (!this.#over) {
      const box = new Mailbox<Notice>();
      const { connection, id } = await this.#client.follow("exec.attach",
        { exec: this.id, from: this.#next, credit_bytes: WINDOW, encoding: "base64" }, "attachment",
        (item) => box.put(item));
      try {
        for (let owed = 0; ;) {
          const item = await box.get();
          if ("lost" in item) break;
          if (item.method === "exec.exited") {
            this.#end();
            break;
          }
          const output = outputOf(item.params as unknown as t.ExecOutputNotification);
          this.#next[output.stream] = output.offset + output.data.length;
          yield output;
          owed += output.data.length;
          if (owed >= WINDOW / 2) {
            connection.tell("exec.credit", { exec: this.id, attachment: id, bytes: owed });
            owed = 0;
          }
        }
      } finally {
        connection.forget(id);
        if (!this.#over && !connection.lost) connection.tell("exec.detach", { exec: this.id, attachment: id });
      }
    }
    this.#signal?.throwIfAborted();
  }

  /** Hands out the output as text, until the command has ended. */
  async copy(onStdout?: (text: string) => void, onStderr?: (text: string) => void): Promise<void> {
    const take = { stdout: onStdout, stderr: onStderr };
    const decoder = { stdout: new TextDecoder(), stderr: new TextDecoder() };
    for await (const { stream, data } of this) {
      const text = decoder[stream].decode(data, { stream: true });
      if (text) take[stream]?.(text);
    }
    for (const stream of ["stdout", "stderr"] as const) {
      const text = decoder[stream].decode();
      if (text) take[stream]?.(text);
    }
  }

  /** Its result, when it has ended. After timeout seconds it throws DeadlineExceededError; the command goes on. */
  async wait(options: { timeout?: number; check?: boolean } = {}): Promise<ExecutionResult> {
    await this.#started;
    const result = new ExecutionResult(await this.#wait(options.timeout));
    this.#end();
    this.#signal?.throwIfAborted();
    return options.check ? result.check() : result;
  }

  async #wait(wait_s: number | undefined): Promise<t.ExecResult> {
    for (;;) {
      try {
        return await this.#client.rpc.exec.wait({ exec: this.id, wait_s });
      } catch (error) {
        if (!(error instanceof ConnectionLostError && error.sent)) throw error;
      }
    }
  }

  /** What the daemon knows of it. */
  async info(): Promise<t.Exec> {
    await this.#started;
    return this.#client.rpc.exec.get({ exec: this.id });
  }

  /** Writes to its stdin, or types into its terminal. It returns when all of it is in the pipe. */
  async write(data: string | Uint8Array): Promise<void> {
    await this.#started;
    const bytes = typeof data === "string" ? new TextEncoder().encode(data) : data;
    for (let start = 0; start < bytes.length; start += PIECE) {
      await this.#client.rpc.exec.write({ exec: this.id, ...pack(bytes.subarray(start, start + PIECE)) });
    }
  }

  async closeStdin(): Promise<void> {
    await this.#started;
    await this.#client.rpc.exec.close_stdin({ exec: this.id });
  }

  /** Sends it a signal, such as "TERM". */
  async signal(name: string): Promise<void> {
    await this.#started;
    await this.#client.rpc.exec.signal({ exec: this.id, signal: name });
  }

  /** Kills it and everything that it has started. */
  async kill(): Promise<void> {
    await this.#started;
    await this.#client.rpc.exec.kill({ exec: this.id });
  }

  /** Gives its terminal another size. */
  async resize(rows: number, cols: number): Promise<void> {
    await this.#started;
    await this.#client.rpc.exec.resize({ exec: this.id, rows, cols });
  }
}

function outputOf(n: t.ExecOutputNotification): Output {
  return new Output(n.stream, unpack(n.data, n.encoding), n.offset, n.dropped ?? 0);
}
