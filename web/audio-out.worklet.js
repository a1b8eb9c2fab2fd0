// Plays the queue without gaps, reports its position, and stops at once when flushed.

/** Audio to buffer before playing starts, so that a late frame causes no gap, s. */
const LEAD = 0.06;

/** The most to buffer, s: it grows after each gap, and shrinks after each piece without one. */
const MOST_LEAD = 0.24;

class Playback extends AudioWorkletProcessor {
  constructor() {
    super();
    /** The queue: {id, samples, at: how many of them were played}. */
    this.queue = [];
    /** The number of queued samples. */
    this.waiting = 0;
    /** The piece that is playing, and how many of its samples were played. */
    this.current = null;
    this.played = new Map();
    this.running = false;
    this.waited = 0;
    this.lead = LEAD;
    this.port.onmessage = ({ data }) => (data.flush ? this.flush(data.item) : this.push(data));
  }

  push({ id, samples }) {
    this.queue.push({ id, samples, at: 0 });
    this.waiting += samples.length;
  }

  flush(item) {
    this.queue = [];
    this.waiting = 0;
    this.running = false;
    const id = this.current;
    this.stop('flushed');
    this.port.postMessage({ type: 'silent', id, samples: this.played.get(id) ?? 0, time: currentTime, item });
  }

  process(_, [output]) {
    const channel = output[0];
    if (!this.running) this.running = this.mayStart(channel.length);
    if (!this.running) return true;
    let filled = 0;
    while (filled < channel.length && this.queue.length > 0) filled += this.fill(channel, filled);
    if (this.queue.length === 0) {
      this.running = false;
      this.stop('ended', currentTime + filled / sampleRate);
    }
    return true;
  }

  /** Whether enough is buffered, or buffering has taken long enough. */
  mayStart(quantum) {
    this.waited = this.waiting === 0 ? 0 : this.waited + quantum;
    const ready = this.waiting > this.lead * sampleRate || this.waited > this.lead * sampleRate;
    if (ready) this.waited = 0;
    return ready;
  }

  /** Copies from the first piece; returns how many samples. */
  fill(channel, filled) {
    const piece = this.queue[0];
    if (piece.id !== this.current) this.begin(piece.id, currentTime + filled / sampleRate);
    const count = Math.min(channel.length - filled, piece.samples.length - piece.at);
    for (let index = 0; index < count; index += 1) {
      channel[filled + index] = piece.samples[piece.at + index] / 32768;
    }
    piece.at += count;
    this.waiting -= count;
    this.played.set(piece.id, (this.played.get(piece.id) ?? 0) + count);
    if (piece.at === piece.samples.length) this.queue.shift();
    return count;
  }

  begin(id, time) {
    this.stop('ended', time);
    this.current = id;
    const hole = (this.played.get(id) ?? 0) > 0;
    this.lead = hole ? Math.min(this.lead * 2, MOST_LEAD) : Math.max(this.lead * 0.8, LEAD);
    this.port.postMessage({ type: 'started', id, samples: this.played.get(id) ?? 0, time });
  }

  stop(type, time = currentTime) {
    if (this.current === null) return;
    this.port.postMessage({ type, id: this.current, samples: this.played.get(this.current), time });
    this.current = null;
  }
}

registerProcessor('playback', Playback);
