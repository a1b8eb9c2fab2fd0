// Tests how the page asks for a microphone and starts sound, with doubles of the browser. Run by `node --test`.

import assert from 'node:assert/strict';
import test from 'node:test';
import { Microphone } from '../../web/audio-in.js';
import { Speaker } from '../../web/audio-out.js';

/** The constraints with which the page has asked. */
const asked = [];

/** A browser that is asked for a microphone. */
function browser(getUserMedia) {
  globalThis.window = { isSecureContext: true };
  Object.defineProperty(globalThis, 'navigator', { configurable: true, value: { mediaDevices: { getUserMedia } } });
}

/** A browser that has no microphone, and calls that `name`. */
function without(name) {
  asked.splice(0);
  browser(async ({ audio }) => {
    asked.push(audio.deviceId);
    throw new DOMException('none', audio.deviceId ? name : 'NotFoundError');
  });
}

/** A browser without a sound output, as Firefox is one. Returns a promise that a context is to be started, and never will. */
function soundless() {
  globalThis.AudioWorkletNode = class {
    port = {};
    connect() {}
  };
  return new Promise((resolve) => {
    globalThis.AudioContext = class {
      state = 'suspended';
      audioWorklet = { addModule: async () => {} };
      createMediaStreamSource() {
        return { connect: (node) => node };
      }
      resume() {
        resolve();
        return new Promise(() => {});
      }
      async close() {}
    };
  });
}

for (const name of ['OverconstrainedError', 'NotFoundError']) {
  test(`instead of a chosen microphone that is gone, for which browsers say ${name}, the usual one is asked for`, async () => {
    without(name);
    await assert.rejects(Microphone.open({ device: 'gone', onFrame() {}, onEnd() {} }), /There is no microphone/);
    assert.deepEqual(asked, [{ exact: 'gone' }, undefined]);
  });
}

test('a browser without a sound output that never starts the microphone is not waited for', async (context) => {
  context.mock.timers.enable({ apis: ['setTimeout'] });
  const starting = soundless();
  const track = { stop: () => (track.stopped = true), stopped: false };
  browser(async () => ({ getTracks: () => [track] }));
  const refused = assert.rejects(Microphone.open({ onFrame() {}, onMute() {}, onEnd() {} }), /^Error: The microphone could not be started: .*sound output\. Connect .*, or type\.$/);
  await starting;
  context.mock.timers.tick(10_000);
  await refused;
  assert.ok(track.stopped);
});

test('a browser without a sound output plays nothing, which is not blamed on the server', async (context) => {
  context.mock.timers.enable({ apis: ['setTimeout'] });
  const starting = soundless();
  const speaker = new Speaker();
  const refused = assert.rejects(speaker.aside(new Int16Array(1), 1), /^Error: This page cannot play sound: .*sound output\. Connect .*, or type\.$/);
  await starting;
  context.mock.timers.tick(10_000);
  await refused;
  const woken = speaker.wake();
  await new Promise((resolve) => setImmediate(resolve));
  context.mock.timers.tick(10_000);
  assert.equal(await woken, false);
});
