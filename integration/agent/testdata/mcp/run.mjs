// Starts the conformance suite with its arguments. One of its commands, which no test uses, imports fs.globSync, and Node has that
// from version 22 on: an older one gets one that fails.
import fs from 'node:fs';
import { register } from 'node:module';
import { pathToFileURL } from 'node:url';

const hooks = `
export async function resolve(name, context, next) {
  return name === 'fs' ? { url: 'hutch:fs', format: 'module', shortCircuit: true } : next(name, context);
}
export async function load(url, context, next) {
  return url === 'hutch:fs' ? { format: 'module', shortCircuit: true, source: ${JSON.stringify(`
    export * from 'node:fs';
    export { default } from 'node:fs';
    export function globSync() { throw new Error('fs.globSync: needs Node 22'); }`)} } : next(url, context);
}`;
if (!fs.globSync) register('data:text/javascript,' + encodeURIComponent(hooks));
const [suite, ...args] = process.argv.slice(2);
process.argv = [process.argv[0], suite, ...args];
await import(pathToFileURL(suite));
