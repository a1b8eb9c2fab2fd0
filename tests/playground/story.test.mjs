// Tests the page's sentence about a turn: its arithmetic and its words. Run by `node --test`.

import assert from 'node:assert/strict';
import test from 'node:test';
import { around, asked, difference, differenceRow } from '../../web/difference.js';
import { rowsOf, stretch } from '../../web/marks.js';
import { figures } from '../../web/metrics.js';
import { moments, story } from '../../web/story.js';
import { toolsInShort } from '../../web/tools.js';
import { Turns } from '../../web/turns.js';
import { attempt, doing } from '../../web/words.js';

const us = (ms) => ms * 1000;

/** A committed run of a turn whose user stopped at 2,500 ms and whose model asked for it at 2,800 ms. */
const EARLY = { run: 1, tool: 'get_balance', arguments: {}, source: 'rule', confidence: 0.9, started: 2000, finished: 2700, ok: true, committed: 2800 };
const LATE = { ...EARLY, source: null, started: 2800, finished: 3500 };
const ANSWER = { text: 'You have twelve dollars.', from: 2840, to: 4840 };

function recorded({ started, finished, committed, discarded, reason, ...run }) {
  const fate = discarded === undefined ? { kind: 'committed', at: us(committed), calls: [1] } : { kind: 'discarded', at: us(discarded), reason };
  return { saved: 0, wasted: 0, cost: 0, ...run, started: us(started), finished: finished === null ? null : us(finished), fate };
}

/**
 * A finished turn, built from events of the server and of the page's player. Both clocks are the
 * same.
 * @param {{runs?: object[], said?: object[], typed?: boolean, status?: string, before?: object[]}} what
 */
function turnOf({ runs = [], held = [], unsaid = 0, said = [ANSWER], typed = false, status = 'completed', text = 'What is my balance?', before = [] }) {
  const turns = new Turns();
  const take = (at, event) => turns.take({ ...event, undertone_at: us(at) }, at);
  if (typed) {
    // The first event synchronises the clocks.
    turns.take({ type: 'session.created', undertone_at: us(100) }, 100);
    turns.typed(2500);
    take(2510, { type: 'conversation.item.done', item: { role: 'user', content: [{ type: 'input_text', text }] } });
  } else {
    take(1100, { type: 'input_audio_buffer.speech_started', audio_start_ms: 1000 });
    take(2750, { type: 'input_audio_buffer.speech_stopped', audio_end_ms: 2500 });
    take(2760, { type: 'conversation.item.input_audio_transcription.completed', transcript: text });
  }
  take(2770, { type: 'response.created' });
  for (const { time = 2780, ...event } of before) take(time, event);
  for (const { text, at, from, to } of said) {
    take(at ?? from, { type: 'response.output_audio_transcript.delta', item_id: 'item', delta: text });
    turns.audio('item', (to - from) * 24);
  }
  turns.list[0].clauses.forEach(({ id, samples }, index) => {
    turns.heard('started', { id, samples: 0, at: said[index].from });
    turns.heard('ended', { id, samples, at: said[index].to });
  });
  const committed = runs.filter((run) => run.committed !== undefined);
  const result = Math.max(...committed.map((run) => Math.max(run.committed, run.finished ?? 0)));
  const answer = said.find((clause) => !clause.filler);
  const latency = {
    speech_end: typed ? null : us(2500),
    end_of_turn: us(2750),
    generation: us(2700),
    commit: committed.length ? us(2800) : null,
    tool_result: committed.length ? us(result) : null,
    first_audio: said.length ? us(said[0].at ?? said[0].from) : null,
    answer_audio: committed.length && answer ? us(answer.at ?? answer.from) : null,
  };
  const told = { status, latency };
  take(5000, { type: 'undertone.turn', turn: 'turn_1', ...told });
  take(5001, { type: 'undertone.turn_record', turn: 1, ...told, predictions: [], fillers: 0, fillers_dropped: unsaid, held, runs: runs.map(recorded) });
  return turns.list[0];
}

const filler = (from, to) => ({ text: 'Let me look.', from, to, at: from, filler: true });

test('an early call is told with the wait and with what it would have been', () => {
  const told = story(turnOf({ runs: [EARLY] }));
  assert.equal(told.mood, 'early');
  assert.equal(told.says, 'It was already looking up the balance 0.5 s before you stopped speaking; you waited 0.3 s instead of 1.0 s.');
  assert.match(told.more[0], /took 0\.7 s/);
});

