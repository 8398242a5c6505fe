/** Errors. What the daemon refuses is a subclass of HutchError by its code, with a hint about what to do. */

import type { ExecutionResult } from "./results.js";

/** What is known of an error beside its message. */
export interface ErrorDetails {
  op?: string;
  hint?: string;
  field?: string;
  code?: string;
  cause?: unknown;
}

/**
 * A call that failed. code is the daemon's (docs/rpc.md, "Errors"), op what was tried, reason why it failed, hint what
 * to do about it, and field the param at fault, where there is one. message has all of them.
 */
export class HutchError extends Error {
  readonly code: string;
  readonly reason: string;
  readonly op: string;
  readonly hint: string;
  readonly field: string;

  constructor(reason: string, details: ErrorDetails = {}) {
    const { op = "", hint = "", field = "", code = "internal", cause } = details;
    const said = op && !reason.startsWith(op) ? `${op}: ${reason}` : reason;
    super(hint ? `${said}\n  hint: ${hint}` : said, cause === undefined ? undefined : { cause });
    this.name = new.target.name;
    this.code = code;
    this.reason = reason;
    this.op = op;
    this.hint = hint;
    this.field = field;
  }
}

export class NotFoundError extends HutchError {
  constructor(reason: string, details: ErrorDetails = {}) {
    super(reason, { ...details, code: "not_found" });
  }
}

export class AlreadyExistsError extends HutchError {
  constructor(reason: string, details: ErrorDetails = {}) {
    super(reason, { ...details, code: "already_exists" });
  }
}

export class InvalidArgumentError extends HutchError {
  constructor(reason: string, details: ErrorDetails = {}) {
    super(reason, { ...details, code: "invalid_argument" });
  }
}

export class FailedPreconditionError extends HutchError {
  constructor(reason: string, details: ErrorDetails = {}) {
    super(reason, { ...details, code: "failed_precondition" });
  }
}

export class PermissionDeniedError extends HutchError {
  constructor(reason: string, details: ErrorDetails = {}) {
    super(reason, { ...details, code: "permission_denied" });
  }
}

export class ResourceExhaustedError extends HutchError {
  constructor(reason: string, details: ErrorDetails = {}) {
    super(reason, { ...details, code: "resource_exhausted" });
  }
}

export class DeadlineExceededError extends HutchError {
  constructor(reason: string, details: ErrorDetails = {}) {
    super(reason, { ...details, code: "deadline_exceeded" });
  }
}

export class UnavailableError extends HutchError {
  constructor(reason: string, details: ErrorDetails = {}) {
    super(reason, { ...details, code: "unavailable" });
  }
}

export class UnimplementedError extends HutchError {
  constructor(reason: string, details: ErrorDetails = {}) {
    super(reason, { ...details, code: "unimplemented" });
  }
}

export class CanceledError extends HutchError {
  constructor(reason: string, details: ErrorDetails = {}) {
    super(reason, { ...details, code: "canceled" });
  }
}

/** The daemon closed the connection. sent says whether it may have got the request: if not, nothing was done. */
export class ConnectionLostError extends UnavailableError {
  constructor(reason: string, readonly sent: boolean, details: ErrorDetails = {}) {
    super(reason, details);
  }
}

/** A command that failed, where check was asked for. result is what became of it. */
export class CommandError extends HutchError {
  constructor(readonly result: ExecutionResult) {
    const last = (text: string) => text.trim().split("\n").pop();
    const said = last(result.stderr) || last(result.stdout);
    const what = result.signal ? `signal ${result.signal}` : `exit code ${result.exitCode}`;
    super(`the command failed: ${what}, verdict ${result.verdict}${said ? `: ${said}` : ""}`,
      { code: "command", hint: result.hint });
  }
}

const byCode = new Map<string, new (reason: string, details: ErrorDetails) => HutchError>([
  ["not_found", NotFoundError],
  ["already_exists", AlreadyExistsError],
  ["invalid_argument", InvalidArgumentError],
  ["failed_precondition", FailedPreconditionError],
  ["permission_denied", PermissionDeniedError],
  ["resource_exhausted", ResourceExhaustedError],
  ["deadline_exceeded", DeadlineExceededError],
  ["unavailable", UnavailableError],
  ["unimplemented", UnimplementedError],
  ["canceled", CanceledError],
]);

/** JSON-RPC's own errors, which have no code by name. */
const byNumber = new Map([[-32601, "unimplemented"], [-32602, "invalid_argument"], [-32600, "invalid_argument"]]);

/** What the wire has of an error. */
export interface WireError {
  code?: number;
  message?: string;
  data?: { code?: string; op?: string; hint?: string; field?: string };
}

/** The error of a code. */
export function withCode(code: string, reason: string, details: ErrorDetails): HutchError {
  const kind = byCode.get(code);
  return kind ? new kind(reason, details) : new HutchError(reason, { ...details, code });
}

/** The error for the error member of a response. */
export function fromWire(error: WireError, method: string): HutchError {
  const { code, op, hint, field } = error.data ?? {};
  return withCode(code ?? byNumber.get(error.code ?? 0) ?? "internal", error.message ?? "",
    { op: op || method, hint, field });
}
