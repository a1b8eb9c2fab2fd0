// Plays the agent's voice: a queue of pieces with ids, and exact reports of playout.

import { Track } from './track.js';

export const RATE = 24000;

/** Silence after which the output is suspended, so that an idle page costs nothing, ms. */
const SLEEP_AFTER = 4000;

/** How long a browser may take to start sound, ms: wireless headphones may change their profile for a microphone. */
const START_PATIENCE = 8000;

const NO_OUTPUT = 'the browser starts no sound, perhaps because it has no sound output. Connect a loudspeaker or headphones and try again, or type.';

/**
 * Starts a context, also one that is being suspended and still says that it runs. Firefox starts none without a sound
 * output, and does not say so.
 * @param {AudioContext} context
 * @throws {Error} if it does not start; the message is the reason, as the end of a sentence, and what to do
 */
export async function start(context) {
  let patience;
  const late = new Promise((_, reject) => {
    patience = setTimeout(() => reject(new Error(NO_OUTPUT)), START_PATIENCE);
  });
  await Promise.race([context.resume(), late]).finally(() => clearTimeout(patience));
}

/** The samples in base64 of PCM16. */
export function pcm(base64) {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  return new Int16Array(bytes.buffer);
}

/**
 * Plays pieces of PCM16 at 24 kHz in order. Events, with `detail` {id, samples, at}: `started`,
 * `ended`, `flushed`; `samples` counts those of the piece that were heard, `at` is a time of
 * performance.now(). A piece that runs dry ends and starts again. `silent` follows every flush, with its `item`: on a busy
 * machine another one may have come by then.
 */
export class Speaker extends EventTarget {
  #context = null;
  #node = null;
  #ready = null;
  #sleep = 0;
  #playing = false;
  /** The track of a call, which is played instead of the queue. */
  #track = null;
  #device = '';
  #asides = new Set();

  /**
   * Prepares playback. The first call must come from a click or key press, as browsers require.
   * @throws {Error} if this page cannot play sound, with a message for the user; the next call tries again
   */
  async start() {
    clearTimeout(this.#sleep);
    const ready = (this.#ready ??= this.#build());
    try {
      await ready.catch((error) => {
        if (this.#ready === ready) this.#ready = null;
        throw error;
      });
      await start(this.#context);
    } catch (error) {
      throw new Error(`This page cannot play sound: ${error.message}`);
    }
    this.#rest();
  }

  /** Prepares playback as `start` does, where sound may be missing. Returns whether it can play. */
  wake() {
    return this.start().then(
      () => true,
      () => false,
    );
  }

  /** Whether something is playing. */
  get playing() {
    return this.#playing || (this.#track?.playing ?? false);
  }

  /** Whether the browser plays nothing until a click or a key. */
  get blocked() {
    return this.#track?.blocked ?? false;
  }

  /** Sets the loudspeaker; empty for the usual one. */
  set device(device) {
    this.#device = device;
    if (this.#track) this.#track.device = device;
    this.#context?.setSinkId?.(device).catch(() => {});
  }

  /** Plays the agent's track of a call from now on. */
  follow(receiver, stream) {
    this.leave();
    this.#track = new Track(receiver, stream, this.#device);
    for (const type of ['started', 'ended', 'flushed', 'silent', 'sound', 'blocked', 'allowed']) {
      this.#track.addEventListener(type, ({ detail }) => this.dispatchEvent(new CustomEvent(type, { detail })));
    }
  }

  /** The call is over. */
  leave() {
    this.#track?.close();
    this.#track = null;
  }

  /** The server tells of an edge of a piece on the track: see `Track`. */
  edge(kind, id, samples, time) {
    this.#track?.edge(kind, id, samples, time);
  }

  /** The server has cleared the track. */
  cleared() {
    this.#track?.cleared();
  }

  /** Appends samples to the piece `id`; a new id starts a new piece. */
  play(id, samples) {
    // Only the browser stops an output that plays, and its state then says so.
    const sounds = this.#playing && this.#context.state === 'running';
    const woken = sounds ? null : this.wake();
    if (this.#node) this.#node.port.postMessage({ id, samples });
    else woken.then((ready) => ready && this.#node.port.postMessage({ id, samples }));
  }

  /** Stops at once and drops the queue, which is of this item of the conversation. */
  flush(item) {
    this.#track?.flush();
    this.#node?.port.postMessage({ flush: true, item });
  }

  /**
   * Plays a sound quietly in addition to the voice. Resolves when it has started, with a function that stops it, and a
   * track that carries the sound and then silence.
   */
  async aside(samples, volume) {
    await this.start();
    const context = this.#context;
    const buffer = context.createBuffer(1, samples.length, RATE);
    buffer.copyToChannel(Float32Array.from(samples, (sample) => sample / 32768), 0);
    const source = new AudioBufferSourceNode(context, { buffer });
    source.connect(new GainNode(context, { gain: volume })).connect(context.destination);
    const away = new MediaStreamAudioDestinationNode(context, { channelCount: 1 });
    source.connect(away);
    // Without a source that goes on, the track stops with the sound.
    const silence = new ConstantSourceNode(context, { offset: 0 });
    silence.connect(away);
    silence.start();
    source.start();
    const aside = {
      track: away.stream.getAudioTracks()[0],
      stop: () => {
        source.stop();
        silence.stop();
        this.#asides.delete(aside);
        this.#rest();
      },
    };
    this.#asides.add(aside);
    return aside;
  }

  async #build() {
    // Browsers offer it only to pages that were loaded securely.
    if (typeof AudioWorkletNode !== 'function') throw new Error('it was not loaded securely. Open it as http://localhost or over https.');
    const context = new AudioContext({ sampleRate: RATE, latencyHint: 'interactive' });
    try {
      await context.audioWorklet.addModule('audio-out.worklet.js');
    } catch {
      // A context caches a failed load and would not try again.
      await context.close();
      throw new Error('the server does not answer.');
    }
    this.#context = context;
    if (this.#device) await context.setSinkId?.(this.#device).catch(() => {});
    this.#node = new AudioWorkletNode(this.#context, 'playback', { numberOfInputs: 0, outputChannelCount: [1] });
    this.#node.port.onmessage = ({ data }) => this.#report(data);
    this.#node.connect(this.#context.destination);
  }

  #report({ type, id, samples, time, item }) {
    if (type === 'started') this.#playing = true;
    if (type === 'ended' || type === 'flushed') this.#playing = false;
    const context = this.#context;
    const ago = (context.currentTime - time) * 1000;
    const at = performance.now() - ago + (context.outputLatency || 0) * 1000;
    this.dispatchEvent(new CustomEvent(type, { detail: { id, samples, at, item } }));
    this.#rest();
  }

  #rest() {
    clearTimeout(this.#sleep);
    if (this.#playing || this.#asides.size > 0) return;
    this.#sleep = setTimeout(() => this.#context.suspend(), SLEEP_AFTER);
  }
}
