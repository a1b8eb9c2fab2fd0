// Tests what the page takes for heard of a call's track. Run by `node --test`.

import assert from 'node:assert/strict';
import test from 'node:test';
import { Recording, Unheard } from '../../web/download.js';
import { stages } from '../../web/stages.js';
import { Pieces } from '../../web/track.js';
import { Turns } from '../../web/turns.js';

test('a piece is heard when its RTP time is played, however late that is read', () => {
  const pieces = new Pieces();
  pieces.edge('started', 'a', 0, 4800);
  pieces.edge('ended', 'a', 2400, 9600);
  assert.deepEqual(pieces.reached(4799, 500), []);
  assert.deepEqual(pieces.reached(5280, 1000), [{ type: 'started', id: 'a', samples: 0, at: 990 }]);
  assert.equal(pieces.busy, true);
  assert.deepEqual(pieces.reached(9600, 1090), [{ type: 'ended', id: 'a', samples: 2400, at: 1090 }]);
  assert.equal(pieces.busy, false);
});

test('RTP time wraps around', () => {
  const pieces = new Pieces();
  pieces.edge('started', 'a', 0, 2 ** 32 - 480);
  pieces.edge('ended', 'a', 480, 480);
  assert.deepEqual(pieces.reached(2 ** 32 - 960, 0), []);
  assert.deepEqual(pieces.reached(0, 100), [{ type: 'started', id: 'a', samples: 0, at: 90 }]);
  assert.deepEqual(pieces.reached(480, 110).map(({ type }) => type), ['ended']);
});

test('what the server drops is flushed when its last frame was played', () => {
  const pieces = new Pieces();
  pieces.edge('started', 'a', 0, 0);
  pieces.edge('cleared', 'a', 480, 960);
  assert.deepEqual(pieces.reached(960, 20), [
    { type: 'started', id: 'a', samples: 0, at: 0 },
    { type: 'flushed', id: 'a', samples: 480, at: 20 },
    { type: 'silent', id: 'a', samples: 480, at: 20 },
  ]);
});

test('a stop ends the piece that is heard, and forgets those that follow', () => {
  const pieces = new Pieces();
  pieces.edge('started', 'a', 240, 0);
  pieces.edge('ended', 'a', 4800, 9600);
  pieces.edge('started', 'b', 0, 9600);
  const told = pieces.stop(480, 10);
  assert.deepEqual(told.map(({ type, samples }) => [type, samples]), [['started', 240], ['flushed', 480], ['silent', 480]]);
  assert.equal(pieces.busy, false);
  assert.deepEqual(pieces.reached(20_000, 500), []);
});

test('stages are told as they are reached, and in the server’s times once those are known', () => {
  const turns = new Turns();
  const take = (at, event) => turns.take({ ...event, undertone_at: at * 1000 }, at);
  take(1100, { type: 'input_audio_buffer.speech_started', audio_start_ms: 1000 });
  const [turn] = turns.list;
  assert.deepEqual(stages(turn), []);
  take(2700, { type: 'input_audio_buffer.speech_stopped', audio_end_ms: 2500 });
  take(2710, { type: 'conversation.item.input_audio_transcription.completed', transcript: 'What time is it?' });
  assert.deepEqual(stages(turn).map(({ name, after }) => [name, after && Math.round(after)]), [['End of turn', 196], ['Words', 206], ['Voice', null]]);
  take(2720, { type: 'response.created' });
  take(2900, { type: 'response.output_audio_transcript.delta', item_id: 'item', delta: 'Nine.', undertone_clause: 7 });
  assert.equal(turns.edge({ clause: 8, audio_ms: 0 }), null);
  const id = turns.edge({ clause: 7, audio_ms: 0 });
  turns.heard('started', { id, samples: 0, at: 2960 });
  assert.deepEqual(stages(turn).at(-1), { name: 'Heard', after: 2960 - 2504 });
  turns.edge({ clause: 7, audio_ms: 500 });
  assert.equal(turn.clauses[0].samples, 12_000);
  const latency = { speech_end: 2500_000, transcript: 2560_000, end_of_turn: 2700_000, llm_first: 2800_000, first_audio: 2890_000 };
  take(3000, { type: 'undertone.turn', turn: 'turn_1', status: 'completed', latency });
  assert.deepEqual(stages(turn).map(({ name, after }) => [name, after]), [['Words', 60], ['End of turn', 200], ['Model', 300], ['Voice', 390], ['Heard', 460]]);
});

