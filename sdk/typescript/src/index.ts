/**
 * hutch runs what nobody has read yet: rootless sandboxes for AI agents on this machine.
 *
 *     import { Sandbox } from "@hutch-sh/sdk";
 *
 *     await using sandbox = await Sandbox.create({ image: "python:3.12" });
 *     console.log((await sandbox.run("echo hello")).stdout);
 *
 * @module
 */

import "./dispose.js";

export { Client, type ClientOptions, type EventOptions } from "./client.js";
export { Code, type CodeOptions } from "./code.js";
export { hosted, type SandboxConfig } from "./config.js";
export type { CallOptions, LateOption } from "./connection.js";
export {
  AlreadyExistsError, CanceledError, CommandError, ConnectionLostError, DeadlineExceededError, type ErrorDetails,
  FailedPreconditionError, HutchError, InvalidArgumentError, NotFoundError, PermissionDeniedError, ResourceExhaustedError, UnavailableError,
  UnimplementedError,
} from "./errors.js";
export { type Content, Files, type UserOption, type WriteOptions } from "./files.js";
export { type PathsOption, Ports, Workspace } from "./parts.js";
export { type PoolOptions, SandboxPool } from "./pool.js";
export { Process } from "./process.js";
export { type Artifact, CodeResult, ExecutionResult, Output } from "./results.js";
export type { Rpc } from "./rpc.js";
export { type Command, type ExecOptions, type RunOptions, Sandbox, type SandboxOptions } from "./sandbox.js";
/** What the daemon takes and returns, by the protocol's own names (docs/rpc.md). */
export type * as types from "./types.js";
