/** Sandboxes of root's with folders of this machine. */

import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import type { Client } from "./client.js";
import { type SandboxConfig, spec } from "./config.js";
import { HutchError, InvalidArgumentError } from "./errors.js";
import * as find from "./find.js";
import type * as t from "./types.js";

/**
 * Makes one by the command line. Root's daemon has no right to root's folders: the command maps their owners and hands
 * them over as file descriptors, which Node cannot.
 */
export async function createAsRoot(client: Client, config: SandboxConfig, detached: boolean): Promise<t.Sandbox> {
  const { workspace, mounts = [], image, template, env = {}, ...rest } = spec(config);
  if (image?.startsWith("-")) {
    throw new InvalidArgumentError(`${JSON.stringify(image)} is no image`, { op: "create", field: "image" });
  }
  const folders = workspace ? [`--workspace=${workspace.path}:${workspace.mode}`] : [];
  for (const m of mounts) folders.push(`--volume=${m.source ?? m.volume}:${m.target}:${m.mode}`);
  const said = await withFile(env, (file) => find.hutch(["create", "--json", ...file, ...flags(rest), ...folders,
    image ?? `template:${template}`], client.link.environment()));
  if (said.code !== 0) throw new HutchError(said.stderr, { op: "create" });
  const record = JSON.parse(said.stdout) as t.Sandbox;
  if (!detached) client.link.removeAtExit(record.id);
  return record;
}

/** Calls fn with the flag of a file that has env, which is gone afterwards: other users see arguments. */
async function withFile<T>(env: Record<string, string>, fn: (flag: string[]) => Promise<T>): Promise<T> {
  const all = Object.entries(env);
  if (all.length === 0) return fn([]);
  for (const [name, value] of all) {
    if (/[\n=]/.test(name) || value.includes("\n")) {
      throw new InvalidArgumentError(`env ${JSON.stringify(name)} cannot be handed to root's sandbox with folders`,
        { op: "create", field: "env", hint: "give values of one line, or write a file into the sandbox" });
    }
  }
  const folder = await mkdtemp(join(tmpdir(), "hutch-env-")); // mode 0700
  try {
    await writeFile(join(folder, "env"), all.map(([name, value]) => `${name}=${value}\n`).join(""), { mode: 0o600 });
    return await fn([`--env-file=${join(folder, "env")}`]);
  } finally {
    await rm(folder, { recursive: true });
  }
}

/** The params of sandbox.create as flags of hutch create. */
function flags(params: Partial<t.Spec>): string[] {
  const { limits = {}, network, labels = {}, undo, ...rest } = params;
  const { cpus, memory_bytes, disk_bytes, pids, timeout_s, ...restLimits } = limits;
  const { mode, allow = [], block = [], allow_cidrs = [], block_cidrs = [], ...restNetwork } = network ?? {};
  const { name, workdir, user, hostname, ttl_s, idle_s, seccomp, ...others } = rest;
  const unknown = Object.keys({ ...others, ...restLimits, ...restNetwork }).sort();
  if (unknown.length > 0) {
    throw new InvalidArgumentError(`${unknown.join(", ")} cannot be combined with folders of root's`,
      { op: "create", hint: "run as an ordinary user, or leave them out" });
  }
  const pairs = (map: Record<string, string>) => Object.entries(map).map(([key, value]) => `${key}=${value}`);
  const all: Record<string, unknown[]> = {
    name: [name], workdir: [workdir], user: [user], hostname: [hostname], ttl: [ttl_s], idle: [idle_s],
    seccomp: [seccomp], cpus: [cpus], memory: [memory_bytes], disk: [disk_bytes], "pids-limit": [pids],
    timeout: [timeout_s], network: [mode], label: pairs(labels), allow, block,
    "allow-cidr": allow_cidrs, "block-cidr": block_cidrs,
  };
  const given = Object.entries(all).flatMap(([flag, values]) =>
    values.filter((value) => value !== undefined).map((value) => `--${flag}=${value}`));
  return undo ? ["--undo", ...given] : given;
}