test('without the early start the result would have come as much later as the run had begun earlier', () => {
  // The result was ready before the commit; a start at 2,800 would have delayed it from 2,800 to 3,500.
  const early = moments(turnOf({ runs: [EARLY] }));
  assert.deepEqual([early.end, early.answer, early.otherwise], [2500, 2840, 3540]);
  // The call was still running at the commit, so only the 800 ms before it are saved.
  const running = moments(turnOf({ runs: [{ ...EARLY, finished: 3400 }], said: [{ ...ANSWER, from: 3500, to: 5000 }] }));
  assert.equal(running.otherwise, 3500 + 800);
});

test('an answer that waited for a filler came no sooner than its end, and nothing more is claimed', () => {
  const said = (end) => [filler(2900, end), { ...ANSWER, from: end, to: end + 1000 }];
  // The result would have been ready at 3,500 and the filler ended at 4,000, so nothing was saved.
  assert.equal(moments(turnOf({ runs: [EARLY], said: said(4000) })).otherwise, 4000);
  const covered = story(turnOf({ runs: [EARLY], said: said(4000) }));
  assert.doesNotMatch(covered.says, /instead/);
  assert.match(covered.says, /; the answer came after 1\.5 s\.$/);
  // The filler ended at 3,000, so the answer would have come at 3,500 at the earliest.
  assert.equal(moments(turnOf({ runs: [EARLY], said: said(3000) })).otherwise, 3500);
});

test('of several calls the last result counts', () => {
  const slow = { ...LATE, run: 2, tool: 'get_weather', finished: 4000 };
  const turn = turnOf({ runs: [EARLY, slow], said: [{ ...ANSWER, from: 4100, to: 5000 }] });
  assert.equal(moments(turn).otherwise, 4100, 'the answer waited for the other call');
  assert.doesNotMatch(story(turn).says, /instead/);
});

test('no saving is claimed that cannot be felt or is not known', () => {
  const quick = story(turnOf({ runs: [{ ...EARLY, finished: 2005 }] }));
  assert.equal(quick.says, 'It was already looking up the balance 0.5 s before you stopped speaking; you waited 0.3 s.');
  assert.match(quick.more[0], /slower a tool/);
  const endless = turnOf({ runs: [{ ...EARLY, finished: null }] });
  assert.equal(moments(endless).otherwise, null);
  assert.doesNotMatch(story(endless).says, /instead/);
  assert.doesNotMatch(story(turnOf({ runs: [LATE], said: [{ ...ANSWER, from: 3600, to: 5000 }] })).says, /instead|already/);
});

test('whatever the stamps, the wait without the early start is no shorter, and no longer than what ran early', () => {
  let seed = 7;
  const some = (least, most) => least + ((seed = (seed * 1103515245 + 12345) % 2 ** 31) % (most - least));
  for (let round = 0; round < 500; round += 1) {
    const started = some(1200, 2780);
    const finished = started + some(1, 3000);
    const answer = Math.max(2800, finished) + some(1, 900);
    const turn = turnOf({ runs: [{ ...EARLY, started, finished }], said: [{ ...ANSWER, from: answer, to: answer + 500 }] });
    const { otherwise } = moments(turn);
    if (otherwise === null) continue;
    assert.ok(otherwise >= answer, `${started} ${finished} ${answer}: ${otherwise}`);
    assert.ok(otherwise - answer <= 2800 - started, `${started} ${finished} ${answer}: ${otherwise}`);
  }
});

test('a call that began after the last word but before it was certain says so', () => {
  const told = story(turnOf({ runs: [{ ...EARLY, started: 2600, finished: 2900 }], said: [{ ...ANSWER, from: 3000, to: 5000 }] }));
  assert.match(told.says, /^It was already looking up the balance before it was certain that you had finished; you waited 0\.5 s instead of 0\.7 s\.$/);
});

test('a turn without early calls is told plainly', () => {
  assert.equal(story(turnOf({})).says, 'The answer came 0.3 s after you stopped speaking.');
  assert.equal(story(turnOf({ typed: true })).says, 'The answer came 0.3 s after you had sent it.');
  const late = story(turnOf({ runs: [LATE], said: [{ ...ANSWER, from: 3600, to: 5000 }] }));
  assert.equal(late.says, 'It began looking up the balance only when you had stopped speaking; you waited 1.1 s.');
  const typed = story(turnOf({ typed: true, runs: [{ ...LATE, source: 'rule', started: 2799 }], said: [{ ...ANSWER, from: 3600, to: 5000 }] }));
  assert.equal(typed.says, 'It began looking up the balance when you had sent your words; you waited 1.1 s.');
});

