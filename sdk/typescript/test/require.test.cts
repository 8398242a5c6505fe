/** The package by require, whose classes are its own. */

import assert = require("node:assert/strict");
import test = require("node:test");
import hutch = require("@hutch-sh/sdk");

void test.test("is required", async () => {
  await using sandbox = await hutch.Sandbox.create();
  assert.equal((await sandbox.run("echo hello")).stdout, "hello\n");
  await assert.rejects(hutch.Sandbox.get("nobody"), hutch.NotFoundError);
});
