// The visitor's choice of voice and language, among those that the server offers. Choices outlive a reload.

import { Kept } from './kept.js';
import { el } from './text.js';

const find = (id) => document.getElementById(id);

const choices = new Kept(() => localStorage);

/** The last choice, of this visit or an earlier one; empty if there is none. */
export const recall = (name) => choices.recall(name);

/** Keeps a choice; an empty one is forgotten. */
export const keep = (name, value) => choices.keep(name, value);

/** The entry for no choice. */
const OWN = { value: '', text: 'the agent’s own' };

/**
 * Voice and language of the next conversation. Emits `change` when the visitor chooses.
 *
 * @typedef {{name: string, language: string | null}} OfferedVoice `language` if it speaks one language only
 */
export class Choices extends EventTarget {
  #voices = [];
  #languages = [];
  #usual = null;

  constructor() {
    super();
    for (const name of ['voice', 'language']) {
      find(`chosen-${name}`).addEventListener('change', ({ target }) => {
        keep(name, target.value);
        this.#show();
        this.dispatchEvent(new Event('change'));
      });
    }
  }

  /**
   * Offers these.
   * @param {{voices: OfferedVoice[], languages: string[]}} offered
   */
  offer({ voices, languages }) {
    this.#voices = voices;
    this.#languages = languages;
    this.#show();
  }

  /** Sets the language of conversations for which none is chosen, null if it depends on the agent. */
  set usual(language) {
    this.#usual = language;
    this.#show();
  }

  /** The voice; empty for the agent's own. */
  get voice() {
    return find('chosen-voice').value;
  }

  /** The language, a BCP 47 tag; empty for the usual one. */
  get language() {
    return find('chosen-language').value;
  }

  /** The language that is spoken, a BCP 47 tag; empty if it is not known. */
  get spoken() {
    return this.language || this.#usual || '';
  }

  #show() {
    const usual = this.#usual === null ? OWN : { value: '', text: inItsOwnWords(this.#usual), lang: this.#usual };
    const others = this.#languages.filter((tag) => tag !== this.#usual);
    this.#fill('language', [usual, ...others.map((tag) => ({ value: tag, text: inItsOwnWords(tag), lang: tag }))]);
    const { spoken } = this;
    const fits = ({ language }) => language === null || spoken === '' || language === spoken;
    this.#fill('voice', [OWN, ...this.#voices.filter(fits).map(({ name }) => ({ value: name, text: name }))]);
  }

  /** Fills a list; a single option is no choice. One that was chosen and is not offered is kept for when it is. */
  #fill(name, options) {
    const [list, chosen] = [find(`chosen-${name}`), recall(name)];
    list.replaceChildren(...options.map(({ value, text, lang }) => el('option', { value, lang, selected: value === chosen }, text)));
    list.parentElement.hidden = options.length === 1;
  }
}

/** A language's name for itself. */
function inItsOwnWords(tag) {
  const name = new Intl.DisplayNames([tag], { type: 'language' }).of(tag);
  return name.charAt(0).toLocaleUpperCase(tag) + name.slice(1);
}