test('a wrong guess is admitted', () => {
  const wrong = { ...EARLY, run: 2, tool: 'get_weather', arguments: { place: 'New' }, committed: undefined, discarded: 2300, reason: 'superseded', ok: false, finished: null };
  const alone = story(turnOf({ runs: [wrong] }));
  assert.equal(alone.says, 'An early guess was wrong and was thrown away unheard; the answer came 0.3 s after you stopped speaking.');
  assert.match(alone.more[0], /“weather”; your next words changed/);
  assert.ok(story(turnOf({ runs: [wrong, EARLY] })).more.includes('One wrong guess was thrown away unheard.'));
});

test('a failed tool looks like a failure and says why', () => {
  const before = [
    { type: 'response.output_item.added', item: { id: 'call', type: 'mcp_call', name: 'get_balance' } },
    { type: 'response.mcp_call.failed', item_id: 'call' },
    { type: 'response.output_item.done', item: { id: 'call', type: 'mcp_call', name: 'get_balance', error: { message: 'the bank is closed' } } },
  ];
  const turn = turnOf({ runs: [{ ...EARLY, ok: false }], before });
  const told = story(turn);
  assert.equal(told.mood, 'failed');
  assert.equal(told.says, 'Looking up the balance failed, and it said so 0.3 s after you stopped speaking.');
  assert.deepEqual(told.more, ['Why: the bank is closed']);
  const mark = rowsOf(turn, 5000, false).flatMap((row) => row.marks).find(({ key }) => key === 'run-1');
  assert.match(mark.style, /failed/);
  assert.match(mark.label, /failed/);
  assert.ok(mark.facts.includes('why: the bank is closed'));
});

test('a failed stage says which and why', () => {
  const told = story(turnOf({ before: [{ type: 'undertone.stage_failed', stage: 'llm', message: 'nobody answers at its address' }] }));
  assert.equal(told.says, 'The language model failed, and it said so 0.3 s after you stopped speaking.');
  assert.deepEqual([told.mood, told.more[0]], ['failed', 'Why: nobody answers at its address']);
});

test('a failure is told with the time of what was said about it, and not of a filler before it', () => {
  const failed = { type: 'undertone.stage_failed', stage: 'llm', message: 'it stalled', time: 4000 };
  const apology = { text: 'Sorry.', from: 4500, to: 5000 };
  const told = story(turnOf({ before: [failed], said: [filler(2840, 3200), apology] }));
  assert.equal(told.says, 'The language model failed, and it said so 2.0 s after you stopped speaking.');
  assert.equal(story(turnOf({ before: [failed], said: [filler(2840, 3200)] })).says, 'The language model failed.');
});

test('a change is told as a question, and a no is no failure', () => {
  const asked = { type: 'undertone.confirmation.asked', name: 'add_note' };
  assert.match(story(turnOf({ before: [asked] })).says, /asks you first/);
  const turns = new Turns();
  turns.take({ type: 'undertone.confirmation.ended', outcome: 'accepted', undertone_at: us(100) }, 100);
  turns.take({ type: 'response.created', undertone_at: us(110) }, 110);
  turns.take({ type: 'undertone.turn', turn: 'turn_1', status: 'completed', latency: {}, undertone_at: us(900) }, 900);
  assert.match(story(turns.list[0]).says, /^You said yes/);
  const declined = turnOf({ runs: [{ ...LATE, tool: 'add_note', ok: false }], before: [asked, { type: 'undertone.confirmation.ended', outcome: 'declined' }] });
  assert.notEqual(story(declined).mood, 'failed');
});

test('a call that the server refused to run early counts as none, as in the metrics', () => {
  for (const reason of ['overloaded', 'budget']) {
    const refused = { ...EARLY, run: 2, committed: undefined, finished: null, discarded: 2010, reason, wasted: us(10) };
    const { starts, hits, wasted } = figures(turnOf({ runs: [refused, EARLY] }));
    assert.deepEqual([starts, hits, wasted], [1, 1, 0]);
  }
});

