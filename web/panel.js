// The panel for one turn: the sentence, the drawing, and the copy button.

import { stages } from './stages.js';
import { story } from './story.js';
import { copy, el, span } from './text.js';
import { Timeline } from './timeline.js';
import { plainTurn } from './turns.js';

/** The interval at which an ongoing turn is redrawn, ms. */
const DRAW_EVERY = 120;

const find = (id) => document.getElementById(id);

/** Shows one turn at a time: the newest, unless the user has selected another. */
export class Panel {
  #turns;
  #timeline;
  #turn = null;
  #timer = 0;
  #told = '';

  /**
   * @param {import('./turns.js').Turns} turns
   * @param {() => boolean} mayMove whether an unfinished turn is still in progress
   */
  constructor(turns, mayMove) {
    this.#turns = turns;
    this.mayMove = mayMove;
    this.#timeline = new Timeline(find('drawing'), find('detail'), find('numbers'));
    turns.addEventListener('new', ({ detail: turn }) => this.show(turn));
    turns.addEventListener('change', ({ detail: turn }) => turn === this.#turn && this.draw());
    find('earlier').addEventListener('click', () => this.show(turns.list[this.#turn.number - 2]));
    find('later').addEventListener('click', () => this.show(turns.list[this.#turn.number]));
    find('whole').addEventListener('change', ({ target }) => {
      this.#timeline.whole = target.checked;
      find('legend').hidden = !target.checked;
    });
    find('copy').addEventListener('click', () => this.#copy());
  }

  /** Shows a turn. */
  show(turn) {
    this.#turn = turn;
    find('turn').hidden = false;
    this.draw();
  }

  /** Draws now, and repeatedly while the turn is in progress. */
  draw() {
    clearTimeout(this.#timer);
    const turn = this.#turn;
    if (!turn) return;
    this.#timeline.draw(turn, this.#turns.at(performance.now()) ?? 0);
    this.#tell(turn);
    find('stages').replaceChildren(...stages(turn).map(({ name, after }) => el('li', {}, `${name} `, el('b', {}, after === null ? '…' : span(after)))));
    find('which').textContent = `${turn.number} of ${this.#turns.list.length}`;
    find('question').textContent = turn.user.text ? `“${turn.user.text}”` : '';
    find('earlier').disabled = turn.number === 1;
    find('later').disabled = turn.number === this.#turns.list.length;
    const moves = !turn.over || turn.clauses.some((clause) => clause.pieces.at(-1)?.to === null);
    const active = moves && this.mayMove() && (turn.responded !== undefined || turn.user.speaking || turn.user.text !== '');
    if (active) this.#timer = setTimeout(() => this.draw(), DRAW_EVERY);
  }

  #tell(turn) {
    const { mood, says, more } = story(turn);
    const all = [turn.number, mood, says, ...more].join('\n');
    if (all === this.#told) return;
    this.#told = all;
    // Screen readers announce only final sentences; live ones would talk over the user.
    find('story').setAttribute('aria-live', mood === 'live' ? 'off' : 'polite');
    find('story').dataset.mood = mood;
    find('story').replaceChildren(...emphasised(says));
    find('more').replaceChildren(...more.map((line) => el('li', {}, line)));
  }

  async #copy() {
    const done = await copy(JSON.stringify(plainTurn(this.#turn), null, 2));
    find('copied').textContent = done ? 'Copied.' : 'The browser does not let this page copy.';
    setTimeout(() => (find('copied').textContent = ''), 3000);
  }
}

/** A sentence with its times emphasised. */
function emphasised(sentence) {
  return sentence.split(/((?:less than )?\d+(?:\.\d+)? s\b)/).map((part, index) => (index % 2 ? el('b', {}, part) : part));
}
