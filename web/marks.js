// Computes the drawing of a turn: rows of marks, and the visible time range. No DOM here.

import { moments } from './story.js';
import { deadAir, end, isEarly, isFiller, isGuessWrong, playout, preparedAnswer, resultAt, speech, whyFailed } from './turns.js';
import { listed, seconds, span } from './text.js';
import { decided, discarded, guesser, spaced, subject } from './words.js';

/** Time shown before the end of speech, ms. */
const BEFORE = 1000;

/** The most time shown before the end of speech to include an early call, ms. */
const MOST_BEFORE = 4000;

/** Time shown of the answer, ms. */
const OF_ANSWER = 900;

/** The least time shown after the end of speech, ms. */
const AFTER = 1200;

/**
 * One mark.
 * @typedef {object} Mark
 * @property {string} key
 * @property {number} from
 * @property {number} to
 * @property {boolean} [point]
 * @property {string} style classes
 * @property {string} name
 * @property {string} [label] drawn on it, or beside it if it is too short
 * @property {string} [short] a shorter label for less room
 * @property {string[]} facts
 */

/**
 * The rows of a turn at `now`: {name, marks}.
 * @param {boolean} whole whether to include every stage, not only the request, early calls and playout
 * @param {boolean} estimates whether to include the wait without the early start
 */
export function rowsOf(turn, now, whole, estimates = true) {
  const rows = [
    { name: 'You', marks: speechMarks(turn, now) },
    whole && { name: 'Transcript', marks: transcriptMarks(turn) },
    whole && { name: 'Guesses', marks: turn.predictions.map(guessMark) },
    ...turn.runs.map((run) => ({ name: isEarly(run) ? 'Early call' : 'Call', marks: callMarks(turn, run, now) })),
    whole && { name: 'Model', marks: modelMarks(turn, now) },
    ...preparedRows(turn, whole),
    whole && { name: 'Voice', marks: turn.clauses.map((clause, index) => voiceMark(turn, clause, index)) },
    { name: 'You heard', marks: heardMarks(turn, now) },
    estimates && { name: 'Otherwise', marks: otherwiseMarks(turn) },
  ];
  const certain = ({ from, to }) => Number.isFinite(from) && Number.isFinite(to);
  return rows.filter(Boolean).map((row) => ({ ...row, marks: row.marks.filter(certain) })).filter((row) => row.marks.length > 0);
}

/**
 * The visible time range: from one second before the end of speech, or from the first early call,
 * until the answer has started. The whole turn if `whole`.
 */
export function stretch(turn, rows, now, whole) {
  const marks = rows.flatMap((row) => row.marks);
  const least = Math.min(...marks.map((mark) => mark.from), now);
  const most = Math.max(...marks.map((mark) => mark.to), turn.over ? 0 : now);
  const stopped = turn.user.speaking ? now : (speech(turn).to ?? least);
  if (whole) return { from: least, to: Math.max(most, least + 2 * BEFORE), origin: stopped };
  const early = turn.runs.filter(isEarly).map((run) => run.started - 150);
  const from = Math.max(Math.min(stopped - BEFORE, ...early), stopped - MOST_BEFORE);
  const { answer, otherwise } = moments(turn);
  const calls = turn.runs.flatMap((run) => [resultAt(run), run.committed, run.discarded]).filter((time) => time !== undefined);
  const last = answer === null ? most : Math.max(answer + OF_ANSWER, (otherwise ?? 0) + OF_ANSWER / 2, ...calls.map((time) => time + 100));
  return { from: turn.user.spoken ? from : Math.min(stopped, ...early) - 100, to: Math.max(turn.over ? last : Math.max(last, now), stopped + AFTER), origin: stopped };
}

function speechMarks(turn, now) {
  const { from, to } = speech(turn);
  if (from === null) return [];
  const facts = [`“${turn.user.text}”`];
  if (!turn.user.spoken) return [{ key: 'you', from, to: from, point: true, style: 'you', name: 'You sent', label: turn.user.text, facts }];
  return [{ key: 'you', from, to: turn.user.speaking ? now : (to ?? now), style: 'you', name: 'You spoke', label: turn.user.text, facts }];
}