test('while the user speaks no number is told, and what runs early is', () => {
  const turns = new Turns();
  turns.take({ type: 'input_audio_buffer.speech_started', audio_start_ms: 1000, undertone_at: us(1100) }, 1100);
  assert.deepEqual(story(turns.list[0]), { mood: 'live', says: 'You are speaking.', more: [] });
  turns.take({ type: 'undertone.speculation', kind: 'started', at: us(1900), undertone_at: us(1900), run: 1, tool: 'get_weather', arguments: {}, source: 'rule', confidence: 1 }, 1900);
  assert.equal(story(turns.list[0]).says, 'You are still speaking, and it is already looking up the weather.');
});

/** A question, and an answer in progress; `sounds` is how much of it plays until it is cut. */
function answering(sounds) {
  const turns = new Turns();
  const take = (at, event) => turns.take({ ...event, undertone_at: us(at) }, at);
  take(1100, { type: 'input_audio_buffer.speech_started', audio_start_ms: 1000 });
  take(2750, { type: 'input_audio_buffer.speech_stopped', audio_end_ms: 2500 });
  take(2760, { type: 'conversation.item.input_audio_transcription.completed', transcript: 'What is my balance?' });
  take(2770, { type: 'response.created' });
  if (sounds) {
    take(2900, { type: 'response.output_audio_transcript.delta', item_id: 'item', delta: 'You have twelve dollars.' });
    turns.audio('item', 48000);
    turns.heard('started', { id: turns.list[0].clauses[0].id, samples: 0, at: 2900 });
  }
  return { turns, take };
}

/** The user is detected at 3,600 ms and the page stops playing 50 ms later, possibly before it learns why. */
function heardAgain({ turns, take }, silentFirst) {
  const speech = () => take(3600, { type: 'input_audio_buffer.speech_started', audio_start_ms: 3500 });
  const [clause] = turns.list[0].clauses;
  if (!silentFirst) speech();
  if (clause) turns.heard('flushed', { id: clause.id, samples: 16800, at: 3650 });
  turns.silenced(3650);
  if (silentFirst) speech();
  take(3660, { type: 'undertone.turn', turn: 'turn_1', status: 'interrupted', latency: { speech_end: us(2500) } });
}

test('who speaks over a sounding answer is told how soon it was silent', () => {
  for (const silentFirst of [false, true]) {
    const conversation = answering(true);
    heardAgain(conversation, silentFirst);
    const [turn] = conversation.turns.list;
    assert.deepEqual(story(turn).more.at(-1), 'You spoke over it, and 0.1 s later it was silent.');
    assert.ok(figures(turn).stop > 0);
  }
});

test('who goes on before the answer sounds has not spoken over it', () => {
  const conversation = answering(false);
  heardAgain(conversation, false);
  const [turn] = conversation.turns.list;
  assert.deepEqual([story(turn).says, story(turn).more], ['No answer was heard.', []]);
  assert.equal(figures(turn).stop, null);
});

test('after a noise over an answer the page says that it went on', () => {
  for (const sounds of [true, false]) {
    const { turns, take } = answering(sounds);
    heardAgain({ turns, take }, false);
    const noise = turns.list[1];
    take(4200, { type: 'undertone.utterance_dropped' });
    assert.equal(story(noise).says, 'That was no speech, so it stayed silent.');
    for (const at of [4210, 5400]) {
      take(at, { type: 'response.created' });
      take(at + 1000, { type: 'undertone.turn', turn: `turn_${at}`, status: 'completed', latency: {} });
    }
    const [first, , rest, more] = turns.list;
    assert.equal(story(noise).says, 'That was no speech, so it went on.');
    assert.doesNotMatch([story(first).says, ...story(first).more].join(' '), /spoke over|No answer/);
    for (const turn of [rest, more]) assert.equal(story(turn).says, 'It went on with what a noise had cut short.');
    assert.equal(figures(first).stop, null);
    // A timer announcement long after is not the continuation.
    take(20000, { type: 'response.created' });
    take(20900, { type: 'undertone.turn', turn: 'turn_9', status: 'completed', latency: {} });
    assert.equal(story(turns.list.at(-1)).says, 'It spoke by itself.');
  }
});

test('a noise, and an answer that nobody heard', () => {
  const turns = new Turns();
  turns.take({ type: 'input_audio_buffer.speech_started', audio_start_ms: 1000, undertone_at: us(1100) }, 1100);
  turns.take({ type: 'undertone.utterance_dropped', undertone_at: us(1500) }, 1500);
  assert.match(story(turns.list[0]).says, /no speech/);
  assert.equal(story(turnOf({ said: [] })).says, 'No answer was heard.');
});

