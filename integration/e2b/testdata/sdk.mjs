// The same as the scripts in Python, by the SDK for JavaScript. Argument: which of them.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import e2b from "e2b";
const { Sandbox, CommandExitError, TimeoutError, NotFoundError, FileType, FilesystemEventType, AuthenticationError } = e2b;
const has = (sb, name) => typeof sb[name] === "function";

// event waits for something that is told by a callback.
function events() {
  const seen = [];
  let wake = () => {};
  return {
    add: (e) => { seen.push(e); wake(); },
    seen,
    until: (f) => new Promise((resolve, reject) => {
      const late = setTimeout(() => reject(new Error("not told: " + f + ": " + JSON.stringify(seen))), 20000);
      wake = () => { if (f(seen)) { clearTimeout(late); resolve(); } };
      wake();
    }),
  };
}

async function smoke() {
  const sb = await Sandbox.create({ timeoutMs: 60000, allowInternetAccess: false });
  await sb.files.write("x", "there");
  assert.equal((await sb.commands.run("cat x")).stdout, "there");
  await sb.kill();
}

async function sandboxes() {
  const sb = await Sandbox.create({ timeoutMs: 120000, metadata: { team: "a b&c=d" }, envs: { GREETING: "hello" } });
  assert(await sb.isRunning());
  const info = await sb.getInfo();
  assert.equal(info.sandboxId, sb.sandboxId);
  assert.equal(info.templateId, "base");
  assert.deepEqual(info.metadata, { team: "a b&c=d" });
  assert.equal((await sb.commands.run("echo $GREETING; pwd")).stdout, "hello\n/home/user\n");
  await sb.setTimeout(600000);
  assert((await sb.getInfo()).endAt - Date.now() > 590000);
  const again = await Sandbox.connect(sb.sandboxId);
  await again.files.write("/tmp/x", "there");
  assert.equal(await sb.files.read("/tmp/x"), "there");
  const others = await Promise.all([1, 2, 3].map(() => Sandbox.create({ timeoutMs: 60000, metadata: { team: "js" } })));
  const p = Sandbox.list({ query: { metadata: { team: "js" }, state: ["running"] }, limit: 2 });
  const found = [];
  let pages = 0;
  while (p.hasNext) { found.push(...(await p.nextItems()).map((s) => s.sandboxId)); pages++; }
  assert.equal(pages, 2);
  assert.deepEqual(found.sort(), others.map((s) => s.sandboxId).sort());
  const q = Sandbox.list({ query: { metadata: { team: "a b&c=d" } } });
  assert.deepEqual((await q.nextItems()).map((s) => s.sandboxId), [sb.sandboxId]);
  await Promise.all(others.map((s) => s.kill()));
  await sb.kill();
  assert(!(await sb.isRunning()));
  await assert.rejects(Sandbox.connect(sb.sandboxId), NotFoundError);
  await assert.rejects(sb.commands.run("true"), /not running|not found/);
  await assert.rejects(Sandbox.create("no-such-template"), /not found/);
  await assert.rejects(Sandbox.create({ apiKey: "e2b_" + "0".repeat(32) }), AuthenticationError);
}

async function commands() {
  const sb = await Sandbox.create({ timeoutMs: 300000 });
  const out = [];
  const r = await sb.commands.run("echo out; echo err >&2", { onStdout: (s) => { out.push(s); } });
  assert.deepEqual([r.stdout, r.stderr, r.exitCode, out.join("")], ["out\n", "err\n", 0, "out\n"]);
  await assert.rejects(sb.commands.run("exit 7"), (e) => e instanceof CommandExitError && e.exitCode === 7);
  assert.equal((await sb.commands.run("echo $A; pwd", { envs: { A: "b" }, cwd: "/tmp" })).stdout, "b\n/tmp\n");
  await assert.rejects(sb.commands.run("sleep 60", { timeoutMs: 1000 }), TimeoutError);
  const told = events();
  const h = await sb.commands.run("while read x; do echo got $x; done; echo end", { background: true, stdin: true, onStdout: told.add });
  assert((await sb.commands.list()).some((p) => p.pid === h.pid));
  await sb.commands.sendStdin(h.pid, "one\n");
  await told.until((seen) => seen.join("").includes("got one"));
  const again = await sb.commands.connect(h.pid);
  await sb.commands.sendStdin(h.pid, "two\n");
  if (has(sb.commands, "closeStdin")) {
    await sb.commands.closeStdin(h.pid);
    assert.equal((await again.wait()).stdout, "got two\nend\n");
  } else await again.kill();
  const k = await sb.commands.run("exec sleep 1000", { background: true });
  assert(await sb.commands.kill(k.pid));
  await assert.rejects(k.wait(), CommandExitError);
  assert(!(await sb.commands.kill(k.pid)));
  const tty = events();
  const text = (seen) => Buffer.concat(seen).toString();
  const t = await sb.pty.create({ rows: 20, cols: 77, onData: (d) => tty.add(Buffer.from(d)) });
  await sb.pty.sendInput(t.pid, new TextEncoder().encode("stty size\n"));
  await tty.until((seen) => text(seen).includes("20 77"));
  await sb.pty.resize(t.pid, { rows: 30, cols: 99 });
  await sb.pty.sendInput(t.pid, new TextEncoder().encode("stty size\n"));
  await tty.until((seen) => text(seen).includes("30 99"));
  await sb.pty.kill(t.pid);
  await sb.kill();
}

