// Converts the microphone's audio at any device rate to 20 ms frames of PCM16 at 24 kHz.

const RATE = 24000;
const FRAME = 480;
/** The input samples on either side that contribute to an output sample. */
const REACH = 16;

/** Low-pass filters, one for each possible position of an output sample between two input samples. */
function filters(from) {
  const phases = RATE / divisor(from, RATE);
  const cutoff = 0.92 * Math.min(1, RATE / from);
  return Array.from({ length: phases }, (_, phase) => {
    const shift = phase / phases;
    const taps = Float32Array.from({ length: 2 * REACH }, (_, index) => {
      const x = index - REACH + 1 - shift;
      const window = 0.5 + 0.5 * Math.cos((Math.PI * x) / REACH);
      return window * cutoff * sinc(cutoff * x);
    });
    const sum = taps.reduce((total, tap) => total + tap, 0);
    return taps.map((tap) => tap / sum);
  });
}

function sinc(x) {
  return x === 0 ? 1 : Math.sin(Math.PI * x) / (Math.PI * x);
}

function divisor(a, b) {
  return b === 0 ? a : divisor(b, a % b);
}

class Capture extends AudioWorkletProcessor {
  constructor() {
    super();
    this.filters = filters(sampleRate);
    /** In units of 1/phases of an input sample. */
    this.step = sampleRate / divisor(sampleRate, RATE);
    this.history = new Float32Array(2 * REACH);
    this.at = 0;
    this.frame = new Int16Array(FRAME);
    this.filled = 0;
    this.energy = 0;
  }

  process([input]) {
    const channel = input[0];
    if (channel) for (let index = 0; index < channel.length; index += 1) this.take(channel[index]);
    return true;
  }

  /** Takes one input sample and produces the output samples that it completes. */
  take(sample) {
    this.history.copyWithin(0, 1);
    this.history[2 * REACH - 1] = sample;
    const phases = this.filters.length;
    while (this.at < phases) {
      const taps = this.filters[this.at];
      let sum = 0;
      for (let index = 0; index < taps.length; index += 1) sum += taps[index] * this.history[index];
      this.give(sum);
      this.at += this.step;
    }
    this.at -= phases;
  }

  give(sample) {
    this.energy += sample * sample;
    this.frame[this.filled] = Math.max(-32768, Math.min(32767, Math.round(sample * 32767)));
    this.filled += 1;
    if (this.filled < FRAME) return;
    const level = Math.sqrt(this.energy / FRAME);
    this.port.postMessage({ samples: this.frame, level }, [this.frame.buffer]);
    this.frame = new Int16Array(FRAME);
    this.filled = 0;
    this.energy = 0;
  }
}

registerProcessor('capture', Capture);
