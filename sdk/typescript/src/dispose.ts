/** Symbol.asyncDispose, which `await using` looks for, in versions of Node that have none. Compilers bring the rest. */
const symbols = Symbol as { asyncDispose?: symbol };
symbols.asyncDispose ??= Symbol("Symbol.asyncDispose");

export {};
