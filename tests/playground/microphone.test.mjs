// Tests how the page asks for a microphone, with doubles of the browser. Run by `node --test`.

import assert from 'node:assert/strict';
import test from 'node:test';
import { Microphone } from '../../web/audio-in.js';

/** The constraints with which the page has asked. */
const asked = [];

/** A browser that has no microphone, and calls that `name`. */
function without(name) {
  const getUserMedia = async ({ audio }) => {
    asked.push(audio.deviceId);
    throw new DOMException('none', audio.deviceId ? name : 'NotFoundError');
  };
  asked.splice(0);
  globalThis.window = { isSecureContext: true };
  Object.defineProperty(globalThis, 'navigator', { configurable: true, value: { mediaDevices: { getUserMedia } } });
}

for (const name of ['OverconstrainedError', 'NotFoundError']) {
  test(`instead of a chosen microphone that is gone, for which browsers say ${name}, the usual one is asked for`, async () => {
    without(name);
    await assert.rejects(Microphone.open({ device: 'gone', onFrame() {}, onEnd() {} }), /There is no microphone/);
    assert.deepEqual(asked, [{ exact: 'gone' }, undefined]);
  });
}
