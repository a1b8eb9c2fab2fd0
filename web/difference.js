// Compares two turns of the same question, one with the early start and one without. No DOM here.
//
// The figures are those of the two turns: nothing is estimated, and nothing is claimed if the turns
// cannot be compared.

import { rowsOf, stretch } from './marks.js';
import { moments, story, usedEarly } from './story.js';
import { end, FELT, resultAt, speech } from './turns.js';
import { seconds } from './text.js';

/** The user's turn of a conversation in which one question was played; undefined if there is none yet. */
export function asked(turns) {
  return turns.list.find((turn) => turn.user.spoken && turn.status !== 'dropped');
}

/** The wait from the end of the question to the answer's first sound, ms; null if none was heard. */
function wait(turn) {
  const { end: stopped, answer } = moments(turn);
  return answer === null || stopped === null ? null : answer - stopped;
}

/**
 * The outcome.
 * @returns {{sooner: number | null, number: string, says: string}} `sooner`: how much earlier the answer was heard with
 *   the early start, ms; null if the turns cannot be compared. `number`: the same in words; empty if it is null.
 */
export function difference(early, late) {
  const why = incomparable(early, late);
  if (why) return { sooner: null, number: '', says: why };
  const [soon, otherwise] = [wait(early), wait(late)];
  const sooner = otherwise - soon;
  const heard = `With the early start the answer was heard ${exactly(soon)} after the question, without it ${exactly(otherwise)} after.`;
  return { sooner, number: number(sooner), says: `${heard} ${starts(early, late)}` };
}

function number(sooner) {
  if (Math.abs(sooner) < FELT) return 'No difference to hear';
  return sooner > 0 ? `${seconds(sooner)} earlier` : `${seconds(-sooner)} later`;
}

/** A span in hundredths of a second, so that the difference of two rounds like their number. */
function exactly(ms) {
  return `${(ms / 1000).toFixed(2)} s`;
}

/** The reason that the turns say nothing about the early start; null if they do. */
function incomparable(early, late) {
  for (const [turn, which] of [[early, 'with'], [late, 'without']]) {
    if (!turn || !turn.over) return `The question ${which} the early start was not understood. Play it again.`;
    const told = story(turn);
    if (told.mood === 'failed') return `${told.says} That was ${which} the early start.`;
    if (turn.clauses.some((clause) => clause.cut)) return 'An answer was interrupted, so the two cannot be compared. Play it again.';
    if (wait(turn) === null) return `No answer was heard ${which} the early start. Play it again.`;
  }
  if (calls(early) !== calls(late)) return `It understood the question in two ways, “${early.user.text}” and “${late.user.text}”, so the two cannot be compared. Play it again.`;
  if (usedEarly(early).length === 0) return 'This time nothing began early, so there is no difference to hear. Play it again.';
  if (usedEarly(late).length > 0) return 'It began early both times, so the two cannot be compared.';
  return null;
}

const used = (turn) => turn.runs.filter((run) => run.committed !== undefined);

/** The calls whose results the answer used, as text. */
function calls(turn) {
  return JSON.stringify(used(turn).map((run) => [run.tool, run.arguments]));
}

/** How long the calls took, and when the first began. */
function starts(early, late) {
  const took = (turn) => seconds(Math.max(...used(turn).map((run) => resultAt(run) - run.started)));
  const began = (turn) => Math.min(...used(turn).map((run) => run.started)) - speech(turn).to;
  const at = (ms) => (ms < 0 ? `${exactly(-ms)} before the question ended` : `${exactly(ms)} after it`);
  const same = took(early) === took(late) ? `The call took ${took(early)} both times` : `The call took ${took(early)} with it and ${took(late)} without`;
  return `${same}; it began ${at(began(early))} instead of ${at(began(late))}.`;
}

/**
 * The time to show around the end of speech so that all turns fit the same scale, ms.
 * @param {{turn: object, now: number}[]} all
 */
export function around(all) {
  const needed = all.map(({ turn, now }) => {
    const until = turn.over ? end(turn) : now;
    return stretch(turn, rowsOf(turn, until, false, false), until, false);
  });
  return {
    before: Math.max(...needed.map(({ from, origin }) => origin - from)),
    after: Math.max(...needed.map(({ to, origin }) => to - origin)),
  };
}

/** The difference as a row below the turn without the early start. */
export function differenceRow(early, late) {
  const { sooner, number } = difference(early, late);
  if (sooner === null || sooner < FELT) return [];
  const { answer } = moments(late);
  const facts = ['with the early start the answer was heard at the beginning of this bar, without it at its end'];
  return [{ name: 'Difference', marks: [{ key: 'difference', from: answer - sooner, to: answer, style: 'difference', name: 'Heard earlier', label: number, facts }] }];
}
