/** What commands and code give back. */

import { CommandError } from "./errors.js";
import type * as t from "./types.js";

/** A piece of a command's output. dropped counts the bytes before it that are lost: its reader was too slow. */
export class Output {
  constructor(
    readonly stream: "stdout" | "stderr",
    readonly data: Uint8Array,
    /** of data in its stream */
    readonly offset: number,
    readonly dropped: number,
  ) {}

  get text(): string {
    return decode(this.data);
  }
}

/**
 * How a command ended. verdict says why: ok, nonzero, signal, timeout_wall, timeout_cpu, oom, pids, disk, output,
 * denied, killed, not_run, sandbox, cancelled or lost. denials are what the sandbox refused meanwhile, each with what
 * would allow it.
 */
export class ExecutionResult {
  readonly stdout: string;
  readonly stderr: string;
  readonly stdoutBytes: Uint8Array;
  readonly stderrBytes: Uint8Array;
  readonly exitCode: number;
  readonly timedOut: boolean;
  readonly verdict: t.ExecResult["verdict"];
  /** such as "SIGKILL"; exitCode is then 128+n */
  readonly signal: string;
  readonly durationMs: number;
  /** the middle of a stream is missing */
  readonly truncated: boolean;
  readonly denials: t.Denial[];
  readonly hint: string;
  readonly execId: string;
  /** all of the answer */
  readonly raw: t.ExecResult;

  constructor(raw: t.ExecResult) {
    this.stdoutBytes = unpack(raw.stdout, raw.stdout_encoding);
    this.stderrBytes = unpack(raw.stderr, raw.stderr_encoding);
    this.stdout = decode(this.stdoutBytes);
    this.stderr = decode(this.stderrBytes);
    this.exitCode = raw.exit_code;
    this.timedOut = raw.timed_out;
    this.verdict = raw.verdict;
    this.signal = raw.signal ?? "";
    this.durationMs = raw.duration_ms;
    this.truncated = raw.truncated;
    this.denials = raw.denials;
    this.hint = raw.hint || raw.error || "";
    this.execId = raw.exec;
    this.raw = raw;
  }

  get ok(): boolean {
    return this.verdict === "ok";
  }

  /** Throws CommandError if the command failed; else returns the result. */
  check(): this {
    if (!this.ok) throw new CommandError(this);
    return this;
  }
}

/**
 * Something that code has made besides text: kind is figure, value, table or file. data is empty where it was too
 * large, or is no image; path is that of a file in the sandbox.
 */
export interface Artifact {
  kind: string;
  mimeType: string;
  data: Uint8Array;
  path: string;
  size: number;
}

/** What became of a piece of code. text is the value of its last expression, error what it raised. */
export class CodeResult {
  readonly stdout: string;
  readonly stderr: string;
  readonly text: string;
  readonly error: t.CodeError | undefined;
  readonly artifacts: Artifact[];
  readonly verdict: t.CodeResult["verdict"];
  readonly exitCode: number;
  readonly timedOut: boolean;
  readonly durationMs: number;
  readonly denials: t.Denial[];
  readonly context: string;
  /** all of the answer */
  readonly raw: t.CodeResult;

  constructor(raw: t.CodeResult) {
    this.stdout = raw.stdout;
    this.stderr = raw.stderr;
    this.text = raw.text ?? "";
    this.error = raw.error ?? undefined;
    this.artifacts = raw.artifacts.map(artifact);
    this.verdict = raw.verdict;
    this.exitCode = raw.exit_code;
    this.timedOut = raw.timed_out;
    this.durationMs = raw.duration_ms;
    this.denials = raw.denials;
    this.context = raw.context ?? "";
    this.raw = raw;
  }

  get ok(): boolean {
    return this.verdict === "ok";
  }
}

function artifact(raw: t.Artifact): Artifact {
  const picture = raw.mime_type.startsWith("image/") && raw.mime_type !== "image/svg+xml";
  const data = unpack(raw.data ?? "", raw.kind === "file" || picture ? "base64" : "utf-8");
  return { kind: raw.kind, mimeType: raw.mime_type, data, path: raw.path ?? "", size: raw.size };
}

function decode(data: Uint8Array): string {
  return Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString("utf8");
}

/** The bytes of a member of the protocol that travels as encoding says. */
export function unpack(data: string, encoding: string): Uint8Array {
  return Buffer.from(data, encoding === "base64" ? "base64" : "utf8");
}

/** data, and how it travels. */
export function pack(data: string | Uint8Array): { data: string; encoding: "utf-8" | "base64" } {
  if (typeof data === "string") return { data, encoding: "utf-8" };
  return {
    data: Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString("base64"),
    encoding: "base64",
  };
}
