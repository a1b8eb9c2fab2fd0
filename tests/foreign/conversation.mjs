// One conversation with an open microphone, the same for every JavaScript client: a question for a
// server tool, one for a client tool, a barge-in, and a typed message. Each step lasts until all is
// quiet. The report lists everything said, every call and every complaint.

import { readFileSync } from 'node:fs';

const FRAME_MS = 20;
const BYTES_PER_MS = 48;
// How much audio is sent without an event in return before a step counts as over.
const QUIET_MS = 2_500;
// How much of an answer is heard before the barge-in.
const HEARD_MS = 1_200;
const PATIENCE_MS = 300_000;

export const WEATHER = {
  name: 'get_weather',
  description: 'The weather in a city.',
  parameters: {
    type: 'object',
    properties: { city: { type: 'string' } },
    required: ['city'],
    additionalProperties: false,
  },
};

export class Conversation {
  calls = [];
  complaints = [];
  steps = [];
  #folder;
  #sentMs = 0;
  #lastEvent = 0;
  #open = 0;
  #waiting = [];

  constructor(folder) {
    this.#folder = folder;
    // Libraries report unexpected events on the console.
    for (const level of ['warn', 'error']) {
      console[level] = (...words) => this.complaints.push(`console.${level}: ${words.join(' ')}`);
    }
  }

  // The client's tool.
  weather = async (given) => {
    this.calls.push(given);
    return { degrees: 21 };
  };

  // The agent was heard, other than in events.
  speaks(ms) {
    const step = this.steps.at(-1);
    if (step) step.audio_ms += ms;
  }

  // Takes every server event, as the client passes it on.
  event(event) {
    this.#lastEvent = this.#sentMs;
    const step = this.steps.at(-1);
    const kind = event.type;
    if (kind === 'error') this.complaints.push(JSON.stringify(event.error));
    if (kind.includes('mcp')) this.complaints.push(kind);
    if (kind === 'response.created') this.#open += 1;
    if (!step) return;
    if (kind === 'response.done') {
      this.#open -= 1;
      step.responses.push(event.response.status);
    } else if (/^response\.(output_)?audio\.delta$/.test(kind)) {
      step.audio_ms += Buffer.from(event.delta, 'base64').length / BYTES_PER_MS;
    } else if (/^response\.(output_)?audio_transcript\.done$/.test(kind)) {
      step.said.push(event.transcript);
    } else if (kind === 'conversation.item.input_audio_transcription.completed') {
      step.heard.push(event.transcript);
    }
  }

  // Holds the conversation. `send` takes 20 ms of mono PCM16LE at 24 kHz, `type` a text; `history`
  // returns the client's history at the end.
  async run({ send, type, history }) {
    const microphone = this.#listen(send);
    await this.#step('sum', 1, () => this.#say('sum'));
    await this.#step('weather', 2, () => this.#say('weather'));
    await this.#step('interruption', 2, async (step) => {
      this.#say('abilities');
      await this.#until('an answer to interrupt', () => step.audio_ms >= HEARD_MS);
      this.#say('plus');
    });
    await this.#step('text', 1, () => type('What is 5 plus 6?'));
    clearInterval(microphone);
    const { steps, calls, complaints } = this;
    console.log(JSON.stringify({ steps, calls, complaints, history: history() }));
    process.exit(0);
  }

  #speech = [];

  #say(name) {
    const bytes = readFileSync(`${this.#folder}/${name}.pcm`);
    const frame = FRAME_MS * BYTES_PER_MS;
    for (let at = 0; at + frame <= bytes.length; at += frame) {
      this.#speech.push(new Uint8Array(bytes.subarray(at, at + frame)));
    }
  }

  #listen(send) {
    const began = Date.now();
    return setInterval(() => {
      for (; this.#sentMs < Date.now() - began; this.#sentMs += FRAME_MS) {
        send((this.#speech.shift() ?? new Uint8Array(FRAME_MS * BYTES_PER_MS)).buffer);
      }
      this.#waiting = this.#waiting.filter((look) => !look());
    }, FRAME_MS / 2);
  }

  // Ends when `responses` responses are done and all has been quiet.
  async #step(name, responses, begin) {
    const step = { name, heard: [], said: [], responses: [], audio_ms: 0 };
    this.steps.push(step);
    this.#lastEvent = this.#sentMs;
    await begin(step);
    const isQuiet = () =>
      step.responses.length >= responses &&
      this.#open === 0 &&
      this.#speech.length === 0 &&
      this.#sentMs >= this.#lastEvent + QUIET_MS;
    await this.#until(`the end of ${name}`, isQuiet);
  }

  #until(what, holds) {
    return new Promise((resolve, reject) => {
      const patience = setTimeout(() => {
        reject(new Error(`no ${what}: ${JSON.stringify(this.steps)} ${this.complaints}`));
      }, PATIENCE_MS);
      this.#waiting.push(() => {
        if (!holds()) return false;
        clearTimeout(patience);
        resolve();
        return true;
      });
    });
  }
}
