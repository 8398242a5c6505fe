/** Sandboxes that wait for whoever asks. */

import { type Client, shared } from "./client.js";
import { type SandboxConfig, spec } from "./config.js";
import { DeadlineExceededError, NotFoundError, ResourceExhaustedError } from "./errors.js";
import { unique } from "./ids.js";
import { Sandbox } from "./sandbox.js";
import type * as t from "./types.js";

/** A config without what belongs to one user of a sandbox, and how the pool is. */
export interface PoolOptions extends Omit<SandboxConfig, "name" | "workspace" | "workspaceMode" | "mounts"> {
  /** how many wait, 2 by default */
  size?: number;
  /** the pool's */
  name?: string;
  /** how many may be in use at once; by default any number */
  limit?: number;
  client?: Client;
}

/** A pool of sandboxes that are ready. Under `await using` it is removed with those that wait. */
export class SandboxPool implements AsyncDisposable {
  readonly client: Client;
  readonly name: string;
  readonly limit: number;

  private constructor(client: Client, name: string, limit: number) {
    this.client = client;
    this.name = name;
    this.limit = limit;
  }

  /** Makes a pool; it returns when the first sandbox waits. */
  static async create(options: PoolOptions = {}): Promise<SandboxPool> {
    const { size = 2, name = `pool-${unique()}`, limit = Infinity, client = shared(), ...config } = options;
    await client.rpc.pool.create({ name, size, sandbox: spec(config) as t.Spec });
    return new SandboxPool(client, name, limit);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.remove();
  }

  /** Takes a sandbox, which is removed at the end of its block or by release. It waits for at most timeout seconds. */
  async acquire(options: { timeout?: number; name?: string; signal?: AbortSignal } = {}): Promise<Sandbox> {
    const { timeout = 30, name, signal } = options;
    if (this.limit !== Infinity && (await this.status()).in_use >= this.limit) {
      throw new ResourceExhaustedError(`all ${this.limit} sandboxes of the pool ${this.name} are in use`,
        { op: "acquire", hint: "release one first" });
    }
    const record: t.Sandbox | null = await this.client.rpc.pool.acquire(
      { pool: this.name, wait_ms: timeout * 1000, name, owner: "connection" }, { signal });
    if (!record) {
      throw new DeadlineExceededError(`no sandbox of the pool ${this.name} was ready within ${timeout} s`,
        { op: "acquire", hint: "make the pool larger" });
    }
    return Sandbox.owned(this.client, record);
  }

  /** Destroys a sandbox that was acquired: nobody gets it again. */
  async release(sandbox: Sandbox): Promise<void> {
    await sandbox.remove();
  }

  /** How it is filled. */
  async status(): Promise<t.Pool> {
    return this.client.rpc.pool.status({ pool: this.name });
  }

  async resize(size: number): Promise<void> {
    await this.client.rpc.pool.resize({ pool: this.name, size });
  }

  /** Removes it with the sandboxes that wait; those in use stay. */
  async remove(): Promise<void> {
    try {
      await this.client.rpc.pool.remove({ pool: this.name });
    } catch (error) {
      if (!(error instanceof NotFoundError)) throw error;
    }
  }
}
