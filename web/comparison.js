// Plays one question twice, with the early start and without, and shows both turns on the same scale.

import { pcm, Speaker } from './audio-out.js';
import { pause } from './call.js';
import { Demo } from './demo.js';
import { around, asked, difference, differenceRow } from './difference.js';
import { Session } from './session.js';
import { story } from './story.js';
import { copy, el } from './text.js';
import { Timeline } from './timeline.js';
import { plainTurn, Turns } from './turns.js';

/** The longest that one question and its answer may take, ms. */
const PATIENCE = 45_000;
/** Silence between the two, ms. */
const PAUSE = 700;
/** The interval at which an ongoing turn is redrawn, ms. */
const DRAW_EVERY = 120;

const WITH = 'With the early start';
const WITHOUT = 'Without the early start';

const find = (id) => document.getElementById(id);

/** A question that is played in a conversation of its own, so that neither playing knows of the other. */
export class Playing {
  turns = new Turns();
  #session = new Session();
  #speaker;
  #demo;
  #transcript;
  #talking = false;
  #waiting = [];
  #switched = false;
  #over = new AbortController();

  constructor(early, { preRoll, language }, speaker, transcript, connected) {
    this.early = early;
    this.turns.preRoll = preRoll;
    this.#session.wishes.language = language;
    this.#speaker = speaker;
    this.#transcript = transcript;
    this.#demo = new Demo(this.#session, speaker);
    this.#session.addEventListener('message', ({ detail: { event, arrived } }) => this.#take(event, arrived));
    this.#session.addEventListener('track', ({ detail: { receiver, stream } }) => speaker.follow(receiver, stream));
    this.#session.addEventListener('state', ({ detail: { state, reason } }) => {
      if (state === 'open') connected(this.#session.onTrack);
      if (['lost', 'ended', 'locked', 'refused'].includes(state)) this.close(reason || 'The server ended the conversation.');
    });
    for (const type of ['started', 'ended', 'flushed']) speaker.addEventListener(type, ({ detail }) => this.#sounded(type, detail), { signal: this.#over.signal });
  }

  /** Plays question `number` and listens to the answer. */
  async play(number) {
    const late = setTimeout(() => this.close('The server took too long to answer.'), PATIENCE);
    try {
      this.#session.open().catch(() => {});
      // The server may greet first.
      await this.#until(() => this.#switched && !this.#talking && !this.#speaker.playing);
      await this.#demo.play(number, () => {});
      await this.#until(() => this.#isHeard());
    } finally {
      clearTimeout(late);
      this.close();
    }
  }

  /** Ends the conversation. */
  close(reason = 'Stopped.') {
    this.#over.abort(new Error(reason));
    this.#demo.stop();
    this.#session.close();
    this.#speaker.leave();
    this.#check();
  }

  #sounded(type, detail) {
    if (this.turns.heard(type, detail)) this.#transcript.sounding(detail.id, type === 'started');
    this.#check();
  }

  #take(event, arrived) {
    const { type } = event;
    if (type === 'response.output_audio.delta') return this.#hear(event);
    const turn = this.turns.take(event, arrived);
    if (type === 'session.created') this.#switch();
    if (type === 'input_audio_buffer.cleared') this.#switched = true;
    if (type === 'response.created') this.#talking = true;
    if (type === 'response.done') this.#talking = false;
    if (type === 'undertone.clear' && !this.#session.onTrack) this.#speaker.flush();
    if (type === 'undertone.playout') this.#edge(event);
    if (type === 'conversation.item.input_audio_transcription.completed') {
      this.#demo.understood();
      this.#transcript.user(event.transcript);
    }
    const clause = type === 'response.output_audio_transcript.delta' && turn?.clauses.at(-1);
    if (clause) this.#transcript.clause(event.item_id, clause.id, clause.text);
    this.#check();
  }

  /** Sets the early start. */
  #switch() {
    this.#session.send({ type: 'session.update', session: { type: 'realtime', undertone: { speculation: this.early } } });
    // The greeting begins with this update. `session.updated` may come before it does; `input_audio_buffer.cleared` comes after.
    this.#session.send({ type: 'input_audio_buffer.clear' });
  }

  #hear({ item_id: item, delta }) {
    const samples = pcm(delta);
    const id = this.turns.audio(item, samples.length);
    if (id !== null) this.#speaker.play(id, samples);
  }

  #edge(event) {
    const id = this.turns.edge(event);
    if (id !== null) this.#speaker.edge(event.kind, id, event.audio_ms * 24, event.rtp_timestamp);
  }

  /** Whether the answer is over and has been heard. */
  #isHeard() {
    const turn = asked(this.turns);
    return Boolean(turn?.record) && !this.#talking && turn.clauses.every(({ pieces }) => pieces.length > 0 && pieces.at(-1).to !== null);
  }

  #until(condition) {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ condition, resolve, reject });
      this.#check();
    });
  }

  #check() {
    this.#waiting = this.#waiting.filter(({ condition, resolve, reject }) => {
      if (this.#over.signal.aborted) reject(this.#over.signal.reason);
      else if (condition()) resolve();
      else return true;
      return false;
    });
  }
}

/** The comparison and its panel. Emits `playing` when it starts or stops, and `connected` with whether audio is on tracks. */
export class Comparison extends EventTarget {
  /** Audio before the start of speech that the server includes in an utterance, ms. */
  preRoll = 0;
  /** The language of its conversations, a BCP 47 tag; empty for the usual one. */
  language = '';
  #transcript;
  #questions = [];
  #speaker = new Speaker();
  /** The conversations of the last play: with the early start, then without. */
  #playings = [];
  /** Counts plays; `playing` while one is under way. */
  #run = 0;
  #active = false;
  #timer = 0;
  #timelines;

