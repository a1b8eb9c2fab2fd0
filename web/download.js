// The conversation as downloads: audio and events.

import { RATE } from './audio-out.js';

/** The longest audio that is kept, s: half an hour, about 170 MB. */
const LONGEST = 1800;

/** The longest that a frame may reach the page after its time and still continue the one before it, ms. */
const LATE = 200;

/** The longest that frames may reach the page before their time, because it was busy, ms. */
const EARLY = 5000;

/** The length of a frame, ms. */
const FRAME = 20;

/** The longest silence that is saved, ms: longer ones are shortened to it. */
const SILENCE = 60_000;

/** Records the audio sent and heard. Times are those of performance.now(). */
export class Recording {
  #pieces = { user: [], agent: [] };
  #kept = 0;
  #lines = [];
  /** When the next frame of each is due. */
  #due = { user: -Infinity, agent: -Infinity };

  /**
   * Adds a frame of `who` that arrives at `now`, null for a silent one. A busy page gets several at once: each is placed
   * behind the one before.
   */
  frame(who, now, samples) {
    const late = now - FRAME - this.#due[who];
    const at = late < LATE && late > -EARLY ? this.#due[who] : now - FRAME;
    this.#due[who] = at + FRAME;
    if (samples) this.sound(who, at, samples);
  }

  /** Adds samples of `who` (`user` or `agent`) that started at `at`. */
  sound(who, at, samples) {
    this.#pieces[who].push({ at, samples });
    this.#kept += samples.length;
    while (this.#kept > 2 * LONGEST * RATE) {
      const oldest = this.#pieces.user.length && (!this.#pieces.agent.length || this.#pieces.user[0].at < this.#pieces.agent[0].at) ? 'user' : 'agent';
      this.#kept -= this.#pieces[oldest].shift().samples.length;
    }
  }

  /** Adds an event, as a line of the events file. */
  line(at, event) {
    this.#lines.push(JSON.stringify({ at: Math.round(at * 1000) / 1000, ...event }));
    if (this.#lines.length > 50_000) this.#lines.shift();
  }

  /** Whether there is audio to save. */
  get sounds() {
    return this.#kept > 0;
  }

  /** Whether there are events to save. */
  get empty() {
    return this.#lines.length === 0;
  }

  /** All events, one JSON object per line. */
  jsonl() {
    return new Blob(this.#lines.map((line) => `${line}\n`), { type: 'application/jsonl' });
  }

  /** All audio: the user on the left channel, the agent on the right. */
  wav() {
    const placed = this.#placed();
    const length = placed.reduce((most, { from, samples }) => Math.max(most, from + samples.length), 0);
    const frames = new Int16Array(2 * length);
    for (const { channel, from, samples } of placed) {
      for (let index = 0; index < samples.length; index += 1) frames[2 * (from + index) + channel] = samples[index];
    }
    return new Blob([header(frames.byteLength), frames], { type: 'audio/wav' });
  }

  /** All pieces, each with its channel and the place of its first sample. */
  #placed() {
    const placed = ['user', 'agent'].flatMap((who, channel) => this.#pieces[who].map(({ at, samples }) => ({ channel, at, samples, from: 0 })));
    const inOrder = [...placed].sort((one, other) => one.at - other.at);
    /** The end of the sound so far, and where the recording begins, later by what is left out. */
    let [end, begin] = [inOrder[0]?.at, inOrder[0]?.at];
    for (const piece of inOrder) {
      begin += Math.max(0, piece.at - end - SILENCE);
      end = Math.max(end, piece.at + (piece.samples.length / RATE) * 1000);
      piece.from = Math.round(((piece.at - begin) / 1000) * RATE);
    }
    return placed;
  }
}

/**
 * The agent's sound over a WebSocket, from its arrival until it was heard. Pieces are heard in the order in which they
 * come.
 */
export class Unheard {
  #pieces = new Map();

  /** Adds samples to the piece `id`. */
  add(id, samples) {
    const piece = this.#pieces.get(id) ?? { from: 0, parts: [] };
    piece.parts.push(samples);
    this.#pieces.set(id, piece);
  }

  /** The piece `id` begins to be heard, so those before it are over. */
  begin(id) {
    for (const earlier of this.#pieces.keys()) {
      if (earlier === id) return;
      this.#pieces.delete(earlier);
    }
  }

  /** Takes the samples of a piece that were heard, from `from` to `to`; null if it has none. It may go on behind them. */
  take(id, from, to) {
    const piece = this.#pieces.get(id);
    if (!piece) return null;
    const all = Int16Array.from(piece.parts.flatMap((part) => [...part]));
    const heard = all.slice(from - piece.from, to - piece.from);
    piece.parts = [all.slice(to - piece.from)];
    piece.from = to;
    return heard;
  }
}

function header(bytes) {
  const view = new DataView(new ArrayBuffer(44));
  const text = (at, word) => [...word].forEach((letter, index) => view.setUint8(at + index, letter.charCodeAt(0)));
  text(0, 'RIFF');
  view.setUint32(4, 36 + bytes, true);
  text(8, 'WAVEfmt ');
  view.setUint32(16, 16, true);
  view.setUint16(20, 1, true);
  view.setUint16(22, 2, true);
  view.setUint32(24, RATE, true);
  view.setUint32(28, RATE * 4, true);
  view.setUint16(32, 4, true);
  view.setUint16(34, 16, true);
  text(36, 'data');
  view.setUint32(40, bytes, true);
  return view.buffer;
}

/** Offers a file for download. */
export function save(blob, name) {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