function transcriptMarks(turn) {
  const partials = turn.partials.map(({ at, text }, index) => point(`partial-${index}`, at, 'partial', 'Partial transcript', [`“${text}”`]));
  const { transcript, completeness, end_of_turn: over } = turn.latency;
  const stages = [
    point('transcript', transcript, 'final', 'Final transcript', [`“${turn.user.text}”`]),
    point('completeness', completeness, 'final', 'The end-of-turn model has judged', []),
    point('over', turn.user.spoken ? over : undefined, 'final', 'The turn is over', []),
  ];
  return [...partials, ...stages.filter(({ from }) => from !== undefined)];
}

function point(key, at, style, name, facts) {
  return { key, from: at, to: at, point: true, style, name, facts };
}

function guessMark({ at, tool, source, confidence, decision, arguments: values }, index) {
  const followed = decision === 'started' || decision === 'known';
  const facts = [listed(values), `by ${guesser(source)}, ${percent(confidence)} sure`, decided(decision)];
  return point(`guess-${index}`, at, followed ? 'followed' : 'declined', `${spaced(tool)} guessed`, facts.filter(Boolean));
}

/** A call from its start to its result, and the time that the result waited for the commit. */
function callMarks(turn, run, now) {
  const ended = Math.min(resultAt(run) ?? Infinity, run.discarded ?? Infinity);
  const to = Math.max(Number.isFinite(ended) ? ended : turn.over ? run.started : now, run.started);
  const failed = run.ok === false && run.discarded === undefined && Number.isFinite(ended) ? true : run.reason === 'failed';
  const early = isEarly(run);
  const values = Object.values(run.arguments ?? {}).filter((value) => typeof value === 'string' || typeof value === 'number');
  const label = [subject(run.tool), ...values].join(' · ');
  const call = {
    key: `run-${run.run}`, from: run.started, to, style: `call ${fate(run, early, failed)}`,
    name: `${run.tool}${early ? ' began early' : ''}${failed ? ' and failed' : ''}`,
    label: failed ? `✕ ${label} failed` : run.discarded === undefined ? label : `${label}: thrown away`,
    facts: callFacts(turn, run, failed),
  };
  const result = resultAt(run);
  const waits = early && run.committed !== undefined && result !== undefined && result < run.committed;
  const held = { key: `held-${run.run}`, from: result, to: run.committed, style: 'held', name: 'Its result waits, unheard', facts: ['until the model asks for it'] };
  const asked = { ...point(`asked-${run.run}`, run.committed, 'asked', `The model asks for ${run.tool}`, waits ? ['the result is there already'] : []), label: 'asked for' };
  return [call, ...(waits ? [held] : []), ...(early && run.committed !== undefined ? [asked] : [])];
}

function fate(run, early, failed) {
  if (failed) return 'failed';
  if (run.discarded !== undefined) return 'discarded';
  if (!early) return 'late';
  return run.committed === undefined ? 'started' : 'used';
}

function callFacts(turn, run, failed) {
  const result = resultAt(run);
  return [
    listed(run.arguments),
    run.source && `guessed by ${guesser(run.source)}, ${percent(run.confidence)} sure`,
    result !== undefined ? `result after ${span(result - run.started)}` : 'no result yet',
    failed && `why: ${whyFailed(turn, run) ?? 'it does not say'}`,
    isEarly(run) && run.committed !== undefined && `there ${span(run.saved ?? Math.max(0, Math.min(result ?? run.committed, run.committed) - run.started))} sooner`,
    run.discarded !== undefined && `thrown away${isGuessWrong(run) ? ' as a wrong guess' : ''}: ${discarded(run.reason)}; ${span(run.wasted)} for nothing`,
  ].filter(Boolean);
}

function modelMarks(turn, now) {
  const { generation, llm_first: first, commit, tool_result: result, answer_audio: answer, first_audio: heard } = turn.latency;
  const open = (from, to) => ({ from, to: to ?? (turn.over ? from : now) });
  const marks = [];
  if (generation !== undefined) marks.push({ key: 'model-1', ...open(generation, first ?? commit ?? heard), style: 'thinking', name: 'Model, to its first words', label: 'thinks', facts: ['it may be asked before the turn is over; what it says is then held back'] });
  if (first !== undefined && commit !== undefined) marks.push({ key: 'model-2', from: first, to: commit, style: 'thinking', name: 'Model, until it has asked for the call', label: 'writes', facts: [] });
  if (result !== undefined) marks.push({ key: 'model-3', ...open(Math.max(result, commit ?? 0), answer), style: 'thinking', name: 'Model again, to the answer’s first sound', label: 'answers', facts: ['with the result; voice and filler included'] });
  return marks;
}

