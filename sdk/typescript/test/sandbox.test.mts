/** The package against a real daemon. integration/sdk compiles and runs it, in each version of Node. */

import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { chmod, chown, mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { after, before, describe, it } from "node:test";

import * as hutch from "@hutch-sh/sdk";
import { Sandbox } from "@hutch-sh/sdk";

/** A limit that hutch has for ordinary users only where the machine has cgroups for them. */
const limited = process.geteuid?.() === 0 ? { memory: "512m" } : {};

describe("one sandbox for all", () => {
  let sandbox: Sandbox;
  before(async () => { sandbox = await Sandbox.create({ ...limited, timeout: 60, undo: true }); });
  after(async () => {
    await sandbox.remove();
    await assert.rejects(Sandbox.get(sandbox.id), hutch.NotFoundError);
  });

  it("runs", async () => {
    const res = await sandbox.run("echo out; echo err >&2; exit 3", { env: { A: "b" } });
    assert.deepEqual([res.stdout, res.stderr, res.exitCode, res.verdict, res.ok],
      ["out\n", "err\n", 3, "nonzero", false]);
    assert.equal((await sandbox.run(["printf", "%s", "$A"], { env: { A: "b" } })).stdout, "$A");
    assert.equal((await sandbox.run("cat", { stdin: "text" })).stdout, "text");
    const bytes = Uint8Array.of(0xff, 0);
    assert.deepEqual([...(await sandbox.run("cat", { stdin: bytes })).stdoutBytes], [...bytes]);
    assert.equal((await sandbox.run("pwd", { cwd: "/tmp" })).stdout, "/tmp\n");
    await assert.rejects(sandbox.run("echo why >&2; exit 4", { check: true }), (error) => {
      assert.ok(error instanceof hutch.CommandError && error instanceof hutch.HutchError);
      assert.equal(error.result.exitCode, 4);
      assert.match(error.message, /exit code 4.*why/);
      return true;
    });
    const many = await Promise.all(Array.from({ length: 16 }, (_, i) => sandbox.run(`echo ${i}`)));
    assert.deepEqual(many.map((r) => r.stdout), Array.from({ length: 16 }, (_, i) => `${i}\n`));
  });

  it("ends what takes too long", async () => {
    const res = await sandbox.run("sleep 600", { timeout: 0.3 });
    assert.deepEqual([res.timedOut, res.verdict], [true, "timeout_wall"]);
  });

  it("cancels", async () => {
    await sandbox.run("mkfifo /tmp/up", { check: true });
    const from_seq = (await sandbox.client.rpc.events.subscribe({ follow: false })).next_seq;
    for (const more of [{}, { onStdout: () => {} }]) {
      const stop = new AbortController();
      const command = sandbox.run("echo up >/tmp/up; exec sleep 600", { signal: stop.signal, ...more });
      assert.equal((await sandbox.run("cat /tmp/up")).stdout, "up\n");
      stop.abort(new Error("enough"));
      await assert.rejects(command, /^Error: enough$/);
    }
    const ended = new Set<string>();
    const events = sandbox.client.events({ sandbox: sandbox.id, kinds: ["exec.exited"], fromSeq: from_seq });
    for await (const event of events) {
      ended.add(event.data.verdict);
      if (ended.has("cancelled") && ended.has("killed")) break;
    }
    await assert.rejects(sandbox.run("true", { signal: AbortSignal.abort() }), { name: "AbortError" });
    await assert.rejects(sandbox.exec("true", { signal: AbortSignal.abort() }).wait(), { name: "AbortError" });
  });

  it("hands out output as it comes", async () => {
    let [out, err] = ["", ""];
    const res = await sandbox.run("printf 'a\\303'; printf '\\244b'; echo c >&2",
      { onStdout: (text) => { out += text; }, onStderr: (text) => { err += text; } });
    assert.deepEqual([out, err, res.exitCode], ["a\u00e4b", "c\n", 0]);
    const thrown = sandbox.run("echo up; exec sleep 600", { onStdout: () => { throw new Error("mine"); } });
    await assert.rejects(thrown, /^Error: mine$/);
  });

  it("streams", async () => {
    await using process = sandbox.exec("read line; echo got $line; read line; exit 7", { stdin: true });
    await process.write("one\n");
    for await (const piece of process) {
      assert.deepEqual([piece.text, piece.stream, piece.offset], ["got one\n", "stdout", 0]);
      break;
    }
    await process.write(new TextEncoder().encode("two\n"));
    for await (const piece of process) assert.fail(piece.text);
    assert.equal((await process.wait()).exitCode, 7);
  });

  it("streams much", async () => {
    const total = 20 << 20;
    let seen = 0;
    for await (const piece of sandbox.exec(`head -c ${total} /dev/zero`)) seen += piece.data.length + piece.dropped;
    assert.equal(seen, total);
  });

  it("kills and signals", async () => {
    const killed = await (async () => {
      await using process = sandbox.exec("echo up; exec sleep 600");
      for await (const piece of process) {
        assert.equal(piece.text, "up\n");
        break;
      }
      return process;
    })();
    assert.equal((await killed.wait()).verdict, "killed");
    const process = sandbox.exec("trap 'exit 5' TERM; echo up; while :; do sleep 0.01; done");
    for await (const piece of process) if (piece.text === "up\n") await process.signal("TERM");
    assert.equal((await process.wait({ timeout: 30 })).exitCode, 5);
    await assert.rejects(async () => {
      await using never = sandbox.exec("true", { cwd: "nowhere" });
      for await (const piece of never) assert.fail(piece.text);
    }, hutch.InvalidArgumentError);
    await using slow = await sandbox.exec("sleep 600").started();
    await assert.rejects(slow.wait({ timeout: 0.01 }), hutch.DeadlineExceededError);
  });

  it("has terminals", async () => {
    let text = "";
    for await (const piece of sandbox.exec("tty; stty size", { terminal: { rows: 33, cols: 77 } })) text += piece.text;
    assert.match(text, /\/dev\/pts\/.*33 77/s);
  });

  it("has files", async () => {
    const { files } = sandbox;
    await files.write("/tmp/d/a.txt", "h\u00e4llo\n", { mode: "0755" });
    assert.equal(await files.readText("/tmp/d/a.txt"), "h\u00e4llo\n");
    await files.write("/tmp/d/a.txt", new TextEncoder().encode("more"), { append: true });
    assert.equal(await files.readText("/tmp/d/a.txt"), "h\u00e4llo\nmore");
    assert.equal((await files.stat("/tmp/d/a.txt")).mode, "0755");
    assert.deepEqual((await files.list("/tmp/d")).map((f) => f.name), ["a.txt"]);
    await files.move("/tmp/d/a.txt", "/tmp/d/b.txt");
    assert.equal(await files.exists("/tmp/d/a.txt"), false);
    assert.equal(await files.remove("/tmp/d", { recursive: true }), 2);
    assert.equal(await files.remove("/tmp/d", { missingOk: true }), 0);
    assert.equal(await files.mkdir("/tmp/e/f"), true);
    assert.equal(await files.mkdir("/tmp/e/f"), false);
    assert.equal((await files.read("/proc/self/status")).length > 0, true);
    await assert.rejects(files.read("/tmp/nothing"), hutch.NotFoundError);
  });

  it("has large files", async () => {
    const { files } = sandbox;
    const data = randomBytes((5 << 20) + 5);
    await files.write("/tmp/large", data);
    assert.ok(data.equals(await files.read("/tmp/large")));
    const lines = "\u0001\u00e4".repeat(400_000);
    await files.write("/tmp/lines", "first");
    await files.write("/tmp/lines", lines, { append: true });
    assert.equal(await files.readText("/tmp/lines"), "first" + lines);
    const folder = await mkdtemp(join(tmpdir(), "hutch-ts-"));
    try {
      const local = join(folder, "local");
      await files.download("/tmp/large", local);
      assert.ok(data.equals(await readFile(local)));
      assert.equal((await stat(local)).mode & 0o777, 0o600);
      await files.upload(local, "/tmp/into/");
      assert.deepEqual([(await files.stat("/tmp/into/local")).size, (await files.stat("/tmp/into/local")).mode],
        [data.length, "0600"]);
      await assert.rejects(files.download("/tmp/nothing", local), hutch.NotFoundError);
      const huge = Buffer.concat([data, data]); // goes through a pipe
      await writeFile(local, huge, { mode: 0o600 });
      await files.upload(local, "/tmp/into/huge", { mode: "0640" });
      const { size, mode } = await files.stat("/tmp/into/huge");
      assert.deepEqual([size, mode], [huge.length, "0640"]);
      await files.download("/tmp/into/huge", local);
      assert.ok(huge.equals(await readFile(local)));
      await assert.rejects(files.upload(local, "/tmp/into/huge/x"),
        (e: unknown) => e instanceof hutch.HutchError && e.code !== "internal" && e.hint !== "");
      assert.deepEqual(await readdir(folder), [basename(local)]);
      await assert.rejects(files.download("/tmp/large", folder + "/"), hutch.InvalidArgumentError);
    } finally {
      await rm(folder, { recursive: true });
    }
    async function* broken() {
      yield randomBytes(3 << 20);
      throw new Error("broken");
    }
    await assert.rejects(files.write("/tmp/broken", broken()), /broken/);
  });

  it("copies folders", async () => {
    const { files } = sandbox;
    const folder = await mkdtemp(join(tmpdir(), "hutch-ts-"));
    try {
      await mkdir(join(folder, "in/sub"), { recursive: true });
      await writeFile(join(folder, "in/sub/b"), "text");
      await files.upload(join(folder, "in"), "/tmp/folders/");
      assert.equal(await files.readText("/tmp/folders/in/sub/b"), "text");
      await sandbox.run("cd /tmp/folders/in && ln -s /etc/passwd out && echo x >.envrc", { check: true });
      const left = await files.download("/tmp/folders/in", join(folder, "back"));
      assert.match(left.join("\n"), /links out of the folder.*: out\n.*\.envrc/s);
      assert.deepEqual(await readdir(join(folder, "back")), ["sub"]);
      await assert.rejects(files.upload(join(folder, "nothing"), "/tmp/folders/"), { code: "ENOENT" });
    } finally {
      await rm(folder, { recursive: true });
    }
  });

  it("runs code", async () => {
    const { code } = sandbox;
    assert.equal((await code.run("x = 6*7\nx")).text, "42");
    assert.equal((await code.run("print(x)")).stdout, "42\n");
    let [out, err] = ["", ""];
    const both = await code.run("import sys\nprint('out')\nprint('err', file=sys.stderr)",
      { onStdout: (text) => { out += text; }, onStderr: (text) => { err += text; } });
    assert.deepEqual([out, err, both.stdout, both.stderr], ["out\n", "err\n", "out\n", "err\n"]);
    const failed = await code.run("1/0");
    assert.deepEqual([failed.ok, failed.error?.name], [false, "ZeroDivisionError"]);
    const shown = await code.run(`
class Picture:
    def _repr_png_(self):
        return b'not really a png'
Picture()`);
    const picture = shown.artifacts.find((a) => a.mimeType === "image/png");
    assert.equal(new TextDecoder().decode(picture?.data), "not really a png");
    assert.ok((await code.contexts()).some((c) => c.context === "default"));
    await code.endContext("default");
    assert.equal((await code.run("x")).error?.name, "NameError");
  });

  it("says what it refused", async () => {
    const connect = "import socket; socket.create_connection(('192.0.2.7', 443), 5)";
    assert.equal((await sandbox.run(["python3", "-c", connect])).ok, false);
    const denied = (await sandbox.why()).find((d) => d.kind === "net"); // which address it was, eBPF tells
    assert.match(denied?.how_to_allow ?? "", /--allow/, JSON.stringify(await sandbox.why()));
  });

  it("is made of an image by its name", async () => {
    await using named = await Sandbox.create("host", { ...limited, labels: { named: "yes" } });
    assert.deepEqual([named.record.image, named.record.labels?.named], ["host", "yes"]);
  });

  it("has errors that say what to do", async () => {
    await assert.rejects(Sandbox.create("nothing:here", { memory: "much" }), { field: "memory" });
    await assert.rejects(Sandbox.create({ memory: "much" }), { name: "InvalidArgumentError", field: "memory" });
    await assert.rejects(Sandbox.create({ allow: "pypi.org" as never }), hutch.InvalidArgumentError);
    await assert.rejects(Sandbox.create({ blok: ["x"] } as never), /no option "blok"/);
    await assert.rejects(Sandbox.create({ options: { nonsense: 1 } as never }), /nonsense/);
    await assert.rejects(sandbox.run("echo \ud800"), /surrogate/);
    assert.equal((await sandbox.run(["echo", "\\ud800 \\\\ud800"])).stdout, "\\ud800 \\\\ud800\n");
    await assert.rejects(sandbox.run("true", { stdin: "x".repeat(5 << 20) }), hutch.InvalidArgumentError);
    await assert.rejects(sandbox.client.call("no.such"), hutch.UnimplementedError);
    await assert.rejects(Sandbox.get("nobody"), (error) => {
      assert.ok(error instanceof hutch.NotFoundError);
      assert.ok(error.code === "not_found" && error.hint && error.message.includes(error.hint));
      return true;
    });
    assert.equal((await sandbox.run("echo still here")).stdout, "still here\n");
  });
});

describe("lives", () => {
  it("ends with its block", async () => {
    {
      await using sandbox = await Sandbox.create({ name: "ts-using" });
      assert.equal(sandbox.name, "ts-using");
      assert.ok((await Sandbox.list()).some((s) => s.id === sandbox.id));
    }
    await assert.rejects(Sandbox.get("ts-using"), hutch.NotFoundError);
  });

  it("forks and goes back", async () => {
    await using sandbox = await Sandbox.create();
    await sandbox.files.write("/tmp/state", "one");
    const kept = await sandbox.snapshot();
    await sandbox.files.write("/tmp/state", "two");
    for (const fork of await sandbox.fork(2)) {
      await using one = fork;
      assert.equal(await one.files.readText("/tmp/state"), "two");
      await assert.rejects(one.restore(kept.id), hutch.NotFoundError);
    }
    await sandbox.restore(kept.id);
    assert.equal(await sandbox.files.readText("/tmp/state"), "one");
    await sandbox.client.rpc.snapshot.remove({ snapshot: kept.id });
  });

  it("stops and starts", async () => {
    await using sandbox = await Sandbox.create();
    await sandbox.files.write("/tmp/state", "kept");
    await sandbox.stop();
    assert.equal((await sandbox.refresh()).state, "stopped");
    await sandbox.start();
    assert.equal(await sandbox.files.readText("/tmp/state"), "kept");
    await sandbox.remove();
  });

  it("pauses", async () => {
    await using sandbox = await Sandbox.create();
    await sandbox.pause();
    assert.equal(sandbox.record.state, "paused");
    await sandbox.resume();
    assert.equal((await sandbox.run("echo on")).stdout, "on\n");
  });

  it("takes calls back", async () => {
    await using sandbox = await Sandbox.create({ undo: true });
    await sandbox.code.run("open('/tmp/a', 'w').write('first')");
    await sandbox.code.run("open('/tmp/a', 'w').write('second')");
    await sandbox.undo();
    assert.equal(await sandbox.files.readText("/tmp/a"), "first");
  });

  it("works on a folder", async () => {
    const folder = await mkdtemp(join(tmpdir(), "hutch-ts-"));
    try {
      await writeFile(join(folder, "a.txt"), "old\n");
      await using sandbox = await Sandbox.create({ workspace: folder, env: { A: "b" }, ...limited });
      assert.equal((await sandbox.run("echo $A")).stdout, "b\n");
      await sandbox.run("echo new >/workspace/a.txt", { check: true });
      assert.equal(await readFile(join(folder, "a.txt"), "utf8"), "old\n");
      const { diff, digest } = await sandbox.workspace.diff();
      assert.match(diff ?? "", /\+new/);
      if (process.geteuid?.() === 0) return; // root's changes are brought back by the command line
      assert.deepEqual((await sandbox.workspace.apply({ digest })).applied, ["a.txt"]);
      assert.equal(await readFile(join(folder, "a.txt"), "utf8"), "new\n");
    } finally {
      await rm(folder, { recursive: true });
    }
  });

  it("serves", async () => {
    await using sandbox = await Sandbox.create();
    await sandbox.run("mkdir /tmp/www && echo served >/tmp/www/index.html", { check: true });
    await using server = sandbox.exec(["python3", "-u", "-m", "http.server", "-d", "/tmp/www", "8000"]);
    for await (const piece of server) {
      assert.match(piece.text, /Serving/);
      break;
    }
    const { address } = await sandbox.ports.expose(8000);
    assert.equal(await (await fetch(`http://${address}`, { headers: { connection: "close" } })).text(), "served\n");
    await sandbox.ports.close(8000);
    assert.deepEqual(await sandbox.ports.list(), []);
  });

  it("waits in pools", async () => {
    await using pool = await hutch.SandboxPool.create({ size: 1, limit: 1, ...limited });
    {
      await using sandbox = await pool.acquire();
      assert.equal((await sandbox.run("echo pool")).stdout, "pool\n");
      assert.equal((await pool.status()).in_use, 1);
      await assert.rejects(pool.acquire(), hutch.ResourceExhaustedError);
    }
    await pool.release(await pool.acquire());
  });

  it("has events", async () => {
    await using client = new hutch.Client();
    await using sandbox = await Sandbox.create({ client });
    await sandbox.run("true");
    const kinds: string[] = [];
    for await (const e of client.events({ sandbox: sandbox.id, fromSeq: 1, follow: false })) kinds.push(e.kind);
    assert.ok(kinds.includes("exec.exited"));
    const stop = new AbortController();
    const next = client.events({ sandbox: sandbox.id, signal: stop.signal }).next();
    await sandbox.stats();
    stop.abort();
    await assert.rejects(next, { name: "AbortError" });
  });

  it("trusts no socket that others can exchange", async () => {
    const folder = await mkdtemp(join(tmpdir(), "hutch-ts-"));
    const socket = join(folder, "sock");
    const server = createServer((peer) => peer.on("error", () => {}).end("this is no JSON\n")).listen(socket);
    await once(server, "listening");
    try {
      await assert.rejects(new hutch.Client({ socket }).list(), hutch.ConnectionLostError);
      await chmod(folder, 0o777);
      await assert.rejects(new hutch.Client({ socket }).list(), hutch.PermissionDeniedError);
      if (process.geteuid?.() === 0) {
        await chmod(folder, 0o700);
        await chown(socket, 4711, 4711);
        await assert.rejects(new hutch.Client({ socket }).list(), hutch.PermissionDeniedError);
      }
    } finally {
      server.close();
      await rm(folder, { recursive: true });
    }
  });

  it("has a daemon of its own", async () => {
    let sandbox: Sandbox;
    {
      await using client = new hutch.Client({ private: true });
      sandbox = await Sandbox.create({ client });
      assert.equal((await sandbox.run("echo mine")).stdout, "mine\n");
      assert.deepEqual((await client.list()).map((s) => s.id), [sandbox.id]);
      assert.ok(!(await Sandbox.list()).some((s) => s.id === sandbox.id));
    }
    await assert.rejects(sandbox.run("true"), hutch.ConnectionLostError);
  });
});
