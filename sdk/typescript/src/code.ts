/** Code in a sandbox. */

import type { Client } from "./client.js";
import { CodeResult } from "./results.js";
import type * as t from "./types.js";

export interface CodeOptions {
  /** "python" by default */
  language?: string;
  /** which interpreter: variables and imports persist in one */
  context?: string;
  /** runs it in an interpreter of its own */
  fresh?: boolean;
  /** seconds, 30 by default */
  timeout?: number;
  env?: Record<string, string>;
  cwd?: string;
  user?: string;
  allowedImports?: string[];
  signal?: AbortSignal;
  /** gets what it writes as it comes, up to 64 KiB; the result has it as without */
  onStdout?: (text: string) => void;
  onStderr?: (text: string) => void;
}

/** Runs code in an interpreter that is kept for the next run. */
export class Code {
  #client: Client;
  #sandbox: string;

  constructor(client: Client, sandbox: string) {
    this.#client = client;
    this.#sandbox = sandbox;
  }

  /**
   * Runs a piece of code. What it raises is in the result, as are the value of its last expression, figures and tables.
   */
  async run(code: string, options: CodeOptions = {}): Promise<CodeResult> {
    const { timeout: timeout_s, allowedImports: allowed_imports, signal, language = "python", onStdout, onStderr,
      ...rest } = options;
    const onProgress = onStdout || onStderr ? ({ kind, stream, text = "" }: t.ProgressNotification) => {
      if (kind === "code.output") (stream === "stdout" ? onStdout : onStderr)?.(text);
    } : undefined;
    return new CodeResult(await this.#client.rpc.code.run(
      { sandbox: this.#sandbox, code, language, timeout_s, allowed_imports, ...rest }, { signal, onProgress }));
  }

  /** The interpreters that are kept. */
  async contexts(): Promise<t.CodeContext[]> {
    return (await this.#client.rpc.code.contexts({ sandbox: this.#sandbox })).contexts;
  }

  /** Ends an interpreter: the next run of this context begins anew. */
  async endContext(context: string, language = "python"): Promise<void> {
    await this.#client.rpc.code.end_context({ sandbox: this.#sandbox, context, language });
  }
}
