/**
 * A sandbox as a tool of the Vercel AI SDK: `runCommand(sandbox)` is one of generateText, streamText and agents.
 *
 *     node tool.mjs "Which of these numbers are primes: 91, 97?"
 *
 * runs one agent with it, and the model that AI_MODEL names (by default through the gateway, with AI_GATEWAY_API_KEY).
 */
import { generateText, isStepCount, tool } from "ai";
import { z } from "zod";

import { Sandbox } from "@hutch-sh/sdk";

/** How much of an output the model gets to see. */
const MOST = 16_000;

export function runCommand(sandbox) {
  return tool({
    description: "Runs a command of the shell in a sandbox, which keeps its files, and returns what it printed.",
    inputSchema: z.object({ command: z.string() }),
    async execute({ command }, { abortSignal }) {
      const { stdout, stderr, exitCode, verdict, denials, hint } =
        await sandbox.run(command, { timeout: 120, signal: abortSignal });
      return {
        stdout: stdout.slice(-MOST), stderr: stderr.slice(-MOST), exitCode, verdict, hint,
        // What was refused, and what would allow it: so that the model does not guess.
        refused: denials.map((denial) => `${denial.target}: ${denial.how_to_allow}`),
      };
    },
  });
}

export async function ask(model, prompt, options = {}) {
  await using sandbox = await Sandbox.create({ memory: "1g", ttl: 3600, ...options });
  const { text } = await generateText({
    model, prompt, tools: { runCommand: runCommand(sandbox) }, stopWhen: isStepCount(20),
  });
  return text;
}

if (import.meta.main) {
  console.log(await ask(process.env.AI_MODEL ?? "anthropic/claude-sonnet-4.5", process.argv[2]));
}
