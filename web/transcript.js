// What was said, as text: what is heard, what is spoken, and what was cut off.

import { el } from './text.js';

/** The conversation in words. Everything is a text node. */
export class Transcript {
  #log;
  #partial;
  #clauses = new Map();
  #items = new Map();

  /**
   * @param {HTMLElement} log where finished words go; announced to screen readers
   * @param {HTMLElement} partial where unfinished words go; not announced, since they change
   */
  constructor(log, partial) {
    this.#log = log;
    this.#partial = partial;
    new ResizeObserver(() => this.#follow()).observe(log.parentElement);
  }

  /** What was heard so far; nothing if empty. */
  hearing(text) {
    this.#partial.textContent = text;
    this.#partial.hidden = text === '';
    this.#follow();
  }

  /** What the user said. */
  user(text) {
    this.hearing('');
    this.#add('user', 'You', el('p', {}, text));
  }

  /** The agent is about to say this. */
  clause(item, id, text) {
    if (!this.#items.has(item)) {
      const words = el('p', {});
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

  /** A clause sounds, or has sounded. */
  sounding(id, now) {
    const clause = this.#clauses.get(id);
    if (clause) clause.className = now ? 'sounding' : 'said';
  }

  /** The item ended after these words: what follows was not heard, and is struck out. */
  cut(item, heard) {
    if (!this.#items.has(item)) return;
    const { words, all } = this.#items.get(item);
    const kept = heard.replace(/\s+/g, ' ').trim();
    const rest = all.startsWith(kept) ? all.slice(kept.length).trim() : '';
    if (rest === '') return;
    words.replaceChildren(kept, kept ? ' ' : '', el('s', {}, rest), el('span', { class: 'visually-hidden' }, ' (not heard)'));
  }

  /** Something beside the conversation. */
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
    const place = this.#log.parentElement;
    place.scrollTop = place.scrollHeight;
  }
}
