// One turn as tracks on one axis of time.

import { deadAir, end, isFiller, playout, speech } from './turns.js';
import { el, listed, plain, span, svg } from './text.js';

const TRACKS = ['You', 'Transcript', 'Router', 'Early calls', 'Model', 'Tool', 'Filler', 'Answer', 'Heard'];
const ROW = 27;
const BAR = 16;
const TOP = 40;
const LABEL = 88;
const RIGHT = 16;
/** The least that the axis shows, ms. */
const LEAST = 3000;

/** Draws turns into `place`; what is pointed at or focused is told in numbers in `detail`. */
export class Timeline {
  #place;
  #detail;
  #table;
  #turn = null;
  #focus = null;
  #seen = new Set();

  /**
   * @param {HTMLElement} place
   * @param {HTMLElement} detail
   * @param {HTMLElement} table the same in words
   */
  constructor(place, detail, table) {
    this.#place = place;
    this.#detail = detail;
    this.#table = table;
    place.addEventListener('keydown', (event) => this.#step(event));
    new ResizeObserver(() => this.#turn && this.draw(this.#turn, this.now)).observe(place);
  }

  /** Draws a turn as it stands at `now`, ms since the session began. */
  draw(turn, now) {
    if (this.#turn !== turn) {
      this.#focus = null;
      this.#tell(null);
      this.#seen.clear();
    }
    this.#turn = turn;
    this.now = now;
    const marks = marksOf(turn, turn.over ? end(turn) : now);
    const axis = axisOf(turn, marks, turn.over ? end(turn) : now, this.#place.clientWidth);
    const drawing = this.#drawing(turn, marks, axis);
    const focused = this.#place.contains(document.activeElement) ? this.#focus : null;
    this.#place.replaceChildren(drawing);
    if (focused) this.#place.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
    this.#rows(marks, axis);
  }

  #drawing(turn, marks, axis) {
    const height = TOP + TRACKS.length * ROW + 8;
    const root = svg('svg', {
      viewBox: `0 0 ${axis.width} ${height}`,
      width: axis.width,
      height,
      role: 'group',
      'aria-label': `Timeline of turn ${turn.number}. Arrow keys go from mark to mark.`,
    });
    root.append(hatch(), ...ticks(axis, height), ...lanes(axis));
    if (turn.latency.end_of_turn !== undefined) root.append(line(axis, turn.latency.end_of_turn, height, 'turn-end', 'turn over', true));
    const committed = turn.latency.commit ?? turn.runs.find((run) => run.committed !== undefined)?.committed;
    if (committed !== undefined) root.append(line(axis, committed, height, this.#once('commit', 'commit'), 'commit', false));
    const chosen = this.#focus && marks.some((mark) => mark.key === this.#focus) ? this.#focus : marks[0]?.key;
    root.append(...marks.map((mark) => this.#mark(mark, axis, mark.key === chosen)));
    return root;
  }

  /** A class with which something appears, the first time only, and not in a turn of before. */
  #once(key, name) {
    if (this.#seen.has(key) || this.#turn.over) return name;
    this.#seen.add(key);
    return `${name} fresh`;
  }

  #mark(mark, axis, chosen) {
    const height = BAR / (mark.lanes ?? 1);
    const y = TOP + mark.track * ROW + (ROW - BAR) / 2 + height * (mark.lane ?? 0);
    const from = axis.x(mark.from);
    const width = Math.max(axis.x(mark.to) - from, 3);
    const shape = mark.point
      ? svg('circle', { cx: from, cy: y + BAR / 2, r: 5 })
      : svg('rect', { x: from, y, width, height: height - (mark.lanes > 1 ? 1 : 0), rx: 4 });
    const words = !mark.point && mark.label && width > 40 && height === BAR ? [label(mark, from, y, width)] : [];
    const tell = () => this.#tell(mark, axis);
    return svg(
      'g',
      {
        class: this.#once(mark.key, `mark ${mark.style}`),
        tabindex: chosen ? 0 : -1,
        role: 'img',
        'data-key': mark.key,
        'aria-label': sentence(mark, axis),
        onpointerenter: tell,
        onclick: tell,
        onfocus: () => {
          this.#focus = mark.key;
          tell();
        },
      },
      svg('rect', { class: 'target', x: from - 4, y: y - 5, width: Math.max(width + 8, 14), height: height + 10 }),
      shape,
      ...words,
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
    if (!mark) return this.#detail.replaceChildren('Point at a mark, or go from mark to mark with the arrow keys.');
    this.#detail.replaceChildren(
      el('strong', {}, mark.name),
      ` ${times(mark, axis)}`,
      ...mark.facts.map((fact) => el('span', { class: 'fact' }, fact)),
    );
  }

  /** The same as a table, for those who read rather than look. */
  #rows(marks, axis) {
    const rows = marks.map((mark) =>
      el(
        'tr',
        {},
        el('th', { scope: 'row' }, TRACKS[mark.track]),
        el('td', {}, mark.name),
        el('td', { class: 'number' }, span(mark.from - axis.origin)),
        el('td', { class: 'number' }, mark.point ? '' : span(mark.to - mark.from)),
        el('td', {}, mark.facts.join('; ')),
      ),
    );
    this.#table.replaceChildren(...rows);
  }
}

function sentence(mark, axis) {
  return [`${TRACKS[mark.track]}: ${mark.name}`, times(mark, axis), ...mark.facts].join('. ');
}

function times(mark, axis) {
  const at = `${signed(mark.from - axis.origin)}`;
  return mark.point ? at : `${at}, for ${span(mark.to - mark.from)}`;
}

/** A time against the end of speech. */
function signed(ms) {
  const rounded = Math.round(ms);
  return rounded < 0 ? `${span(-rounded)} before the end of speech` : `${span(rounded)} after the end of speech`;
}

function axisOf(turn, marks, now, wide) {
  const spoken = speech(turn);
  const froms = marks.map((mark) => mark.from);
  const first = Math.min(...froms, spoken.from ?? Infinity, now);
  const last = Math.max(...marks.map((mark) => mark.to), now, first + LEAST);
  const width = Math.max(wide, 560);
  const scale = (width - LABEL - RIGHT) / (last - first);
  return {
    width,
    first,
    last,
    origin: spoken.to ?? first,
    scale,
    x: (time) => LABEL + (time - first) * scale,
  };
}

/** Everything that is drawn: {key, track, from, to, point, style, name, label, facts}. */
function marksOf(turn, now) {
  return [
    ...speechMarks(turn, now),
    ...transcriptMarks(turn),
    ...turn.predictions.map(predictionMark),
    ...side(turn.runs.filter((run) => run.source).map((run) => earlyMark(run, now))),
    ...modelMarks(turn, now),
    ...side(turn.runs.filter((run) => run.committed !== undefined).map((run) => toolMark(run, now))),
    ...turn.clauses.map((clause, index) => clauseMark(turn, clause, index)),
    ...waitMarks(turn, now),
    ...deadAir(turn, now).map((gap, index) => ({
      key: `dead-${index}`, track: 8, from: gap.from, to: gap.to, style: 'dead', name: 'Dead air', facts: ['nothing was heard between filler and answer'],
    })),
    ...playout(turn, now).map((piece, index) => ({
      key: `heard-${index}`, track: 8, from: piece.from, to: piece.to, style: [piece.kind, piece.cut ? 'cut' : ''].join(' '),
      name: piece.cut ? 'Heard until interrupted' : 'Heard', facts: [`“${piece.text}”`],
    })),
    ...bargeMarks(turn),
  ].filter((mark) => Number.isFinite(mark.from) && Number.isFinite(mark.to));
}

/** Puts marks that overlap beside each other, each in a lane of the track. */
function side(marks) {
  const ends = [];
  for (const mark of marks.filter((mark) => !mark.point)) {
    const free = ends.findIndex((end) => end <= mark.from);
    mark.lane = free < 0 ? ends.length : free;
    ends[mark.lane] = mark.to;
  }
  return marks.map((mark) => (mark.point ? mark : { ...mark, lanes: ends.length }));
}

function speechMarks(turn, now) {
  const { from, to } = speech(turn);
  if (from === null) return [];
  if (!turn.user.spoken) return [{ key: 'you', track: 0, from, to: from, point: true, style: 'you', name: 'Typed', facts: [`“${turn.user.text}”`] }];
  const until = turn.user.speaking ? now : (to ?? now);
  return [{ key: 'you', track: 0, from, to: until, style: 'you', name: 'You spoke', label: turn.user.text, facts: [`“${turn.user.text}”`] }];
}

function transcriptMarks(turn) {
  const partials = turn.partials.map(({ at, text }, index) => ({
    key: `partial-${index}`, track: 1, from: at, to: at, point: true, style: 'partial', name: 'Heard so far', facts: [`“${text}”`],
  }));
  const { transcript, completeness, end_of_turn: over } = turn.latency;
  const point = (key, at, name, facts = []) => (at === undefined ? [] : [{ key, track: 1, from: at, to: at, point: true, style: 'final', name, facts }]);
  return [
    ...partials,
    ...point('transcript', transcript, 'Transcript was there', [`“${turn.user.text}”`]),
    ...point('completeness', completeness, 'End-of-turn model has judged'),
    ...(turn.user.spoken ? point('over', over, 'The turn is over') : []),
  ];
}

function predictionMark({ at, tool, source, confidence, decision, arguments: values }, index) {
  const became = typeof decision === 'string' ? decision : `declined: ${decision.declined}`;
  return {
    key: `prediction-${index}`, track: 2, from: at, to: at, point: true,
    style: decision === 'started' || decision === 'known' ? 'followed' : 'declined',
    name: `${tool} predicted`,
    facts: [listed(values), `by ${plain(source)}, ${percent(confidence)} sure`, plain(became)].filter(Boolean),
  };
}

function earlyMark(run, now) {
  const settled = run.committed ?? run.discarded;
  const ended = Math.min(run.finished ?? run.ready ?? Infinity, run.discarded ?? Infinity);
  const style = run.discarded !== undefined ? 'discarded' : run.committed !== undefined ? 'committed' : 'started';
  const facts = [
    listed(run.arguments),
    `by ${plain(run.source)}, ${percent(run.confidence)} sure`,
    run.ready !== undefined || run.finished !== undefined ? `result after ${span((run.finished ?? run.ready) - run.started)}` : 'no result yet',
    run.committed !== undefined ? `committed, ${span(run.saved ?? Math.max(0, settled - run.started))} saved` : null,
    run.discarded !== undefined ? `discarded: ${plain(run.reason)}, ${span(run.wasted)} wasted` : null,
  ];
  return {
    key: `run-${run.run}`, track: 3, from: run.started, to: Math.max(Number.isFinite(ended) ? ended : now, run.started),
    style: `early ${style}`, name: `${run.tool} ran early`, label: run.tool, facts: facts.filter(Boolean),
  };
}

function modelMarks(turn, now) {
  const { generation, llm_first: first, commit, tool_result: result, answer_audio: answer, first_audio: heard } = turn.latency;
  const open = (from, to) => ({ from, to: to ?? (turn.over ? from : now) });
  const marks = [];
  if (generation !== undefined) marks.push({ key: 'model-1', track: 4, ...open(generation, first ?? commit ?? heard), style: 'thinking', name: 'Model, to its first words', label: 'thinks', facts: ['it may be asked before the turn is over, and is then held back'] });
  if (first !== undefined && commit !== undefined) marks.push({ key: 'model-2', track: 4, from: first, to: commit, style: 'writing', name: 'Model, until the call was complete', label: 'writes', facts: [] });
  if (result !== undefined) marks.push({ key: 'model-3', track: 4, ...open(Math.max(result, commit ?? 0), answer), style: 'thinking', name: 'Model again, to the answer’s first sound', label: 'answers', facts: ['with the result; voice and filler included'] });
  return marks;
}

function toolMark(run, now) {
  const over = run.finished ?? now;
  const waited = Math.max(0, over - run.committed);
  const ready = run.source && over <= run.committed;
  return {
    key: `tool-${run.run}`, track: 5, from: run.committed, to: run.committed + waited, point: ready,
    style: ready ? 'tool ready' : 'tool', name: ready ? `${run.tool}: the result was already there` : `${run.tool} runs`, label: run.tool,
    facts: [listed(run.arguments), ready ? 'nobody had to wait' : `${span(waited)} waited after the commit`, run.ok === false ? 'it failed' : null].filter(Boolean),
  };
}

function clauseMark(turn, clause, index) {
  const filler = isFiller(turn, clause);
  return {
    key: `clause-${index}`, track: filler ? 6 : 7, from: clause.at, to: clause.at + clause.samples / 24,
    style: filler ? 'filler' : 'answer', name: filler ? 'Filler' : 'Answer', label: clause.text,
    facts: [`“${clause.text}”`, clause.cut ? `heard ${span(clause.heard / 24)} of ${span(clause.samples / 24)}` : null].filter(Boolean),
  };
}

/** The silence before the first sound. */
function waitMarks(turn, now) {
  const { to } = speech(turn);
  if (to === null || turn.user.speaking) return [];
  const [first] = playout(turn, now);
  const until = first?.from ?? (turn.over ? null : now);
  if (until === null || until <= to) return [];
  return [{ key: 'wait', track: 8, from: to, to: until, style: 'wait', name: 'Waiting for the first sound', facts: [] }];
}

function bargeMarks({ bargeIn }) {
  if (!bargeIn || bargeIn.silent === null) return [];
  return [{ key: 'barge', track: 8, from: bargeIn.silent, to: bargeIn.silent, point: true, style: 'barge', name: 'You spoke, and it fell silent', facts: [] }];
}

function label({ label: text }, x, y, width) {
  const letters = Math.floor((width - 12) / 6.2);
  const shown = text.length > letters ? `${text.slice(0, Math.max(letters - 1, 0))}…` : text;
  return svg('text', { x: x + 6, y: y + 12, class: 'words' }, shown);
}

function ticks(axis, height) {
  const step = [100, 200, 500, 1000, 2000, 5000, 10000, 20000].find((ms) => ms * axis.scale > 64) ?? 60000;
  const found = [];
  const from = Math.ceil((axis.first - axis.origin) / step) * step;
  for (let at = from; axis.origin + at <= axis.last; at += step) {
    const x = axis.x(axis.origin + at);
    found.push(svg('line', { class: at === 0 ? 'zero' : 'tick', x1: x, x2: x, y1: TOP - 6, y2: height - 8 }));
    found.push(svg('text', { class: 'time', x, y: 13, 'text-anchor': 'middle' }, at === 0 ? '0' : `${(at / 1000).toFixed(step < 1000 ? 1 : 0)} s`));
  }
  return found;
}

function lanes(axis) {
  return TRACKS.flatMap((name, index) => [
    svg('line', { class: 'lane', x1: LABEL, x2: axis.width - RIGHT, y1: TOP + (index + 1) * ROW, y2: TOP + (index + 1) * ROW }),
    svg('text', { class: 'track', x: 0, y: TOP + index * ROW + ROW / 2 + 4 }, name),
  ]);
}

function line(axis, at, height, style, name, before) {
  const x = axis.x(at);
  return svg(
    'g',
    { class: `moment ${style}` },
    svg('line', { x1: x, x2: x, y1: TOP - 4, y2: height - 8 }),
    svg('text', { x: before ? x - 4 : x + 4, y: TOP - 9, 'text-anchor': before ? 'end' : 'start' }, name),
  );
}

/** Stripes for silence: not by colour alone. */
function hatch() {
  return svg(
    'defs',
    {},
    svg(
      'pattern',
      { id: 'stripes', width: 6, height: 6, patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)' },
      svg('rect', { width: 6, height: 6, class: 'stripe-ground' }),
      svg('rect', { width: 3, height: 6, class: 'stripe' }),
    ),
  );
}

function percent(share) {
  return `${Math.round(share * 100)} %`;
}
