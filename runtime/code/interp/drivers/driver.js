// hutch: runs pieces of code that come on stdin, a JSON object a line, in one context. What the code writes goes to stdout
// and stderr as it is; behind it come the token that only hutchd and this process know, and on stdout what became of it.
(() => {
  const vm = require('vm'), util = require('util'), path = require('path'), { createRequire } = require('module');
  const token = process.argv[process.argv.length - 1], { stdin, stdout, stderr } = process;
  const isolated = process.argv.length > 2; // modules of the folder are none of the code's
  process.argv.splice(1);
  globalThis.require = createRequire(path.join(isolated ? '/' : process.cwd(), 'code.js'));
  const most = 4 << 20; // bytes of a text
  let interrupt = null; // ends the run under way
  let found = [];

  const artifact = (mime, data) => {
    const text = Buffer.isBuffer(data) ? data.toString('base64') : String(data);
    const size = Buffer.byteLength(data);
    found.push({ kind: 'value', mime_type: mime, size, data: size <= most ? text : '' });
  };
  globalThis.display = (value, mime) => {
    if (mime) artifact(mime, value);
    else console.log(value);
  };

  const evaluate = async (request) => {
    const options = { filename: `<code ${request.id}>`, breakOnSigint: true };
    if (vm.constants) options.importModuleDynamically = vm.constants.USE_MAIN_CONTEXT_DEFAULT_LOADER;
    try {
      return await vm.runInThisContext(request.code, options);
    } catch (e) {
      if (!(e instanceof SyntaxError) || !/\bawait\b/.test(request.code)) throw e;
    }
    return await vm.runInThisContext(`(async () => {${request.code}\n})()`, options);
  };

  const describe = (e) => {
    if (!(e instanceof Error) && !(e && e.stack)) return { name: 'Error', value: util.inspect(e).slice(0, 65536) };
    const lines = String(e.stack).split('\n').filter((l) => !/\[eval\]|node:|at process\.processTicks/.test(l));
    return { name: String(e.name), value: String(e.message).slice(0, 65536), traceback: lines.join('\n').slice(0, 65536) };
  };

  const run = async (request) => {
    const answer = { id: request.id };
    found = [];
    try {
      const stopped = new Promise((_, reject) => { interrupt = reject; });
      const value = await Promise.race([evaluate(request), stopped]);
      if (value !== undefined) answer.text = (typeof value === 'string' ? util.inspect(value) : util.inspect(value, { depth: 4, maxArrayLength: 200 })).slice(0, most);
    } catch (e) {
      answer.error = describe(e);
    }
    interrupt = null;
    answer.artifacts = found.slice(0, 50);
    await new Promise((done) => stderr.write(`\x1e${token}${request.id}\n`, done));
    await new Promise((done) => stdout.write(`\x1e${token}${JSON.stringify(answer)}\n`, done));
  };

  const raise = (e) => {
    if (interrupt) interrupt(e);
    else console.error(e);
  };
  process.on('uncaughtException', raise);
  process.on('unhandledRejection', raise);
  process.on('SIGINT', () => raise(Object.assign(new Error('interrupted'), { name: 'Interrupted' })));

  let rest = '', turn = Promise.resolve();
  stdin.setEncoding('utf8');
  stdin.on('data', (text) => {
    const lines = (rest + text).split('\n');
    rest = lines.pop();
    for (const line of lines) turn = turn.then(() => run(JSON.parse(line)));
  });
  stdin.on('end', () => turn.then(() => process.exit(0)));
})();