test('the axis begins a second before the end of speech, or at an early call, and ends in the answer', () => {
  const shown = (turn) => stretch(turn, rowsOf(turn, 5000, false), 5000, false);
  assert.deepEqual(shown(turnOf({ said: [{ ...ANSWER, from: 3600, to: 9000 }] })), { from: 1500, to: 4500, origin: 2500 });
  assert.equal(shown(turnOf({ runs: [{ ...EARLY, started: 1300 }] })).from, 1150);
  const whole = turnOf({ said: [{ ...ANSWER, from: 3600, to: 9000 }] });
  assert.equal(stretch(whole, rowsOf(whole, 9000, true), 9000, true).to, 9000);
});

test('what would have been is drawn only where it is known', () => {
  const rows = (turn) => rowsOf(turn, 5000, false).map(({ name }) => name);
  assert.deepEqual(rows(turnOf({ runs: [EARLY] })), ['You', 'Early call', 'You heard', 'Otherwise']);
  assert.deepEqual(rows(turnOf({ runs: [LATE], said: [{ ...ANSWER, from: 3600, to: 5000 }] })), ['You', 'Call', 'You heard']);
});

test('tools are told by what their names say, and no more', () => {
  assert.equal(doing(['get_weather']), 'looking up the weather');
  assert.equal(doing(['getWeather', 'read-my-notes', 'get_weather']), 'looking up the weather and the notes');
  assert.equal(doing(['convert_currency']), 'working on the answer');
  assert.equal(attempt('add_note'), 'The call “add note”');
  const tools = [{ eligibility: 'full' }, { eligibility: 'warm-up' }, { eligibility: 'forbid' }];
  assert.equal(toolsInShort(tools, true), '1 runs early, 2 wait');
  assert.equal(toolsInShort(tools, false), '0 run early, 3 wait');
});

/** The same question twice: the answer was heard at 2,900 ms with the early start, and at 3,700 ms without. */
const WITH = { runs: [EARLY], said: [{ ...ANSWER, from: 2900, to: 4900 }] };
const WITHOUT = { runs: [LATE], said: [{ ...ANSWER, from: 3700, to: 4900 }] };

test('two playings are compared by when each answer was heard, in one number', () => {
  const [early, late] = [turnOf(WITH), turnOf(WITHOUT)];
  const { sooner, number, says } = difference(early, late);
  assert.equal(sooner, 800);
  assert.equal(number, '0.8 s earlier');
  assert.equal(says, 'With the early start the answer was heard 0.40 s after the question, without it 1.20 s after. The call took 0.7 s both times; it began 0.50 s before the question ended instead of 0.30 s after it.');
  const [row] = differenceRow(early, late);
  assert.deepEqual([row.marks[0].from, row.marks[0].to, row.marks[0].label], [2900, 3700, '0.8 s earlier']);
});

test('two playings are compared whatever their clocks say: each counts from the end of its own question', () => {
  const later = turnOf(WITHOUT);
  const shift = 60_000;
  for (const run of later.runs) for (const stamp of ['started', 'finished', 'committed']) run[stamp] += shift;
  for (const piece of later.clauses.flatMap(({ pieces }) => pieces)) for (const stamp of ['from', 'to']) piece[stamp] += shift;
  later.latency.speech_end += shift;
  assert.equal(difference(turnOf(WITH), later).sooner, 800);
});

test('a comparison claims no number that the turns do not prove', () => {
  const refused = (early, late, why) => {
    const { sooner, number, says } = difference(early && turnOf(early), late && turnOf(late));
    assert.deepEqual([sooner, number], [null, ''], says);
    assert.match(says, why);
    if (early && late) assert.deepEqual(differenceRow(turnOf(early), turnOf(late)), []);
  };
  refused(undefined, WITHOUT, /with the early start was not understood/);
  refused(WITH, undefined, /without the early start was not understood/);
  refused({ ...WITH, runs: [LATE] }, WITHOUT, /nothing began early/);
  refused({ ...WITH, runs: [] }, { ...WITHOUT, runs: [] }, /nothing began early/);
  refused(WITH, { ...WITHOUT, runs: [EARLY] }, /early both times/);
  refused(WITH, { ...WITHOUT, runs: [{ ...LATE, arguments: { account: 'savings' } }] }, /in two ways/);
  refused(WITH, { ...WITHOUT, said: [] }, /No answer was heard without/);
  refused({ ...WITH, runs: [{ ...EARLY, ok: false }] }, WITHOUT, /failed.* That was with the early start/);
  const unheard = turnOf(WITH);
  unheard.clauses[0].cut = true;
  assert.equal(difference(unheard, turnOf(WITHOUT)).sooner, null);
});