/**
 * Answers that were prepared before they were certain to be needed: the one that was heard sooner, or all of
 * them if `whole`.
 */
function preparedRows(turn, whole) {
  const heard = preparedAnswer(turn);
  if (!whole) return heard ? [{ name: 'Prepared', marks: [preparedMark(heard, 'sooner')] }] : [];
  const first = turn.prepared.filter(({ before }) => before === 'end_of_turn');
  const second = turn.prepared.filter(({ before }) => before !== 'end_of_turn');
  return [first, second].map((answers) => ({ name: 'Prepared', marks: answers.map(preparedMark) }));
}

/** Words for the event that was still to come when an answer was asked for. */
const BEFORE_WHAT = {
  end_of_turn: 'asked for before it was certain that you had finished',
  commit: 'asked for with the result of the early call, before the model had asked for the call',
  end_of_stream: 'asked for before the model had quite finished its call',
};

function preparedMark({ before, began, ended, used, saved, delayed, tokens }, key) {
  const facts = [
    BEFORE_WHAT[before],
    used ? (saved >= 1 ? `heard ${span(saved)} sooner` : 'heard no sooner: something else took as long') : 'thrown away, unheard',
    delayed >= 1 && `other words waited ${span(delayed)} for it`,
    `${tokens} tokens`,
  ];
  return {
    key: `prepared-${before}-${key}`, from: began, to: Math.max(ended, began), style: `prepared ${used ? 'used' : 'discarded'}`,
    name: used ? 'The answer, prepared early' : 'An answer that was not needed', label: used ? 'answer prepared early' : 'answer: thrown away', short: used ? 'prepared' : '',
    facts: facts.filter(Boolean),
  };
}

function voiceMark(turn, clause, index) {
  const filler = isFiller(turn, clause);
  return {
    key: `clause-${index}`, from: clause.at, to: clause.at + clause.samples / 24, style: filler ? 'filler' : 'answer',
    name: filler ? 'Filler' : 'Answer', label: clause.text,
    facts: [`“${clause.text}”`, clause.cut && `heard ${span(clause.heard / 24)} of ${span(clause.samples / 24)}`].filter(Boolean),
  };
}

function heardMarks(turn, now) {
  const heard = playout(turn, now).map((piece, index) => ({
    key: `heard-${index}`, from: piece.from, to: piece.to, style: [piece.kind, piece.cut ? 'cut' : ''].join(' ').trim(), label: piece.text,
    name: `${piece.kind === 'filler' ? 'Filler' : 'Answer'}${piece.cut ? ', until you interrupted' : ''}`, facts: [`“${piece.text}”`],
  }));
  const gaps = deadAir(turn, now).map((gap, index) => ({
    key: `dead-${index}`, from: gap.from, to: gap.to, style: 'dead', name: 'Silence again', facts: ['nothing was heard between filler and answer'],
  }));
  return [...waitMarks(turn, now, heard[0]), ...gaps, ...heard, ...bargeMarks(turn)];
}

/** The silence before the first sound. */
function waitMarks(turn, now, first) {
  const { to } = speech(turn);
  if (to === null || turn.user.speaking) return [];
  const until = first?.from ?? (turn.over ? null : now);
  if (until === null || until <= to) return [];
  return [{ key: 'wait', from: to, to: until, style: 'wait', name: 'You waited', label: seconds(until - to), facts: ['until the first sound'] }];
}

function bargeMarks({ bargeIn }) {
  if (!bargeIn || bargeIn.silent === null) return [];
  return [point('barge', bargeIn.silent, 'barge', 'You spoke over it, and it fell silent', [])];
}

/** The wait for the answer without the early start. */
function otherwiseMarks(turn) {
  const { end: stopped, answer, otherwise } = moments(turn);
  if (otherwise === null || stopped === null || otherwise - answer < BEFORE / 10) return [];
  return [
    {
      key: 'otherwise', from: stopped, to: otherwise, style: 'wait ghost', name: 'Without the early start', label: `${seconds(otherwise - stopped)} without the early start`, short: seconds(otherwise - stopped),
      facts: ['the answer would have come here, had the call begun when the model asked for it'],
    },
  ];
}

function percent(share) {
  return `${Math.round(share * 100)} %`;
}
