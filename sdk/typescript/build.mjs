/**
 * Builds the package into the folder FOLDER of `node build.mjs FOLDER`, by default this one: once for import, once for
 * require. The compiler is found in this folder's node_modules or in that which HUTCH_NODE_MODULES names.
 */
import { spawnSync } from "node:child_process";
import { cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const folder = resolve(process.argv[2] ?? here);
const modules = resolve(process.env.HUTCH_NODE_MODULES ?? join(here, "node_modules"));

/** Node takes a file for what the package.json nearest to it says. */
const kinds = { esm: ["ESNext", "module"], cjs: ["CommonJS", "commonjs"] };

rmSync(join(folder, "dist"), { recursive: true, force: true });
for (const [name, [module, type]] of Object.entries(kinds)) {
  const out = join(folder, "dist", name);
  const compiler = spawnSync(process.execPath, [join(modules, "typescript", "bin", "tsc"), "-p", here, "--outDir", out,
    "--module", module, "--typeRoots", join(modules, "@types")], { stdio: "inherit" });
  if (compiler.status !== 0) process.exit(compiler.status ?? 1);
  mkdirSync(out, { recursive: true });
  writeFileSync(join(out, "package.json"), `${JSON.stringify({ type })}\n`);
  writeFileSync(join(out, "here.js"), type === "module" ?
    "export const here = import.meta.url;\n" : "exports.here = __filename;\n");
}
if (folder !== here) {
  const { devDependencies, scripts, ...rest } = JSON.parse(readFileSync(join(here, "package.json"), "utf8"));
  // Who installs it on one of these gets hutch as well. npm leaves out what is for other machines.
  rest.optionalDependencies = { "@hutch-sh/linux-arm64": rest.version, "@hutch-sh/linux-x64": rest.version };
  writeFileSync(join(folder, "package.json"), `${JSON.stringify(rest, undefined, 2)}\n`);
  cpSync(join(here, "README.md"), join(folder, "README.md"));
}
cpSync(join(here, "..", "..", "LICENSE"), join(folder, "LICENSE"));
