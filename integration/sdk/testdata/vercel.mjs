// The example with a model that says what a script tells it, and that is asked what it was told.
import assert from "node:assert/strict";

import { MockLanguageModelV4 } from "ai/test";

import { ask } from "./tool.mjs";

const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } };
const says = (content, unified) => ({ content: [content], finishReason: { unified, raw: unified }, usage, warnings: [] });
const calls = (id, command) =>
  says({ type: "tool-call", toolCallId: id, toolName: "runCommand", input: JSON.stringify({ command }) }, "tool-calls");

const refused = `python3 -c 'import socket; socket.create_connection(("192.0.2.7", 443), 5)'`;
const model = new MockLanguageModelV4({
  doGenerate: [calls("1", "echo $((6*7)) >/tmp/answer"), calls("2", "cat /tmp/answer; exit 3"), calls("3", refused),
    says({ type: "text", text: "It is 42." }, "stop")],
});

assert.equal(await ask(model, "What is six times seven?"), "It is 42.");
const results = model.doGenerateCalls.at(-1).prompt.filter((message) => message.role === "tool")
  .flatMap((message) => message.content).map((part) => part.output.value);
assert.deepEqual(results.map((r) => r.exitCode), [0, 3, 1]);
assert.equal(results[1].stdout, "42\n");
assert.ok(results[2].refused.some((line) => line.includes("--allow")), JSON.stringify(results[2]));
