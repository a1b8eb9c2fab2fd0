// Describes a turn in one sentence. No DOM here.
//
// Waits are computed from the timestamps in the turn's record and from this page's playout. The
// wait without the early start is given only where it follows from these.

import { end, FELT, isAlone, isEarly, isGuessWrong, playout, preparedAnswer, resultAt, speech, whyFailed } from './turns.js';
import { seconds } from './text.js';
import { attempt, discarded, doing, stage, subject } from './words.js';

const ASKED = 'This changes something, so it asks you first.';

/** The largest gap at which an answer counts as having waited for the end of a filler, ms. */
const BREATH = 60;

/**
 * The moments of a turn, in ms on the session's clock; null where unknown.
 *
 * - `end`: the user's last speech, or when the words were sent
 * - `first`: the agent's first sound; `answer`: the answer's first sound, not counting fillers
 * - `otherwise`: the answer's first sound if every call had started at its commit
 */
export function moments(turn) {
  const heard = playout(turn, end(turn));
  const answer = heard.find((piece) => piece.kind === 'answer');
  return {
    end: speech(turn).to,
    first: heard[0]?.from ?? null,
    answer: answer?.from ?? null,
    otherwise: answer ? withoutEarlyStart(turn, heard, answer.from) : null,
  };
}

/** Calls that started before their commit and were committed. */
export function usedEarly(turn) {
  return turn.runs.filter((run) => isEarly(run) && run.committed !== undefined);
}

/**
 * The answer's first sound if each call had started at its commit. Each call is assumed to take as
 * long as it did, which delays the last result. The answer follows the result at the same distance,
 * unless it waited for a filler to end: then all that is known is that it comes no earlier than the
 * result.
 */
function withoutEarlyStart(turn, heard, answer) {
  const runs = turn.runs.filter((run) => run.committed !== undefined);
  const early = usedEarly(turn);
  if (early.length === 0 || runs.some((run) => resultAt(run) === undefined)) return null;
  const last = (time) => Math.max(...runs.map(time));
  const came = last((run) => Math.max(run.committed, resultAt(run)));
  const wouldHave = last((run) => (early.includes(run) ? run.committed + resultAt(run) - run.started : Math.max(run.committed, resultAt(run))));
  if (answer < came) return null;
  const filler = heard.findLast((piece) => piece.kind === 'filler' && piece.to <= answer + 1);
  const waitedForFiller = filler !== undefined && answer - filler.to < BREATH;
  return waitedForFiller ? Math.max(answer, wouldHave) : answer + wouldHave - came;
}

/**
 * Tells what happened in a turn.
 * @returns {{mood: 'live' | 'early' | 'plain' | 'failed', says: string, more: string[]}} `more` are lines beside it
 */
export function story(turn) {
  if (!turn.over) return { mood: 'live', says: live(turn), more: [] };
  const told = failure(turn) ?? dropped(turn) ?? alone(turn) ?? asked(turn) ?? early(turn) ?? guessedWrong(turn) ?? late(turn) ?? plain(turn);
  return { mood: 'plain', ...told, more: [...(told.more ?? []), ...prepared(turn), ...interruption(turn)] };
}

/** The sentence for a turn in progress. It has no numbers yet. */
function live(turn) {
  const running = turn.runs.filter((run) => run.source && run.discarded === undefined);
  const work = doing(running.map((run) => run.tool));
  if (turn.user.speaking) return running.length > 0 ? `You are still speaking, and it is already ${work}.` : 'You are speaking.';
  if (turn.asked) return ASKED;
  const before = running.some((run) => turn.user.to !== null && run.started < turn.user.to);
  if (before) return `You have stopped. It was already ${work} while you spoke.`;
  return turn.clauses.some((clause) => clause.pieces.length > 0) ? 'It answers.' : 'It thinks.';
}

function failure(turn) {
  const { failure } = turn;
  if (failure) return { mood: 'failed', says: `${stage(failure.stage)}${after(turn, saidSince(turn, failure.at), ', and it said so')}.`, more: [`Why: ${failure.message}`] };
  const failed = turn.runs.find((run) => run.committed !== undefined && run.ok === false && !turn.declined);
  if (!failed) return null;
  const why = whyFailed(turn, failed);
  const told = saidSince(turn, resultAt(failed) ?? 0, 'answer');
  return { mood: 'failed', says: `${attempt(failed.tool)} failed${after(turn, told, ', and it said so')}.`, more: why ? [`Why: ${why}`] : [] };
}

/** When the first words generated after a moment were heard; null if none were. */
function saidSince(turn, at, kind) {
  const piece = playout(turn, end(turn)).find((piece) => piece.at >= at && (kind === undefined || piece.kind === kind));
  return piece?.from ?? null;
}

function dropped(turn) {
  if (turn.status !== 'dropped') return null;
  return { says: turn.continued ? 'That was no speech, so it went on.' : 'That was no speech, so it stayed silent.' };
}

