// Finds in a call's track what is heard: the pieces of the agent's speech, by the RTP time that the browser has played.

/** RTP ticks of Opus in a millisecond. */
const TICKS = 48;

/** Samples at 24 kHz in a millisecond. */
const SAMPLES = 24;

/** The interval at which the track's position is read, ms. */
const READ_EVERY = 20;

/** The longest that audio that was sent before a stop may arrive after it, ms. */
const LATE = 1000;

/** The delay of the jitter buffer where the browser does not tell what it plays, ms. */
const USUAL_DELAY = 100;

/** Silence after which the recording rests, ms. */
const SLEEP_AFTER = 2000;

/** The ticks that RTP time `a` is behind `b`. Times wrap around at 32 bits. */
const since = (a, b) => (a - b) | 0;

/** Turns the server's edges of pieces into what was heard of them. No DOM and no audio here. */
export class Pieces {
  #edges = [];
  #sounding = null;

  /** Whether a piece is heard or on its way. */
  get busy() {
    return this.#sounding !== null || this.#edges.length > 0;
  }

  /** A piece starts, ends or is cleared at the RTP time `time`, behind `samples` of its clause. */
  edge(kind, id, samples, time) {
    this.#edges.push({ kind, id, samples, time });
  }

  /** The track has been heard until the RTP time `time`, at `at`. Returns what happened: {type, id, samples, at}. */
  reached(time, at) {
    const told = [];
    while (this.#edges.length > 0 && since(time, this.#edges[0].time) >= 0) {
      const edge = this.#edges.shift();
      const then = at - since(time, edge.time) / TICKS;
      if (edge.kind === 'started') {
        this.#sounding = edge;
        told.push({ type: 'started', id: edge.id, samples: edge.samples, at: then });
      } else if (this.#sounding?.id === edge.id) {
        told.push(...this.#end(edge.kind === 'cleared', edge.samples, then));
      }
    }
    return told;
  }

  /** Nothing more is heard, from the RTP time `time` on; all that was told of is forgotten. Returns what happened. */
  stop(time, at) {
    const told = this.reached(time, at);
    this.#edges = [];
    if (this.#sounding === null) return told;
    const { samples, time: from } = this.#sounding;
    return [...told, ...this.#end(true, samples + (since(time, from) / TICKS) * SAMPLES, at)];
  }

  #end(flushed, samples, at) {
    const { id } = this.#sounding;
    this.#sounding = null;
    const ended = { type: flushed ? 'flushed' : 'ended', id, samples, at };
    return flushed ? [ended, { ...ended, type: 'silent' }] : [ended];
  }
}

/**
 * Plays the agent's track of a call. Events are those of `Speaker`; also `sound`, with what is heard as PCM16 at
 * 24 kHz, a frame of 20 ms each; null for a silent one; `blocked` while the browser plays nothing until a click or a key, and
 * `allowed` once it plays.
 */
export class Track extends EventTarget {
  #receiver;
  #element = new Audio();
  #context = null;
  /** The nodes of the recording. Without a reference to them a browser removes them while the context is suspended. */
  #nodes = [];
  #pieces = new Pieces();
  #timer = 0;
  #sleep = 0;
  /** The event that follows a stop: `clear` until the server has dropped its audio, `start` until the next piece. */
  #awaits = null;
  #guess = null;
  /** Ends the wait for a click or a key, without which the browser plays nothing; null if it plays. */
  #waiting = null;

  /**
   * @param {RTCRtpReceiver} receiver
   * @param {MediaStream} stream
   * @param {string} device where to play; empty for the usual one
   */
  constructor(receiver, stream, device) {
    super();
    this.#receiver = receiver;
    this.#element.srcObject = stream;
    this.device = device;
    this.#play();
    this.#record(stream).catch(() => {});
  }

  /** Whether a piece is heard or on its way. */
  get playing() {
    return this.#pieces.busy;
  }

  /** Whether the browser plays nothing until a click or a key. */
  get blocked() {
    return this.#waiting !== null;
  }

  /** Sets where it plays. */
  set device(device) {
    if (device || this.#element.sinkId) this.#element.setSinkId?.(device).catch(() => {});
  }

  /** The server tells of an edge of a piece. */
  edge(kind, id, samples, time) {
    if (this.#awaits === 'clear') return;
    if (kind === 'started') {
      this.#awaits = null;
      this.#element.muted = false;
      clearTimeout(this.#sleep);
      this.#context?.resume();
    }
    this.#guess = { time, at: performance.now() + USUAL_DELAY };
    this.#pieces.edge(kind, id, samples, time);
    this.#timer ||= setInterval(() => this.#read(), READ_EVERY);
  }

  /** Stops at once. The server must be asked to clear its audio. */
  flush() {
    if (!this.playing) return;
    this.#element.muted = true;
    this.#awaits = 'clear';
    const { time, at } = this.#position();
    this.#tell(this.#pieces.stop(time, at));
    setTimeout(() => this.cleared(), LATE);
  }

  /** The server has cleared its audio. */
  cleared() {
    if (this.#awaits === 'clear') this.#awaits = 'start';
  }

  /** Ends it. */
  close() {
    this.#waiting?.abort();
    this.#waiting = null;
    const { time, at } = this.#position();
    this.#tell(this.#pieces.stop(time, at));
    clearInterval(this.#timer);
    clearTimeout(this.#sleep);
    this.#element.srcObject = null;
    this.#context?.close();
    this.#context = null;
    this.#nodes = [];
  }

  #play() {
    this.#element.play().then(
      () => this.dispatchEvent(new Event('allowed')),
      // Otherwise it has ended before it began.
      ({ name }) => name === 'NotAllowedError' && this.#wait(),
    );
  }

  /** Plays from the next click or key on. */
  #wait() {
    const waiting = new AbortController();
    const again = () => {
      waiting.abort();
      this.#waiting = null;
      this.#play();
    };
    for (const type of ['click', 'keydown']) document.addEventListener(type, again, { signal: waiting.signal });
    this.#waiting = waiting;
    this.dispatchEvent(new Event('blocked'));
  }

  /** The RTP time that was played last, and when. */
  #position() {
    const [source] = this.#receiver.getSynchronizationSources?.() ?? [];
    const guess = this.#guess ?? { time: 0, at: performance.now() };
    if (source?.rtpTimestamp === undefined) return { time: (guess.time + Math.round((performance.now() - guess.at) * TICKS)) >>> 0, at: performance.now() };
    const at = source.timestamp > performance.timeOrigin ? source.timestamp - performance.timeOrigin : source.timestamp;
    return { time: source.rtpTimestamp, at };
  }

  #read() {
    const { time, at } = this.#position();
    this.#tell(this.#pieces.reached(time, at));
  }

  #tell(events) {
    const latency = (this.#context?.outputLatency || 0) * 1000;
    for (const { type, id, samples, at } of events) this.dispatchEvent(new CustomEvent(type, { detail: { id, samples: Math.round(samples), at: at + latency } }));
    clearTimeout(this.#sleep);
    if (this.playing) return;
    clearInterval(this.#timer);
    this.#timer = 0;
    this.#sleep = setTimeout(() => this.#context?.suspend(), SLEEP_AFTER);
  }

  /** Takes down what is heard. */
  async #record(stream) {
    const context = new AudioContext();
    this.#context = context;
    await context.audioWorklet.addModule('audio-in.worklet.js');
    if (this.#context !== context) return;
    const node = new AudioWorkletNode(context, 'capture', { channelCount: 1, channelCountMode: 'explicit' });
    node.port.onmessage = ({ data: { samples, level } }) => {
      const sounds = level > 0 && !this.#element.muted;
      this.dispatchEvent(new CustomEvent('sound', { detail: sounds ? samples : null }));
    };
    const source = context.createMediaStreamSource(stream);
    // The node outputs silence; it only runs if it is connected to the output.
    source.connect(node).connect(context.destination);
    this.#nodes = [source, node];
  }
}