  /** @param {import('./transcript.js').Transcript} transcript */
  constructor(transcript) {
    super();
    this.#transcript = transcript;
    this.#timelines = [new Timeline(find('with'), find('comparison-detail'), find('with-numbers')), new Timeline(find('without'), find('comparison-detail'), find('without-numbers'))];
    find('compare').addEventListener('click', () => (this.playing ? this.stop() : this.play(this.#questions[0])));
    find('copy-both').addEventListener('click', () => this.#copy());
  }

  /** Sets the loudspeaker; empty for the usual one. */
  set device(device) {
    this.#speaker.device = device;
  }

  /** The questions that demonstrate the difference: {number, text, language}. */
  set questions(questions) {
    this.#questions = questions;
    find('comparison-questions').replaceChildren(...questions.map((question) => el('button', { type: 'button', class: 'question', lang: question.language, onclick: () => this.play(question) }, question.text)));
    find('compare-line').hidden = questions.length === 0;
  }

  /** Whether a question is being played. */
  get playing() {
    return this.#active;
  }

  /** Plays a question twice. The early start comes first: if the server is warmed up by it, that favours the other. */
  async play({ number, text, language }) {
    this.stop();
    const run = (this.#run += 1);
    this.#playings = [];
    this.#begin(text, language);
    try {
      // Within the click, as browsers require.
      await this.#speaker.start();
      for (const early of [true, false]) {
        // Stopped while the loudspeaker woke up, or a moment ago.
        if (run !== this.#run) return;
        const playing = new Playing(early, this, this.#speaker, this.#transcript, (onTrack) => this.dispatchEvent(new CustomEvent('connected', { detail: onTrack })));
        this.#playings.push(playing);
        this.#transcript.note(`${early ? WITH : WITHOUT}:`);
        this.#draw();
        await playing.play(number);
        await pause(PAUSE);
      }
      if (run === this.#run) this.#finish();
    } catch (error) {
      if (run === this.#run) this.#finish(error.message);
    }
  }

  /** Stops at once. */
  stop() {
    if (!this.playing) return;
    this.#run += 1;
    this.#playings.at(-1)?.close();
    this.#finish('Stopped.');
  }

  /** Hides the panel. */
  hide() {
    this.stop();
    find('comparison').hidden = true;
  }

  #begin(question, language) {
    this.#active = true;
    this.#show();
    find('comparison').hidden = false;
    find('comparison-question').lang = language;
    find('comparison-question').textContent = `“${question}”`;
    find('both').hidden = true;
    for (const timeline of this.#timelines) timeline.clear();
    this.#tell('', 'live', '');
  }

  #finish(trouble) {
    clearTimeout(this.#timer);
    this.#active = false;
    this.#speaker.flush();
    this.#drawBoth();
    const [early, late] = this.#turns();
    if (trouble === undefined) {
      const { sooner, number, says } = difference(early, late);
      this.#tell(number, sooner === null ? 'failed' : 'told', says);
      find('both').hidden = false;
    } else this.#tell('', 'failed', trouble);
    this.#show();
  }

  #show() {
    find('compare').textContent = this.playing ? 'Stop' : 'Hear the difference';
    this.dispatchEvent(new Event('playing'));
  }

  #turns() {
    return this.#playings.map(({ turns }) => asked(turns));
  }

  /** Draws now, and repeatedly while a question is being played. */
  #draw() {
    clearTimeout(this.#timer);
    this.#drawBoth();
    const { early, turns } = this.#playings.at(-1);
    const turn = asked(turns);
    this.#tell('', 'live', [`${early ? '1' : '2'} of 2, ${(early ? WITH : WITHOUT).toLowerCase()}.`, turn && !turn.over ? story(turn).says : ''].join(' ').trim());
    if (this.playing) this.#timer = setTimeout(() => this.#draw(), DRAW_EVERY);
  }

  #drawBoth() {
    const all = this.#playings.map(({ turns }, index) => ({ turn: asked(turns), now: turns.at(performance.now()) ?? 0, timeline: this.#timelines[index] }));
    const known = all.filter(({ turn }) => turn);
    if (known.length === 0) return;
    const view = { around: around(known), estimates: false };
    const rows = this.playing ? [] : differenceRow(...this.#turns());
    for (const { turn, now, timeline } of known) timeline.draw(turn, now, timeline === this.#timelines[1] ? { ...view, more: rows } : view);
  }

  #tell(number, mood, says) {
    // Screen readers announce only the outcome; anything live would talk over the question.
    find('outcome').setAttribute('aria-live', mood === 'live' ? 'off' : 'polite');
    find('outcome').dataset.mood = mood;
    if (find('difference').textContent !== number) find('difference').textContent = number;
    if (find('difference-says').textContent !== says) find('difference-says').textContent = says;
  }

  async #copy() {
    const [early, late] = this.#turns();
    const { sooner } = difference(early, late);
    const done = await copy(JSON.stringify({ sooner_ms: sooner, with: plainTurn(early), without: plainTurn(late) }, null, 2));
    find('copied-both').textContent = done ? 'Copied.' : 'The browser does not let this page copy.';
    setTimeout(() => (find('copied-both').textContent = ''), 3000);
  }
}
