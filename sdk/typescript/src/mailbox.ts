/** What came for one reader, who awaits it. */
export class Mailbox<T> {
  #items: T[] = [];
  #wake: (() => void) | undefined;

  put(item: T): void {
    this.#items.push(item);
    this.#wake?.();
  }

  async get(): Promise<T> {
    while (this.#items.length === 0) {
      await new Promise<void>((resolve) => { this.#wake = resolve; });
      this.#wake = undefined;
    }
    return this.#items.shift() as T;
  }
}
