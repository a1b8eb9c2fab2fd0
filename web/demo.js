// Plays recorded questions for visitors without a microphone: aloud, and to the server in real time.

import { reasonOf } from './session.js';

/** 20 ms at 24 kHz. */
const FRAME = 480;
const STEP = 20;

/** Silence to send afterwards, so that the turn ends, ms. */
const TAIL = 3000;

/** Plays one question in real time. */
export class Demo {
  #session;
  #speaker;
  #timer = 0;
  #sound = null;
  /** Counts stops: a question that is stopped before it has begun does not begin. */
  #stops = 0;

  /** @param {import('./session.js').Session} session @param {import('./audio-out.js').Speaker} speaker */
  constructor(session, speaker) {
    this.#session = session;
    this.#speaker = speaker;
  }

  /** Whether a question is being played. */
  get playing() {
    return this.#timer !== 0;
  }

  /**
   * Fetches question `number` and plays it. `onFrame` gets each frame that was sent.
   * @param {number} number
   * @param {(samples: Int16Array) => void} onFrame
   */
  async play(number, onFrame) {
    this.stop();
    const stops = this.#stops;
    const fetched = this.#fetch(number);
    // Within the click, as browsers require.
    const started = this.#speaker.start();
    // A failure is told once there is a conversation: without one the session tells why.
    for (const pending of [fetched, started]) pending.catch(() => {});
    await this.#session.open();
    await started;
    const samples = await fetched;
    if (stops !== this.#stops) return;
    const sound = await this.#speaker.aside(samples, 0.4);
    if (stops !== this.#stops) return sound.stop();
    this.#sound = sound;
    this.#session.question = sound.track;
    const began = performance.now();
    const frames = Math.ceil(samples.length / FRAME) + TAIL / STEP;
    let sent = 0;
    this.#timer = setInterval(() => {
      const due = Math.min(frames, Math.floor((performance.now() - began) / STEP));
      for (; sent < due; sent += 1) {
        const frame = new Int16Array(FRAME);
        frame.set(samples.subarray(sent * FRAME, (sent + 1) * FRAME));
        if (!this.#session.audio(frame)) return this.stop();
        if (sent * FRAME < samples.length) onFrame(frame);
      }
      if (sent === frames) this.stop();
    }, STEP);
  }

  /** Stops at once. */
  stop() {
    this.#stops += 1;
    clearInterval(this.#timer);
    this.#timer = 0;
    if (this.#sound) this.#session.question = null;
    this.#sound?.stop();
    this.#sound = null;
  }

  /** Stops sending silence, since the server has ended the turn. */
  understood() {
    if (this.playing) this.stop();
  }

  async #fetch(number) {
    const answer = await fetch(`playground/questions/${number}`, { headers: this.#session.headers() });
    if (!answer.ok) throw new Error(`The question could not be played: ${await reasonOf(answer)}`);
    const wav = await answer.arrayBuffer();
    return new Int16Array(wav.slice(dataAt(wav)));
  }
}

/** The offset of the samples in a WAV file. */
function dataAt(wav) {
  const view = new DataView(wav);
  let at = 12;
  while (at + 8 <= view.byteLength) {
    if (view.getUint32(at, false) === 0x64617461) return at + 8;
    at += 8 + view.getUint32(at + 4, true);
  }
  throw new Error('not a WAV file');
}
