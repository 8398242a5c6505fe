/** What a sandbox is to be. */

import { resolve } from "node:path";

import { InvalidArgumentError } from "./errors.js";
import type * as t from "./types.js";

/**
 * What a sandbox is made of. At most one of image and template counts; without any it is the image "host": the programs
 * of this machine, read-only.
 */
export interface SandboxConfig {
  /** such as "python:3.12" */
  image?: string;
  template?: string;
  /** unique among living sandboxes */
  name?: string;
  /** a folder of this machine that it works on, at /workspace */
  workspace?: string;
  /** overlay, the default, keeps what it changes there until workspace.apply */
  workspaceMode?: "overlay" | "ro" | "rw";
  /** folders of hutch's own, which outlive it, by where they are mounted: { "/data": "name" } */
  volumes?: Record<string, string>;
  /** further folders of this machine (docs/rpc.md, "type Mount") */
  mounts?: t.Mount[];
  env?: Record<string, string>;
  workdir?: string;
  user?: string;
  labels?: Record<string, string>;
  cpus?: number;
  /** bytes, or "2g" */
  memory?: number | string;
  /** bytes, or "10g" */
  disk?: number | string;
  /** how many processes */
  pids?: number;
  /** of each command, in seconds */
  timeout?: number;
  /** how long it lives, in seconds */
  ttl?: number;
  /** how long it may have nothing to do, in seconds */
  idle?: number;
  /** the names that it may reach; without any it reaches nothing */
  allow?: string[];
  /** names that it may not reach, while it may reach all others */
  block?: string[];
  /** a whole policy, or its mode */
  network?: t.NetPolicy | t.NetPolicy["mode"];
  /** whether calls of tools and of code.run can be taken back */
  undo?: boolean;
  /** further params of sandbox.create (docs/rpc.md) */
  options?: Partial<t.Spec>;
}

/** The usual limits of a hosted product: Sandbox.create({ ...hosted, image }). A pool for it has limit: 10 at once. */
export const hosted: SandboxConfig = { cpus: 2, memory: "4g", disk: "10g", ttl: 3600 };

/** The names of a config. What is misspelt must not be left out in silence: it may be a wall. */
const known = new Set(["image", "template", "name", "workspace", "workspaceMode", "volumes", "mounts", "env", "workdir",
  "user", "labels", "cpus", "memory", "disk", "pids", "timeout", "ttl", "idle", "allow", "block", "network", "undo",
  "options"]);

/** A number of bytes: 1048576, "512m" and "2g" (powers of 1024, as the command line has them). */
function size(value: number | string | undefined, field: string): number | undefined {
  if (typeof value !== "string") return value;
  const m = /^\s*(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?\s*$/i.exec(value);
  if (!m) {
    throw new InvalidArgumentError(`${field} ${JSON.stringify(value)} is no size`,
      { op: "create", field, hint: 'try "512m" or "2g"' });
  }
  return Math.floor(Number(m[1]) * 1024 ** ["", "k", "m", "g", "t"].indexOf(m[2]!.toLowerCase()));
}

/** Whether folders of this machine are wanted. */
export function wantsFolders(config: SandboxConfig): boolean {
  return config.workspace !== undefined || (config.mounts ?? []).some((m) => m.source);
}

/** The params of sandbox.create. */
export function spec(config: SandboxConfig): Partial<t.Spec> {
  for (const field of Object.keys(config)) {
    if (!known.has(field)) {
      throw new InvalidArgumentError(`there is no option ${JSON.stringify(field)}`,
        { op: "create", field, hint: `there are ${[...known].join(", ")}` });
    }
  }
  const mounts = [...(config.mounts ?? []), ...volumes(config.volumes ?? {})];
  return pruned({
    image: config.image || (config.template ? undefined : "host"), template: config.template, name: config.name,
    env: config.env, workdir: config.workdir, user: config.user, labels: config.labels, ttl_s: config.ttl,
    idle_s: config.idle, undo: config.undo,
    limits: pruned({
      cpus: config.cpus, pids: config.pids, timeout_s: config.timeout, memory_bytes: size(config.memory, "memory"),
      disk_bytes: size(config.disk, "disk"),
    }),
    network: network(config),
    mounts: mounts.length > 0 ? mounts : undefined,
    workspace: config.workspace === undefined ? undefined
      : { path: resolve(config.workspace), mode: config.workspaceMode ?? "overlay" },
    ...config.options,
  });
}

function volumes(named: Record<string, string>): t.Mount[] {
  return Object.entries(named).map(([target, volume]) => ({ volume, target, mode: "rw" }));
}

function network(config: SandboxConfig): t.NetPolicy | undefined {
  const { allow = [], block = [] } = config;
  for (const [field, names] of Object.entries({ allow, block })) {
    if (!Array.isArray(names)) {
      throw new InvalidArgumentError(`${field} is a list of names`, { op: "create", field, hint: 'try ["pypi.org"]' });
    }
  }
  const given = typeof config.network === "string" ? { mode: config.network } : config.network;
  if (!given && allow.length + block.length === 0) return undefined;
  return pruned({
    mode: allow.length > 0 ? "allow" as const : block.length > 0 ? "open" as const : undefined,
    ...given,
    allow: joined(given?.allow, allow),
    block: joined(given?.block, block),
  }) as t.NetPolicy;
}

function joined(some: string[] | undefined, more: string[]): string[] | undefined {
  return more.length > 0 ? [...(some ?? []), ...more] : some;
}

/** An object without the members that are undefined or have no members themselves. */
function pruned<T extends object>(object: T): T {
  const kept = Object.entries(object).filter(([, value]) => value !== undefined && !isEmpty(value));
  return Object.fromEntries(kept) as T;
}

function isEmpty(value: unknown): boolean {
  return typeof value === "object" && value !== null && !Array.isArray(value) && Object.keys(value).length === 0;
}
