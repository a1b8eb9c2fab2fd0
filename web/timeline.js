// Draws a turn as rows on a time axis.

import { rowsOf, stretch } from './marks.js';
import { end, isAlone } from './turns.js';
import { el, span, svg } from './text.js';

const ROW = 34;
const BAR = 20;
const TOP = 34;
const BOTTOM = 6;
/** The width reserved for row names beside the rows; without room they are above. */
const GUTTER = 96;
const NARROW = 520;
const ABOVE = 15;
const RIGHT = 12;
/** The least width of a mark with a duration. */
const LEAST = 14;
const LETTER = 6.6;

/** The number of timelines on the page. */
let drawn = 0;

/**
 * Choices for the drawing of a turn.
 * @typedef {object} View
 * @property {{before: number, after: number}} [around] the visible time around the end of speech, ms; by default what the turn needs
 * @property {boolean} [estimates] whether to draw the wait without the early start; true by default
 * @property {object[]} [more] further rows
 */

/** Draws turns into `place`; `detail` shows the figures of the hovered or focused mark. */
export class Timeline {
  #place;
  #detail;
  #table;
  #turn = null;
  #focus = null;
  #seen = new Set();
  #whole = false;
  #view = {};
  #name = (drawn += 1);

  /**
   * @param {HTMLElement} place
   * @param {HTMLElement} detail
   * @param {HTMLElement} table the drawing as a table
   */
  constructor(place, detail, table) {
    this.#place = place;
    this.#detail = detail;
    this.#table = table;
    place.addEventListener('keydown', (event) => this.#step(event));
    new ResizeObserver(() => this.#turn && this.draw(this.#turn, this.now, this.#view)).observe(place);
  }

  /** Whether to draw every stage of the whole turn. */
  set whole(whole) {
    this.#whole = whole;
    if (this.#turn) this.draw(this.#turn, this.now, this.#view);
  }

  /** Draws nothing. */
  clear() {
    this.#turn = null;
    this.#place.replaceChildren();
    this.#table.replaceChildren();
  }

  /**
   * Draws a turn at `now`, ms since the session began.
   * @param {View} view
   */
  draw(turn, now, view = {}) {
    if (this.#turn !== turn) {
      this.#focus = null;
      this.#tell(null);
      this.#seen.clear();
    }
    this.#turn = turn;
    this.now = now;
    this.#view = view;
    const until = turn.over ? end(turn) : now;
    const rows = [...rowsOf(turn, until, this.#whole, view.estimates), ...(view.more ?? [])];
    const needed = stretch(turn, rows, until, this.#whole);
    const { origin } = needed;
    const shown = view.around ? { origin, from: origin - view.around.before, to: origin + view.around.after } : needed;
    const axis = axisOf(shown, turn, this.#place.clientWidth, this.#name);
    const drawing = this.#drawing(turn, rows, axis);
    const focused = this.#place.contains(document.activeElement) ? this.#focus : null;
    this.#place.replaceChildren(drawing);
    if (focused) this.#place.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
    this.#rows(rows, axis);
  }

  #drawing(turn, rows, axis) {
    const height = TOP + rows.length * axis.row + BOTTOM;
    const root = svg('svg', {
      viewBox: `0 0 ${axis.width} ${height}`,
      width: axis.width,
      height,
      role: 'group',
      'aria-label': `Turn ${turn.number} on an axis of time. Arrow keys go from mark to mark.`,
    });
    const shown = rows.map((row) => ({ ...row, marks: row.marks.filter((mark) => mark.to >= axis.from && mark.from <= axis.to) }));
    const keys = shown.flatMap((row) => row.marks.map((mark) => mark.key));
    const chosen = keys.includes(this.#focus) ? this.#focus : keys[0];
    root.append(definitions(axis, height), ...ticks(axis, height), ...shown.flatMap((row, index) => lane(axis, row, index)), zero(axis, turn, height));
    for (const [index, row] of shown.entries()) {
      const y = TOP + index * axis.row + (axis.row - BAR) / 2 + axis.above / 2;
      root.append(...row.marks.map((mark) => this.#mark(mark, row, axis, y, mark.key === chosen)));
    }
    return root;
  }

  /** Adds the entry animation's class, only the first time and only while the turn is in progress. */
  #once(key, name) {
    if (this.#seen.has(key) || this.#turn.over) return name;
    this.#seen.add(key);
    return `${name} fresh`;
  }

  #mark(mark, row, axis, y, chosen) {
    const from = axis.x(mark.from);
    const to = Math.max(axis.x(mark.to), from + LEAST);
    const seen = { from: Math.max(from, axis.left), to: Math.min(to, axis.right) };
    const tell = () => this.#tell(mark, axis);
    return svg(
      'g',
      {
        class: this.#once(mark.key, `mark ${mark.style}`),
        tabindex: chosen ? 0 : -1,
        role: 'img',
        'data-key': mark.key,
        'aria-label': sentence(mark, row, axis),
        onpointerenter: tell,
        onclick: tell,
        onfocus: () => {
          this.#focus = mark.key;
          tell();
        },
      },
      svg('rect', { class: 'target', x: seen.from - 4, y: y - 5, width: Math.max(seen.to - seen.from + 8, 14), height: BAR + 10, rx: 6 }),
      ...shape(mark, axis, from, to, y),
      ...label(mark, row, axis, y, from, seen),
    );
  }

  #step(event) {
    const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!by) return;
    const marks = [...this.#place.querySelectorAll('.mark')];
    const at = marks.indexOf(document.activeElement);
    const next = marks[at + by];
    if (at < 0 || !next) return;
    event.preventDefault();
    marks[at].setAttribute('tabindex', -1);
    next.setAttribute('tabindex', 0);
    next.focus();
  }

  #tell(mark, axis) {
    if (!mark) return this.#detail.replaceChildren();
    this.#detail.replaceChildren(
      el('strong', {}, mark.name),
      ` ${times(mark, axis)}`,
      ...mark.facts.map((fact) => el('span', { class: 'fact' }, fact)),
    );
  }

  /** The drawing as a table. */
  #rows(rows, axis) {
    const cells = rows.flatMap((row) =>
      row.marks.map((mark) =>
        el(
          'tr',
          {},
          el('th', { scope: 'row' }, row.name),
          el('td', {}, mark.name),
          el('td', { class: 'number' }, span(mark.from - axis.origin)),
          el('td', { class: 'number' }, mark.point ? '' : span(mark.to - mark.from)),
          el('td', {}, mark.facts.join('; ')),
        ),
      ),
    );
    this.#table.replaceChildren(...cells);
  }
}

function sentence(mark, row, axis) {
  return [`${row.name}: ${mark.name}`, times(mark, axis), ...mark.facts].join('. ');
}

function times(mark, axis) {
  const at = signed(mark.from - axis.origin, axis.moment);
  return mark.point ? at : `${at}, for ${span(mark.to - mark.from)}`;
}

function signed(ms, moment) {
  const rounded = Math.round(ms);
  return rounded < 0 ? `${span(-rounded)} before ${moment}` : `${span(rounded)} after ${moment}`;
}

function axisOf({ from, to, origin }, turn, wide, name) {
  const narrow = wide < NARROW;
  const left = narrow ? 0 : GUTTER;
  const width = Math.max(wide, 280);
  const scale = (width - left - RIGHT) / (to - from);
  return {
    name,
    width,
    left,
    right: width - RIGHT,
    narrow,
    row: narrow ? ROW + ABOVE : ROW,
    above: narrow ? ABOVE : 0,
    from,
    to,
    origin,
    moment: isAlone(turn) ? 'it began' : turn.user.spoken ? 'you stopped' : 'you sent it',
    scale,
    x: (time) => left + (time - from) * scale,
  };
}

function shape(mark, axis, from, to, y) {
  if (mark.point) return [svg('circle', { cx: from, cy: y + BAR / 2, r: 6 })];
  if (mark.style === 'held') return [svg('line', { x1: from, x2: to, y1: y + BAR / 2, y2: y + BAR / 2 })];
  const fill = mark.style === 'dead' ? `url(#stripes-${axis.name})` : null;
  return [svg('rect', { class: 'bar', fill, x: from, y, width: to - from, height: BAR, rx: 5, 'clip-path': `url(#shown-${axis.name})` })];
}

/** A mark's label: on it, or beside it where there is space. */
function label(mark, row, axis, y, from, seen) {
  if (!mark.label) return [];
  if (mark.style === 'asked') return asked(mark, row, axis, y);
  const words = (x, anchor, kind, text) => [svg('text', { x, y: y + BAR / 2 + 4, 'text-anchor': anchor, class: kind }, text)];
  const width = mark.point ? 0 : seen.to - seen.from;
  const clear = free(row, axis, seen);
  // If the start of a text is off-screen, its end is shown.
  if (from < axis.left - 1 && fits(width) > 8) return words(seen.to - 7, 'end', 'words', tail(mark.label, fits(width)));
  const inside = [mark.label, mark.short ?? mark.label].find((text) => fits(clear.to - clear.from) >= text.length);
  if (inside) return words(clear.from + 6, 'start', 'words', inside);
  const alone = row.marks.every((other) => other.key === mark.key || other.style === 'held' || other.style === 'asked');
  if (!alone) return fits(width) > 3 ? words(seen.from + 7, 'start', 'words', head(mark.label, fits(width))) : [];
  const last = Math.max(...row.marks.map((other) => Math.min(axis.x(other.to), axis.right) + (other.point ? 7 : 0)), seen.to);
  const after = fits(axis.right - last + 6);
  const before = fits(seen.from - axis.left + 6);
  if (before < mark.label.length && after > before) return words(last + 7, 'start', 'beside', head(mark.label, after));
  return words(seen.from - 7, 'end', 'beside', head(mark.label, before));
}

/** The number of letters that fit. */
function fits(room) {
  return Math.floor((room - 10) / LETTER);
}

/** The label of a ring, if there is space for it. */
function asked(mark, row, axis, y) {
  const [call] = row.marks;
  const at = axis.x(mark.from);
  const taken = call.to > mark.from || fits(axis.x(call.to) - Math.max(axis.x(call.from), axis.left)) < call.label.length;
  if (taken || fits(axis.right - at - 6) < mark.label.length) return [];
  return [svg('text', { x: at + 12, y: y + BAR / 2 + 4, class: 'beside' }, mark.label)];
}

/** The wider part of a mark that no point covers. */
function free(row, axis, seen) {
  const at = row.marks.filter((other) => other.point).map((other) => axis.x(other.from)).find((x) => x > seen.from && x < seen.to);
  if (at === undefined) return seen;
  return at - seen.from > seen.to - at ? { from: seen.from, to: at - 4 } : { from: at + 4, to: seen.to };
}

function head(text, letters) {
  return text.length > letters ? `${text.slice(0, Math.max(letters - 1, 0)).trimEnd()}…` : text;
}

function tail(text, letters) {
  return text.length > letters ? `…${text.slice(1 - letters).trimStart()}` : text;
}

function ticks(axis, height) {
  const step = [100, 200, 500, 1000, 2000, 5000, 10000, 20000].find((ms) => ms * axis.scale > 76) ?? 60000;
  const found = [];
  const middle = zeroText(axis);
  const from = Math.ceil((axis.from - axis.origin) / step) * step;
  for (let at = from; axis.origin + at <= axis.to; at += step) {
    if (at === 0) continue;
    const x = axis.x(axis.origin + at);
    found.push(svg('line', { class: 'tick', x1: x, x2: x, y1: TOP - 8, y2: height - BOTTOM }));
    const anchor = x < 18 ? 'start' : x > axis.width - 18 ? 'end' : 'middle';
    // The label of zero takes the place of ticks around it.
    if (x < middle.from - 20 || x > middle.to + 20) found.push(svg('text', { class: 'time', x, y: 16, 'text-anchor': anchor }, `${at < 0 ? '−' : '+'}${(Math.abs(at) / 1000).toFixed(step < 1000 ? 1 : 0)} s`));
  }
  return found;
}

/** The position of the label of zero. */
function zeroText(axis) {
  const x = axis.x(axis.origin);
  const half = 40;
  if (x < half) return { anchor: 'start', from: x, to: x + 2 * half };
  if (x > axis.width - half) return { anchor: 'end', from: x - 2 * half, to: x };
  return { anchor: 'middle', from: x - half, to: x + half };
}

/** The line at zero. */
function zero(axis, turn, height) {
  const x = axis.x(axis.origin);
  const name = turn.user.speaking ? 'now' : axis.moment;
  const { anchor } = zeroText(axis);
  return svg('g', { class: 'zero' }, svg('line', { x1: x, x2: x, y1: TOP - 8, y2: height - BOTTOM }), svg('text', { x, y: 16, 'text-anchor': anchor }, name));
}

function lane(axis, { name }, index) {
  const y = TOP + index * axis.row;
  return [
    svg('line', { class: 'lane', x1: axis.left, x2: axis.right, y1: y + axis.row, y2: y + axis.row }),
    svg('text', { class: 'track', x: 0, y: axis.narrow ? y + ABOVE - 1 : y + ROW / 2 + 4 }, name),
  ];
}

/** The clip path of the visible axis, and a stripe pattern for silence, so that it does not depend on colour. */
function definitions(axis, height) {
  return svg(
    'defs',
    {},
    svg('clipPath', { id: `shown-${axis.name}` }, svg('rect', { x: axis.left, y: 0, width: axis.right - axis.left, height })),
    svg(
      'pattern',
      { id: `stripes-${axis.name}`, width: 6, height: 6, patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)' },
      svg('rect', { width: 6, height: 6, class: 'stripe-ground' }),
      svg('rect', { width: 3, height: 6, class: 'stripe' }),
    ),
  );
}
