// Statistics of the waits in a conversation.

import { deadAir, end, isEarly, isRefused, playout, speech } from './turns.js';
import { el, seconds, span } from './text.js';

/** The figures of one turn; null where unknown. Times are those of playout in this page. */
export function figures(turn) {
  const origin = speech(turn).to;
  const heard = playout(turn, end(turn));
  const since = (piece) => (piece && origin !== null ? piece.from - origin : null);
  const fillers = heard.some((piece) => piece.kind === 'filler');
  const answer = heard.find((piece) => piece.kind === 'answer');
  const early = turn.runs.filter((run) => isEarly(run) && !isRefused(run));
  const { bargeIn } = turn;
  const onset = bargeIn ? (speech(bargeIn.by).from ?? bargeIn.at) : null;
  return {
    first: since(heard[0]),
    answer: since(answer),
    dead: fillers && answer ? deadAir(turn, end(turn)).reduce((sum, gap) => sum + gap.to - gap.from, 0) : null,
    stop: bargeIn && bargeIn.silent !== null ? bargeIn.silent - onset : null,
    starts: early.length,
    hits: early.filter((run) => run.committed !== undefined).length,
    wasted: early.reduce((sum, run) => sum + (run.wasted ?? 0), 0),
    saved: early.reduce((sum, run) => sum + (run.committed === undefined ? 0 : (run.saved ?? 0)), 0),
  };
}

/**
 * The last value, the median and the 95th percentile (nearest rank).
 * @param {number[]} values
 */
export function summary(values) {
  if (values.length === 0) return { last: null, median: null, p95: null };
  const sorted = values.toSorted((a, b) => a - b);
  const rank = (share) => sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)];
  return { last: values.at(-1), median: rank(0.5), p95: rank(0.95) };
}

const SPANS = [
  ['first', 'First sound', 'From the end of your speech, or from sending, to the first sound of the agent in this page'],
  ['answer', 'Answer', 'The same to the first sound of the answer itself, fillers left out'],
  ['dead', 'Dead air', 'Silence between a filler and the answer'],
  ['stop', 'Barge-in stop', 'From the beginning of your voice to silence in this page'],
];

/** Shows the figures of all turns in `place`. */
export function showMetrics(place, turns) {
  const all = turns.filter((turn) => turn.over && turn.status !== 'dropped').map(figures);
  const values = (name) => all.map((one) => one[name]).filter((value) => value !== null);
  const total = (name) => all.reduce((sum, one) => sum + one[name], 0);
  const last = all.findLast((one) => one.starts > 0);
  const starts = total('starts');
  const rate = starts ? `${Math.round((100 * total('hits')) / starts)} %` : '–';
  place.replaceChildren(
    ...SPANS.map(([name, title, meaning]) => {
      const { last: newest, median, p95 } = summary(values(name));
      return tile(title, meaning, span(newest), `median ${span(median)} · p95 ${span(p95)}`);
    }),
    tile('Early calls used', 'Calls that ran before they were certain and that the model then asked for', last ? `${last.hits} of ${last.starts}` : '–', `all ${total('hits')} of ${starts} · ${rate}`),
    tile('Saved · wasted', 'How much sooner results were there, and how long calls ran for nothing', last ? `${span(last.saved)} · ${span(last.wasted)}` : '–', `all ${span(total('saved'))} · ${span(total('wasted'))}`),
  );
}

/** The waits in a few words: "median 0.4 s to the first sound, 1.2 s to the answer". */
export function waitsInShort(turns) {
  const all = turns.filter((turn) => turn.over && turn.status !== 'dropped').map(figures);
  const median = (name) => summary(all.map((one) => one[name]).filter((value) => value !== null)).median;
  const [first, answer] = [median('first'), median('answer')];
  if (first === null) return '';
  return `${all.length > 1 ? 'median ' : ''}${seconds(first)} to the first sound${answer === null ? '' : `, ${seconds(answer)} to the answer`}`;
}

function tile(title, meaning, value, rest) {
  return el('div', { class: 'tile', title: meaning }, el('dt', {}, title), el('dd', { class: 'value' }, value), el('dd', { class: 'rest' }, rest));
}
