/** Ids that the caller chooses. */

import { randomBytes } from "node:crypto";

const letters = "abcdefghijklmnopqrstuvwxyz234567";

/** A word that nobody else has chosen: a hundred bits. */
export function unique(): string {
  return Array.from(randomBytes(20), (byte) => letters[byte & 31]).join("");
}
