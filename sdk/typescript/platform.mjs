/**
 * Makes the package that carries hutch's binaries for this kind of machine, of those in the folder BIN:
 * `node platform.mjs FOLDER BIN`. The package itself names it as an optional dependency.
 */
import { cpSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const [folder, from] = process.argv.slice(2);
const { version, license, repository } = JSON.parse(readFileSync(join(here, "package.json"), "utf8"));
const names = ["hutch", "hutchd", "hutch-launch", "hutch-init", "hutch-netd", "hutch-mcp", "hutch-web", "hutch-scan"];

mkdirSync(join(folder, "bin"), { recursive: true });
for (const name of names) cpSync(join(from, name), join(folder, "bin", name));
cpSync(join(here, "..", "..", "LICENSE"), join(folder, "LICENSE"));
writeFileSync(join(folder, "package.json"), `${JSON.stringify({
  name: `@hutch-sh/linux-${process.arch}`,
  version,
  description: `hutch's binaries for Linux on ${process.arch}, for @hutch-sh/sdk`,
  license,
  repository,
  os: ["linux"],
  cpu: [process.arch],
  files: ["bin"],
}, undefined, 2)}\n`);
