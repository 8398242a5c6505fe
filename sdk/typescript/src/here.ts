/** The path or URL of this file, which build.mjs writes: import and require have different words for it. */
export const here: string = "";