function alone(turn) {
  if (!isAlone(turn)) return null;
  if (turn.confirmed) return { says: 'You said yes, and it did what it had asked for.' };
  return { says: turn.continues ? 'It went on with what a noise had cut short.' : 'It spoke by itself.' };
}

function asked(turn) {
  return turn.asked ? { says: ASKED } : null;
}

function early(turn) {
  const runs = usedEarly(turn);
  if (runs.length === 0) return null;
  const { end: stopped, answer, otherwise } = moments(turn);
  const began = Math.min(...runs.map((run) => run.started));
  const work = doing(runs.map((run) => run.tool));
  const saved = otherwise === null ? 0 : otherwise - answer;
  const felt = saved >= FELT && seconds(otherwise - stopped) !== seconds(answer - stopped);
  const instead = felt ? ` instead of ${seconds(otherwise - stopped)}` : '';
  const took = Math.max(...runs.map((run) => (resultAt(run) ?? run.started) - run.started));
  const why = felt
    ? `The call took ${seconds(took)}. Without the early start it would have begun only when the model asked for it.`
    : otherwise !== null && saved < FELT && hint(took);
  return { mood: 'early', says: `It was already ${work}${lead(turn, stopped, began)}${wait(turn, instead)}.`, more: [why, ...wrongGuesses(turn)].filter(Boolean) };
}

/** The wait for the answer. With a filler, the user did not wait in silence. */
function wait(turn, instead = '') {
  const { end: stopped, first, answer } = moments(turn);
  if (answer === null || stopped === null) return '';
  return `${first < answer ? '; the answer came after' : '; you waited'} ${seconds(answer - stopped)}${instead}`;
}

/** Explains why the early start made no audible difference. */
function hint(took) {
  return took < FELT ? `The call took ${seconds(took)}. The slower a tool is, the more its early start gains.` : 'What was said meanwhile has covered the wait, too.';
}

/** How long the call started before the end of speech. */
function lead(turn, stopped, began) {
  if (turn.user.spoken && stopped - began >= FELT / 2) return ` ${seconds(stopped - began)} before you stopped speaking`;
  const over = turn.latency.end_of_turn;
  if (turn.user.spoken && over !== undefined && began < over) return ' before it was certain that you had finished';
  return ' before the model had asked for it';
}

function guessedWrong(turn) {
  const [guess] = turn.runs.filter(isGuessWrong);
  if (!guess) return null;
  const about = `The guess was “${subject(guess.tool)}”; ${discarded(guess.reason)}.`;
  return { says: `An early guess was wrong and was thrown away unheard${soon(turn, 'answer', '; the answer came')}.`, more: [about] };
}

function wrongGuesses(turn) {
  const count = turn.runs.filter(isGuessWrong).length;
  if (count === 0) return [];
  return [count === 1 ? 'One wrong guess was thrown away unheard.' : `${count} wrong guesses were thrown away unheard.`];
}

function late(turn) {
  const runs = turn.runs.filter((run) => run.committed !== undefined);
  if (runs.length === 0) return null;
  const work = doing(runs.map((run) => run.tool));
  if (!turn.user.spoken) return { says: `It began ${work} when you had sent your words${wait(turn)}.`, more: ['Typed words come all at once. Say the same aloud to hear it begin early.'] };
  return { says: `It began ${work} only when you had stopped speaking${wait(turn)}.` };
}

function plain(turn) {
  const { answer } = moments(turn);
  if (answer === null && turn.continued) return { says: 'A noise came before the answer, which follows.' };
  return { says: answer === null ? 'No answer was heard.' : `The answer came${soon(turn, 'answer', '')}.`, more: answer === null ? [] : ['It needed no tool.'] };
}

/** "<words> 0.4 s after you stopped speaking"; nothing if nothing was heard. */
function soon(turn, name, words) {
  return after(turn, moments(turn)[name], words);
}

function after(turn, at, words) {
  const stopped = speech(turn).to;
  if (at === null || stopped === null) return '';
  return `${words} ${seconds(at - stopped)} after you ${turn.user.spoken ? 'stopped speaking' : 'had sent it'}`;
}

/** Lines about what the user gained by an answer that was prepared before it was certain to be needed. */
function prepared(turn) {
  const answer = preparedAnswer(turn);
  if (!answer) return [];
  const when = answer.before === 'end_of_turn' ? 'while it made sure that you had finished' : 'before the model had asked for the call';
  const unsaid = answer.before === 'commit' && turn.unsaid > 0 ? ' It needed no filler.' : '';
  return [`The answer was prepared ${when}: you heard it ${seconds(answer.saved)} sooner.${unsaid}`];
}

function interruption(turn) {
  const { bargeIn } = turn;
  if (!bargeIn || bargeIn.silent === null) return [];
  const onset = speech(bargeIn.by).from ?? bargeIn.at;
  return [`You spoke over it, and ${seconds(bargeIn.silent - onset)} later it was silent.`];
}
