/** Sandboxes of root's with folders of this machine. */

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
  const { workspace, mounts = [], image, template, ...rest } = spec(config);
  const folders = workspace ? [`--workspace=${workspace.path}:${workspace.mode}`] : [];
  for (const m of mounts) folders.push(`--volume=${m.source ?? m.volume}:${m.target}:${m.mode}`);
  const said = await find.hutch(["create", "--json", ...flags(rest), ...folders, image ?? `template:${template}`],
    client.link.environment());
  if (said.code !== 0) throw new HutchError(said.stderr, { op: "create" });
  const record = JSON.parse(said.stdout) as t.Sandbox;
  if (!detached) client.link.removeAtExit(record.id);
  return record;
}

/** The params of sandbox.create as flags of hutch create. */
function flags(params: Partial<t.Spec>): string[] {
  const { limits = {}, network, env = {}, labels = {}, undo, ...rest } = params;
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
    timeout: [timeout_s], network: [mode], env: pairs(env), label: pairs(labels), allow, block,
    "allow-cidr": allow_cidrs, "block-cidr": block_cidrs,
  };
  const given = Object.entries(all).flatMap(([flag, values]) =>
    values.filter((value) => value !== undefined).map((value) => `--${flag}=${value}`));
  return undo ? ["--undo", ...given] : given;
}
