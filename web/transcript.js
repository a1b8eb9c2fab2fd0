// The transcript: partials, spoken clauses, and words that were cut off.

import { el } from './text.js';

/** The distance from the end that counts as none, px: positions are rounded. */
const NEAR = 2;

/** Shows the conversation as text. All content is text nodes. */
export class Transcript {
  #log;
  #partial;
  #clauses = new Map();
  #items = new Map();
  /** It is at its end and stays there when something is added. Somebody who reads back is left in peace. */
  #follows = true;

  /** The language of what is said from now on, a BCP 47 tag; empty if it is not known. */
  language = '';

  /**
   * @param {HTMLElement} log where finished words go; announced to screen readers
   * @param {HTMLElement} partial where unfinished words go; not announced, since they change
   */
  constructor(log, partial) {
    this.#log = log;
    this.#partial = partial;
    const place = log.parentElement;
    place.addEventListener('scroll', () => (this.#follows = place.scrollHeight - place.clientHeight - place.scrollTop <= NEAR));
    new ResizeObserver(() => this.#follow()).observe(place);
  }

  /** Scrolls to the end, and follows again what is added. */
  toEnd() {
    this.#follows = true;
    this.#follow();
  }

  /** Shows the partial transcript; hides it if empty. */
  hearing(text) {
    this.#partial.lang = this.language;
    this.#partial.textContent = text;
    this.#partial.hidden = text === '';
    this.#follow();
  }

  /** Adds a user message. */
  user(text) {
    this.hearing('');
    this.#add('user', 'You', el('p', { lang: this.language }, text));
  }

  /** Adds a clause that the agent is about to say. */
  clause(item, id, text) {
    if (!this.#items.has(item)) {
      const words = el('p', { lang: this.language });
      this.#items.set(item, { words, all: '' });
      this.#add('agent', 'Agent', words);
    }
    const said = this.#items.get(item);
    const { words } = said;
    said.all = `${said.all} ${text}`.trim();
    const clause = el('span', { class: 'coming' }, text);
    this.#clauses.set(id, clause);
    words.append(words.childNodes.length ? ' ' : '', clause);
    this.#follow();
  }

  /** Marks a clause as playing or played. */
  sounding(id, now) {
    const clause = this.#clauses.get(id);
    if (clause) clause.className = now ? 'sounding' : 'said';
  }

  /** Strikes out the words of an item after those that were heard. */
  cut(item, heard) {
    if (!this.#items.has(item)) return;
    const { words, all } = this.#items.get(item);
    const kept = heard.replace(/\s+/g, ' ').trim();
    const rest = all.startsWith(kept) ? all.slice(kept.length).trim() : '';
    if (rest === '') return;
    words.replaceChildren(kept, kept ? ' ' : '', el('s', {}, rest), el('span', { class: 'visually-hidden' }, ' (not heard)'));
    this.#follow();
  }

  /** Adds a note. */
  note(text, kind = '') {
    this.#log.append(el('p', { class: `note ${kind}`.trim() }, text));
    this.#follow();
  }

  #add(kind, who, words) {
    const goesOn = this.#log.lastElementChild?.classList.contains(kind);
    const name = goesOn ? [] : [el('span', { class: 'who' }, who)];
    this.#log.append(el('div', { class: `message ${kind}${goesOn ? ' goes-on' : ''}` }, ...name, words));
    this.#follow();
  }

  #follow() {
    if (!this.#follows) return;
    const place = this.#log.parentElement;
    place.scrollTop = place.scrollHeight;
  }
}