test('a difference that cannot be heard is none, and one to the worse is told as such', () => {
  const answered = (from) => turnOf({ ...WITHOUT, said: [{ ...ANSWER, from, to: from + 1000 }] });
  assert.equal(difference(turnOf(WITH), answered(2960)).number, 'No difference to hear');
  assert.deepEqual(differenceRow(turnOf(WITH), answered(2960)), []);
  assert.equal(difference(turnOf(WITH), answered(2600)).number, '0.3 s later');
  assert.deepEqual(differenceRow(turnOf(WITH), answered(2600)), []);
});

test('a filler is no answer', () => {
  const late = turnOf({ runs: [LATE], said: [filler(2900, 3300), { ...ANSWER, from: 3700, to: 4900 }] });
  assert.equal(difference(turnOf(WITH), late).sooner, 800);
});

test('both axes show the same stretch of time, wide enough for both turns', () => {
  const all = [turnOf(WITH), turnOf({ ...WITHOUT, said: [{ ...ANSWER, from: 5200, to: 7000 }] })].map((turn) => ({ turn, now: 8000 }));
  const { before, after } = around(all);
  for (const { turn } of all) {
    const { from, to, origin } = stretch(turn, rowsOf(turn, 8000, false, false), 8000, false);
    assert.ok(before >= origin - from && after >= to - origin);
  }
});

test('the turn of a playing is the one that was spoken, not a greeting or a noise', () => {
  const turns = new Turns();
  turns.take({ type: 'response.created', undertone_at: us(10) }, 10);
  turns.take({ type: 'undertone.turn', turn: 'turn_1', status: 'completed', latency: {}, undertone_at: us(900) }, 900);
  turns.take({ type: 'input_audio_buffer.speech_started', audio_start_ms: 1000, undertone_at: us(1100) }, 1100);
  turns.take({ type: 'undertone.utterance_dropped', undertone_at: us(1500) }, 1500);
  assert.equal(asked(turns), undefined);
  turns.take({ type: 'input_audio_buffer.speech_started', audio_start_ms: 2000, undertone_at: us(2100) }, 2100);
  assert.equal(asked(turns), turns.list.at(-1));
});

/** An answer that was asked for early, as the server records it. */
const held = (before, began, ended, used, saved) => ({ before, tool: null, began: us(began), ended: us(ended), used, saved: us(saved), usage: { input: 900, cached: 0, output: 20 } });

test('an answer that was prepared early is told and drawn if it was heard sooner', () => {
  const assumed = turnOf({ runs: [EARLY], held: [held('end_of_turn', 2600, 2750, true, 150), held('commit', 2700, 2800, true, 600)], unsaid: 1 });
  assert.ok(story(assumed).more.includes('The answer was prepared before the model had asked for the call: you heard it 0.6 s sooner. It needed no filler.'), story(assumed).more);
  const shown = (turn, whole) => rowsOf(turn, 5000, whole).filter(({ name }) => name === 'Prepared').map(({ marks }) => marks.map(({ from, to, label }) => [from, to, label]));
  assert.deepEqual(shown(assumed, false), [[[2700, 2800, 'answer prepared early']]]);
  assert.deepEqual(shown(assumed, true), [[[2600, 2750, 'answer prepared early']], [[2700, 2800, 'answer prepared early']]]);
  const paused = story(turnOf({ held: [held('end_of_turn', 2600, 2800, true, 200)] }));
  assert.ok(paused.more.includes('The answer was prepared while it made sure that you had finished: you heard it 0.2 s sooner.'), paused.more);
});

test('an answer that was prepared in vain is drawn only among all stages, and nothing is claimed', () => {
  const vain = turnOf({ held: [held('commit', 2600, 2800, false, 0), held('end_of_turn', 2600, 2750, true, 40)] });
  assert.doesNotMatch(story(vain).more.join(' '), /prepared/);
  assert.ok(!rowsOf(vain, 5000, false).some(({ name }) => name === 'Prepared'));
  const marks = rowsOf(vain, 5000, true).filter(({ name }) => name === 'Prepared').flatMap((row) => row.marks);
  assert.deepEqual(marks.map(({ style }) => style), ['prepared used', 'prepared discarded']);
  assert.match(marks[1].facts.join(', '), /thrown away, unheard, 920 tokens/);
});
