// Tests the playing of sample questions, with doubles of browser and server. Run by `node --test`.

import assert from 'node:assert/strict';
import test from 'node:test';
import { Demo } from '../../web/demo.js';

/** A WAV file of a second of silence. */
function wav() {
  const bytes = new Uint8Array(44 + 48_000);
  bytes.set(new TextEncoder().encode('data'), 36);
  return bytes.buffer;
}

/** A player of questions, what was played by it, and when its conversation is open. */
function begin() {
  const played = [];
  const session = { open: () => new Promise((resolve) => (begun.open = resolve)), headers: () => ({}), audio: () => true };
  const speaker = {
    start: async () => {
      begun.started += 1;
      if (begun.trouble) throw new Error(begun.trouble);
    },
    aside: async () => {
      const sound = { stopped: false, stop: () => (sound.stopped = true) };
      played.push(sound);
      return sound;
    },
  };
  const begun = { demo: new Demo(session, speaker), played, started: 0, trouble: '' };
  globalThis.fetch = async () => new Response(wav());
  return begun;
}

test('a question that is stopped before its conversation is open is not played', async () => {
  const begun = begin();
  const playing = begun.demo.play(0, () => {});
  begun.demo.stop();
  begun.open();
  await playing;
  assert.ok(!begun.demo.playing);
  assert.equal(begun.played.length, 0);
});

test('the loudspeaker is started within the click', () => {
  const begun = begin();
  begun.demo.play(0, () => {});
  assert.equal(begun.started, 1);
});

test('why a question cannot be heard is told once there is a conversation', async () => {
  const begun = begin();
  begun.trouble = 'This page cannot play sound.';
  let told = false;
  const playing = begun.demo.play(0, () => {}).catch(({ message }) => (told = message));
  // All that its failure leads to has happened by the next timer.
  await new Promise((resolve) => setTimeout(resolve, 0));
  assert.equal(told, false);
  begun.open();
  await playing;
  assert.equal(told, begun.trouble);
  assert.ok(!begun.demo.playing);
});

test('of two questions that are clicked at once the second is played', async () => {
  const begun = begin();
  const first = begun.demo.play(0, () => {});
  const opened = begun.open;
  const second = begun.demo.play(1, () => {});
  begun.open();
  await second;
  opened();
  await first;
  assert.ok(begun.demo.playing);
  assert.deepEqual(begun.played.map(({ stopped }) => stopped), [false]);
  begun.demo.stop();
});