test('frames that reach a busy page at once are recorded one behind the other', async () => {
  const recording = new Recording();
  const frame = (value) => new Int16Array(480).fill(value);
  for (const [now, value] of [[1020, 1], [1110, 2], [1111, 3], [1112, 4], [3020, 5]]) recording.frame('agent', now, frame(value));
  const samples = new Int16Array(await recording.wav().arrayBuffer(), 44);
  const agent = samples.filter((_, index) => index % 2 === 1);
  const heard = [0, 20, 40, 60, 80, 2000].map((ms) => agent[ms * 24]);
  assert.deepEqual(heard, [1, 2, 3, 4, 0, 5]);
  assert.equal(agent.length, 2020 * 24);
});

test('frames after a page that was busy for long do not lie over those that waited', async () => {
  const recording = new Recording();
  const frame = (value) => new Int16Array(480).fill(value);
  const waited = Array.from({ length: 25 }, (_, index) => [1500, index + 1]);
  for (const [now, value] of [...waited, [1520, 26], [1540, 27]]) recording.frame('agent', now, frame(value));
  const agent = new Int16Array(await recording.wav().arrayBuffer(), 44).filter((_, index) => index % 2 === 1);
  assert.deepEqual(Array.from({ length: 27 }, (_, index) => agent[index * 480]), Array.from({ length: 27 }, (_, index) => index + 1));
});

test('a short silence is as long in the recording', async () => {
  const recording = new Recording();
  const frame = new Int16Array(480).fill(1);
  for (let index = 0; index < 8; index += 1) recording.frame('agent', 1020 + 20 * index, index > 1 && index < 7 ? null : frame);
  const agent = new Int16Array(await recording.wav().arrayBuffer(), 44).filter((_, index) => index % 2 === 1);
  assert.deepEqual([0, 20, 40, 120, 140].map((ms) => agent[ms * 24]), [1, 1, 0, 0, 1]);
});

test('the sound of a long session is saved, and of a long silence only a minute', async () => {
  const recording = new Recording();
  const frame = new Int16Array(1).fill(1);
  // As many as an hour and a half has frames, which is more than a function takes arguments.
  for (let index = 0; index < 270_000; index += 1) recording.sound('user', index, frame);
  assert.equal(recording.wav().size, 44 + 4 * (269_999 * 24 + 1));
  const idle = new Recording();
  const day = 24 * 3600 * 1000;
  for (const at of [0, 30_000, day]) idle.sound('user', at, new Int16Array(480).fill(2));
  idle.sound('agent', day + 1000, new Int16Array(480).fill(3));
  const samples = new Int16Array(await idle.wav().arrayBuffer(), 44);
  const at = (ms, channel) => samples[2 * ms * 24 + channel];
  assert.deepEqual([0, 30_000, 90_020].map((ms) => at(ms, 0)), [2, 2, 2]);
  assert.equal(at(90_019, 0), 0);
  assert.equal(at(91_020, 1), 3);
  assert.equal(samples.length, 2 * 24 * 91_040);
});

test('sound over a WebSocket is kept until it was heard, also if a piece runs dry', () => {
  const unheard = new Unheard();
  const take = (...of) => {
    const heard = unheard.take(...of);
    return heard && [...heard];
  };
  unheard.add('a', Int16Array.of(1, 2));
  unheard.begin('a');
  unheard.add('a', Int16Array.of(3));
  // It ran dry before the third sample came, and goes on with it.
  assert.deepEqual(take('a', 0, 2), [1, 2]);
  assert.deepEqual(take('a', 0, 2), []);
  unheard.add('a', Int16Array.of(4, 5));
  unheard.add('b', Int16Array.of(6));
  unheard.begin('a');
  assert.deepEqual(take('a', 2, 4), [3, 4]);
  // Its last sample was never heard.
  unheard.begin('b');
  assert.equal(take('a', 4, 5), null);
  assert.deepEqual(take('b', 0, 1), [6]);
  assert.equal(take('c', 0, 1), null);
});