async function files() {
  const sb = await Sandbox.create({ timeoutMs: 300000 });
  const f = sb.files;
  const w = await f.write("notes/a \"b\".txt", "text \u00e4");
  assert.equal(w.path, "/home/user/notes/a \"b\".txt");
  assert.equal(await f.read("notes/a \"b\".txt"), "text \u00e4");
  const blob = new Uint8Array(2_000_000).map((_, i) => i);
  await f.write("/tmp/blob", blob.buffer);
  assert.deepEqual(await f.read("/tmp/blob", { format: "bytes" }), blob);
  const many = await f.write([1, 2].map((i) => ({ path: "/tmp/m/" + i, data: String(i) })));
  assert.deepEqual(many.map((m) => m.path), ["/tmp/m/1", "/tmp/m/2"]);
  assert.deepEqual((await f.list("/tmp/m")).map((e) => [e.name, e.type]), [["1", FileType.FILE], ["2", FileType.FILE]]);
  assert(await f.makeDir("/tmp/d/e"));
  assert(!(await f.makeDir("/tmp/d/e")));
  assert.equal((await f.getInfo("/tmp/m/1")).size, 1);
  await f.rename("/tmp/m/1", "/tmp/new/1");
  assert(await f.exists("/tmp/new/1"));
  await f.remove("/tmp/new");
  assert(!(await f.exists("/tmp/new/1")));
  await assert.rejects(f.read("/tmp/nothing"), NotFoundError);
  const told = events();
  const h = await f.watchDir("/tmp/d", told.add);
  await f.write("/tmp/d/x", "1");
  await told.until((seen) => seen.some((e) => e.name === "x" && e.type === FilesystemEventType.WRITE));
  await f.remove("/tmp/d/x");
  await told.until((seen) => seen.some((e) => e.name === "x" && e.type === FilesystemEventType.REMOVE));
  await h.stop();
  await f.write("/tmp/signed me", "secret");
  assert.equal(await (await fetch(await sb.downloadUrl("/tmp/signed me"))).text(), "secret");
  const form = new FormData();
  form.append("file", new Blob(["up"]), "up");
  assert((await fetch(await sb.uploadUrl("/tmp/up"), { method: "POST", body: form })).ok);
  assert.equal(await f.read("/tmp/up"), "up");
  await sb.kill();
}

async function code() {
  const { Sandbox } = createRequire(import.meta.url)("@e2b/code-interpreter");
  const sb = await Sandbox.create({ timeoutMs: 300000 });
  const e = await sb.runCode("x = 41\nprint('out')\nx + 1");
  assert.deepEqual([e.text, e.logs.stdout.join(""), e.executionCount], ["42", "out\n", 1]);
  assert.equal((await sb.runCode("1/0")).error.name, "ZeroDivisionError");
  const html = await sb.runCode("class H:\n  def _repr_html_(self): return '<b>hi</b>'\nH()");
  assert.equal(html.results[0].html, "<b>hi</b>");
  const c = await sb.createCodeContext({ cwd: "/tmp" });
  assert.equal((await sb.runCode("import os; os.getcwd()", { context: c })).text, "/tmp");
  assert((await sb.listCodeContexts()).some((k) => k.id === c.id));
  await sb.restartCodeContext(c);
  await sb.removeCodeContext(c);
  assert(!(await sb.listCodeContexts()).some((k) => k.id === c.id));
  await sb.kill();
}

async function state() {
  const sb = await Sandbox.create({ timeoutMs: 120000 });
  const h = await sb.commands.run("exec sleep 1000", { background: true });
  await sb.files.write("/tmp/kept", "kept");
  await (has(sb, "pause") ? sb.pause() : sb.betaPause());
  assert(!(await sb.isRunning()));
  assert.equal((await sb.getInfo()).state, "paused");
  const again = await Sandbox.connect(sb.sandboxId);
  assert((await again.commands.list()).some((p) => p.pid === h.pid));
  if (has(again, "createSnapshot")) {
    const snap = await again.createSnapshot();
    await again.files.write("/tmp/kept", "changed");
    const of = await Sandbox.create(snap.snapshotId);
    assert.equal(await of.files.read("/tmp/kept"), "kept");
    await of.kill();
    assert(await Sandbox.deleteSnapshot(snap.snapshotId));
  }
  assert.equal((await again.getMetrics()).length, 1);
  await again.kill();
  const off = await Sandbox.create({ timeoutMs: 60000, allowInternetAccess: false });
  if (has(off, "updateNetwork")) await off.updateNetwork({ allowOut: ["example.com"], denyOut: ["0.0.0.0/0"] });
  await off.kill();
}

await { smoke, sandboxes, commands, files, code, state }[process.argv[2]]();
console.log("ok");
