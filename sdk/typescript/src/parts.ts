/** Further parts of a sandbox. */

import type { Client } from "./client.js";
import type * as t from "./types.js";

/** Servers in a sandbox, which programs of this machine reach. */
export class Ports {
  #client: Client;
  #sandbox: string;

  constructor(client: Client, sandbox: string) {
    this.#client = client;
    this.#sandbox = sandbox;
  }

  /**
   * Lets this machine connect to a TCP port in the sandbox, at the address of the result: by default a free port of
   * 127.0.0.1. With token only HTTP requests that have it pass; url has it.
   */
  async expose(port: number, options: { address?: string; token?: boolean } = {}): Promise<t.Port> {
    return this.#client.rpc.port.expose({ sandbox: this.#sandbox, port, ...options });
  }

  async list(): Promise<t.Port[]> {
    return (await this.#client.rpc.port.list({ sandbox: this.#sandbox })).ports;
  }

  /** Lets nobody connect any more. */
  async close(port: number): Promise<void> {
    await this.#client.rpc.port.close({ sandbox: this.#sandbox, port });
  }
}

/** Which changes are meant: paths in the workspace, each with all that is below it; without any, everything. */
export interface PathsOption {
  paths?: string[];
}

/** What a sandbox has changed in its workspace of mode overlay. */
export class Workspace {
  #client: Client;
  #sandbox: string;

  constructor(client: Client, sandbox: string) {
    this.#client = client;
    this.#sandbox = sandbox;
  }

  /** The changes, and with unified, the default, their text as git writes it. */
  async diff(options: PathsOption & { unified?: boolean } = {}): Promise<t.WorkspaceDiff> {
    return this.#client.rpc.workspace.diff({ sandbox: this.#sandbox, unified: true, ...options });
  }

  /**
   * Brings the changes into the folder. digest, of the diff that was looked at, keeps it from applying what came later;
   * force applies also what somebody else has changed in the folder meanwhile.
   */
  async apply(options: PathsOption & { digest?: string; force?: boolean } = {}): Promise<t.WorkspaceApplied> {
    return this.#client.rpc.workspace.apply({ sandbox: this.#sandbox, ...options });
  }

  /** Makes them as they are in the folder. */
  async discard(options: PathsOption = {}): Promise<t.WorkspaceDiscarded> {
    return this.#client.rpc.workspace.discard({ sandbox: this.#sandbox, ...options });
  }
}
