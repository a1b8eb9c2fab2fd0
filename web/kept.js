// What the page keeps in the browser's storage. Where the browser forbids that, it holds until the page is left.

/** Texts by name, all in one storage of the browser. */
export class Kept {
  #storage;
  /** Those of this visit. */
  #own = new Map();

  /** `storage` returns the storage, or throws where the browser forbids it. */
  constructor(storage) {
    this.#storage = storage;
  }

  /** The text, of this visit or an earlier one; empty if there is none. */
  recall(name) {
    try {
      return this.#own.get(name) ?? this.#storage().getItem(`undertone.${name}`) ?? '';
    } catch {
      return '';
    }
  }

  /** Keeps a text; an empty one is forgotten. */
  keep(name, text) {
    this.#own.set(name, text);
    try {
      if (text) this.#storage().setItem(`undertone.${name}`, text);
      else this.#storage().removeItem(`undertone.${name}`);
    } catch {
      // It holds until the page is left.
    }
  }
}
