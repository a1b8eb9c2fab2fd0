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

for (const [failing, says] of [
  ['AudioContext', 'AudioContext fails'],
  ['addModule', 'the server does not answer.'],
  ['AudioWorkletNode', 'AudioWorkletNode fails'],
]) {
  test(`a page that cannot play sound because ${failing} fails says why, and tries again`, async () => {
    let tries = 0;
    const step = (name) => {
      if (name !== failing) return;
      tries += 1;
      throw new DOMException(`${name} fails`, 'AbortError');
    };
    globalThis.AudioContext = class {
      audioWorklet = { addModule: async () => step('addModule') };
      constructor() {
        step('AudioContext');
      }
      async close() {}
    };
    globalThis.AudioWorkletNode = class {
      constructor() {
        step('AudioWorkletNode');
      }
    };
    const speaker = new Speaker();
    for (const nth of [1, 2]) {
      await assert.rejects(speaker.start(), { message: `This page cannot play sound: ${says}` });
      assert.equal(tries, nth);
    }
  });
}

test('a page that was not loaded securely, which gets no worklets, does not blame the server', async () => {
  delete globalThis.AudioWorkletNode;
  await assert.rejects(new Speaker().start(), /^Error: This page cannot play sound: it was not loaded securely\. Open it /);
});

test('an output that plays is started again only if the browser has stopped it', async (context) => {
  context.mock.timers.enable({ apis: ['setTimeout'] });
  let output;
  let node;
  globalThis.AudioContext = class {
    state = 'running';
    currentTime = 0;
    audioWorklet = { addModule: async () => {} };
    starts = 0;
    constructor() {
      output = this;
    }
    async resume() {
      this.starts += 1;
    }
  };
  globalThis.AudioWorkletNode = class {
    pieces = [];
    port = { postMessage: ({ id }) => this.pieces.push(id) };
    constructor() {
      node = this;
    }
    connect() {}
  };
  const speaker = new Speaker();
  const plays = async (id) => {
    speaker.play(id, new Int16Array(1));
    await new Promise((resolve) => setImmediate(resolve));
  };
  const tells = (type) => node.port.onmessage({ data: { type, id: 'first', samples: 0, time: 0 } });
  await plays('first');
  assert.equal(output.starts, 1);
  tells('started');
  await plays('second');
  assert.equal(output.starts, 1, 'it plays');
  output.state = 'interrupted';
  await plays('third');
  assert.equal(output.starts, 2, 'as a telephone stops it');
  output.state = 'running';
  tells('ended');
  await plays('fourth');
  assert.equal(output.starts, 3, 'it may be suspended at any time');
  assert.deepEqual(node.pieces, ['first', 'second', 'third', 'fourth']);
});

// The page came back from a lost connection before a busy machine told that all was silent, and had the answer that goes on cut.
test('what is silenced is told as the item that it was, however late', async (context) => {
  context.mock.timers.enable({ apis: ['setTimeout'] });
  let Playback;
  Object.assign(globalThis, { AudioWorkletProcessor: class { port = {}; }, registerProcessor: (_, processor) => (Playback = processor), currentTime: 0, sampleRate: 24000 });
  await import('../../web/audio-out.worklet.js');
  const waiting = [];
  const port = { postMessage: (data) => waiting.push(data) };
  globalThis.AudioContext = class {
    audioWorklet = { addModule: async () => {} };
    async resume() {}
  };
  globalThis.AudioWorkletNode = class {
    port = port;
    connect() {}
  };
  const speaker = new Speaker();
  await speaker.start();
  const silenced = [];
  speaker.addEventListener('silent', ({ detail }) => silenced.push(detail.item));
  speaker.play(1, new Int16Array(480));
  speaker.flush('first');
  speaker.play(2, new Int16Array(480));
  const playback = new Playback();
  playback.port.postMessage = (data) => port.onmessage({ data });
  for (const data of waiting) playback.port.onmessage({ data });
  assert.deepEqual(silenced, ['first']);
  assert.deepEqual(playback.queue.map(({ id }) => id), [2]);
  // Its timers are of this test.
  await new Promise((resolve) => setImmediate(resolve));
});
