// Groups events into turns. No DOM and no audio here.
//
// Times are milliseconds since the session began, by the server's clock. The page's times are
// converted to it with the smallest delay seen between an event and its arrival.

/** The delay until speech is detected, ms: three windows of the voice activity detector. */
const NOTICED = 96;

/** The time within which an answer cut off by a false interruption resumes, ms. */
const SOON = 1000;

/** Discard reasons that mean a wrong prediction. */
const WRONG = ['superseded', 'turn_ended', 'no_turn'];

/** The assumed drift between the page's clock and the server's: 0.1 ms per second. */
const DRIFT = 0.0001;

/**
 * @typedef {object} Run a call of a tool
 * @property {number} run
 * @property {string} tool
 * @property {object} arguments
 * @property {string | null} source the predictor; null if it started at the commit
 * @property {number} confidence
 * @property {number} started
 * @property {number} [ready] when its result was ready
 * @property {number} [committed]
 * @property {number} [discarded]
 * @property {string} [reason] why it was discarded
 * @property {number} [saved] ms
 * @property {number} [wasted] ms
 */

/**
 * @typedef {object} Prepared an answer that the model was asked for early, and that was held back
 * @property {'end_of_turn' | 'commit' | 'end_of_stream'} before what was still to come
 * @property {string | null} tool the tool whose result it speaks of
 * @property {number} began
 * @property {number} ended when it was used or thrown away
 * @property {boolean} used
 * @property {number} saved how much sooner it was heard, ms
 * @property {number} delayed how long other words were held back for it in vain, ms
 * @property {number} tokens
 */

/** Emits `change` with the changed turn as `detail`, and `new` with a new one. */
export class Turns extends EventTarget {
  /** Oldest first. */
  list = [];
  /** Audio before the start of speech that the server includes in an utterance, ms. */
  preRoll = 0;
  #offset = null;
  #seen = 0;
  /** The turn that collects the user's current or next speech. */
  #listening = null;
  /** The turn that is being answered. */
  #answering = null;
  #pieces = new Map();
  #typed = null;
  /** A false interruption: {turn, noise, until}. Agent speech before `until` continues `turn`. */
  #cutShort = null;
  /** The user has confirmed a call that has not started yet. */
  #yes = false;
  /** The number of turns before this conversation. */
  #before = 0;

  /** Starts a new conversation: turns stay, the clock restarts. */
  reset() {
    for (const turn of [this.#listening, this.#answering]) if (turn) turn.over = true;
    this.#offset = null;
    this.#listening = null;
    this.#answering = null;
    this.#cutShort = null;
    this.#before = this.list.length;
  }

  /** The agent's last item of which something was heard in this conversation, and how much: {item, ms}; null if there is none. */
  lastHeard() {
    const clauses = this.list.slice(this.#before).flatMap((turn) => turn.clauses);
    const last = clauses.findLast((clause) => clause.heard > 0);
    if (!last) return null;
    const samples = clauses.filter(({ item }) => item === last.item).reduce((sum, { heard }) => sum + heard, 0);
    return { item: last.item, ms: Math.floor(samples / 24) };
  }

  /** Converts a page time to the session's clock; null before the first server event. */
  at(local) {
    return this.#offset === null ? null : local - this.#offset;
  }

  /** The user typed. */
  typed(local) {
    this.#typed = local;
  }

  /** Handles a server event. Returns the turn that it belongs to, if any. */
  take(event, arrived) {
    const at = event.undertone_at === undefined ? this.at(arrived) : event.undertone_at / 1000;
    if (event.undertone_at !== undefined) this.#learn(arrived - at, arrived);
    const turn = HANDLERS[event.type]?.call(this, event, at, this);
    if (turn) this.changed(turn);
    return turn ?? null;
  }

  #learn(offset, arrived) {
    const drifted = this.#offset === null ? Infinity : this.#offset + (arrived - this.#seen) * DRIFT;
    this.#offset = Math.min(drifted, offset);
    this.#seen = arrived;
  }

  changed(turn) {
    this.dispatchEvent(new CustomEvent('change', { detail: turn }));
  }

  /** The turn that collects the user's speech. */
  listening() {
    this.#listening ??= this.#begin();
    return this.#listening;
  }

  answering() {
    return this.#answering;
  }

  #begin() {
    const turn = {
      number: this.list.length + 1,
      id: null,
      status: null,
      over: false,
      user: { text: '', spoken: false, from: null, to: null },
      partials: [],
      predictions: [],
      runs: [],
      /** Answers that were held back: {@link Prepared}. */
      prepared: [],
      /** Fillers that were not said because the answer was there. */
      unsaid: 0,
      calls: [],
      clauses: [],
      latency: {},
      /** A barge-in over playing audio: {at, silent, by}. */
      bargeIn: null,
      /** The turn that was being answered when the user was detected. */
      interrupted: null,
      /** A false interruption cut it off, and another turn continues it. */
      continued: false,
      /** It continues a turn that a false interruption cut off. */
      continues: false,
      /** A stage that failed: {stage, message, at}. */
      failure: null,
      /** The tool whose call waits for confirmation. */
      asked: null,
      declined: false,
      /** The user has just confirmed its call. */
      confirmed: false,
      record: null,
    };
    this.list.push(turn);
    this.dispatchEvent(new CustomEvent('new', { detail: turn }));
    return turn;
  }

  speechStarted(event, at) {
    const turn = this.listening();
    const sounding = this.#answering && soundingAt(this.#answering, at);
    if (sounding) this.#answering.bargeIn = { at, silent: sounding.to, by: turn };
    turn.interrupted = sounding || this.#answering?.over === false ? this.#answering : null;
    turn.user.spoken = true;
    turn.user.audio = event.audio_start_ms;
    turn.user.from ??= at;
    turn.user.speaking = true;
    return turn;
  }

  speechStopped(event, at) {
    const turn = this.listening();
    turn.user.speaking = false;
    turn.user.noticed = at;
    turn.user.length = Math.max(0, event.audio_end_ms - turn.user.audio - this.preRoll);
    // The event comes after enough silence, so the last word was earlier.
    turn.user.to = Math.min(at, turn.user.from - NOTICED + turn.user.length);
    return turn;
  }

  dropped(at) {
    const turn = this.#listening;
    if (!turn) return null;
    turn.over = true;
    turn.status = 'dropped';
    this.#listening = null;
    const { interrupted } = turn;
    if (interrupted) {
      interrupted.bargeIn = null;
      this.#cutShort = { turn: interrupted, noise: turn, until: at + SOON };
      this.changed(interrupted);
    }
    return turn;
  }

  said(item, at) {
    const turn = this.listening();
    const content = item.content?.[0] ?? {};
    turn.user.text = content.transcript ?? content.text ?? turn.user.text;
    if (content.type === 'input_text') {
      turn.user.from = turn.user.to = this.at(this.#typed ?? 0) ?? at;
      turn.user.spoken = false;
    }
    return turn;
  }

  responseCreated(at) {
    this.#answering = this.listening();
    this.#listening = null;
    if (!isAlone(this.#answering)) this.#cutShort = null;
    else if (this.#cutShort && at <= this.#cutShort.until) this.#goOn();
    this.#answering.responded = at;
    this.#answering.confirmed = this.#yes;
    this.#yes = false;
    return this.#answering;
  }

  /** Resumes a turn after a false interruption. */
  #goOn() {
    const { turn, noise } = this.#cutShort;
    this.#answering.continues = true;
    turn.continued = true;
    noise.continued = true;
    this.changed(turn);
    this.changed(noise);
  }

  /** The turn that current speculative runs belong to. */
  early() {
    if (this.#listening?.user.speaking || !this.#answering || this.#answering.over) return this.listening();
    return this.#answering;
  }

  run(number) {
    for (const turn of this.list.toReversed()) {
      const run = turn.runs.find((run) => run.run === number);
      if (run) return { turn, run };
    }
    return {};
  }

  speculated(event) {
    const at = (event.at ?? event.prediction?.at) / 1000;
    if (event.kind === 'predicted') {
      const turn = this.early();
      const { tool, source, confidence, decision } = event.prediction;
      turn.predictions.push({ at, tool, source, confidence, decision, arguments: event.arguments });
      return turn;
    }
    if (event.kind === 'started') {
      const turn = this.early();
      const { run, tool, arguments: values, source, confidence } = event;
      turn.runs.push({ run, tool, arguments: values, source, confidence, started: at });
      return turn;
    }
    const { turn, run } = this.run(event.run);
    if (!run) return null;
    if (event.kind === 'ready') run.ready = at;
    if (event.kind === 'committed') run.committed = at;
    if (event.kind === 'discarded') Object.assign(run, { discarded: at, reason: event.reason, wasted: event.wasted / 1000 });
    return turn;
  }

  called(item, at) {
    if (item.type !== 'mcp_call') return null;
    const turn = this.#answering;
    turn?.calls.push({ item: item.id, tool: item.name, at });
    return turn;
  }

  /** Updates a call. */
  call(item, known) {
    for (const turn of this.list.toReversed()) {
      const call = turn.calls.find((call) => call.item === item);
      if (!call) continue;
      Object.assign(call, known);
      return turn;
    }
    return null;
  }

  /** Records the answer to a confirmation. */
  confirmed(yes) {
    const turn = this.list.findLast((turn) => turn.asked);
    if (turn && !yes) turn.declined = true;
    this.#yes = yes;
    return turn ?? null;
  }

  failed({ stage, message }, at) {
    const turn = this.#listening ?? this.#answering ?? this.list.at(-1);
    if (turn) turn.failure = { stage, message, at };
    return turn ?? null;
  }

  clause(event, at) {
    const turn = this.#answering;
    if (!turn) return null;
    const clause = {
      id: `${event.item_id}/${turn.clauses.length}`,
      item: event.item_id,
      text: event.delta.trim(),
      /** Its number at the server, if its audio is on a track. */
      number: event.undertone_clause,
      at,
      samples: 0,
      heard: 0,
      pieces: [],
    };
    turn.clauses.push(clause);
    this.#pieces.set(clause.id, { turn, clause });
    return turn;
  }

  /** Handles audio of an item. Returns the id of its piece. */
  audio(item, samples) {
    const clause = this.#answering?.clauses.findLast((clause) => clause.item === item);
    if (!clause) return null;
    clause.samples += samples;
    return clause.id;
  }

  /** Handles an edge of a clause on the track. Returns the id of its piece. */
  edge({ clause: number, audio_ms: ms }) {
    const [found] = [...this.#pieces.values()].filter(({ clause }) => clause.number === number).slice(-1);
    if (!found) return null;
    found.clause.samples = Math.max(found.clause.samples, ms * 24);
    return found.clause.id;
  }

  /** Handles a playout event of a piece. */
  heard(type, { id, samples, at }) {
    const found = this.#pieces.get(id);
    if (!found) return null;
    const { turn, clause } = found;
    const time = this.at(at);
    if (type === 'started') clause.pieces.push({ from: time, to: null });
    else {
      const piece = clause.pieces.at(-1);
      if (piece && piece.to === null) piece.to = time;
      clause.cut ||= type === 'flushed';
    }
    clause.heard = samples;
    this.changed(turn);
    return found;
  }

  /** Handles the end of playback by a barge-in. */
  silenced(local) {
    const turn = this.list.findLast((turn) => turn.bargeIn && turn.bargeIn.silent === null);
    if (!turn) return;
    turn.bargeIn.silent = this.at(local);
    this.changed(turn);
  }

  finished(event, at) {
    const turn = this.#answering;
    if (!turn) return null;
    if (turn.continues && this.#cutShort) this.#cutShort.until = at + SOON;
    turn.id = event.turn;
    turn.status = event.status;
    turn.latency = stamps(event.latency);
    turn.over = true;
    return turn;
  }

  recorded(record) {
    const turn = record.turn === null ? this.list.findLast((turn) => turn.id === null && turn.over) : this.list.findLast((turn) => turn.id === `turn_${record.turn}`);
    if (!turn) return null;
    turn.record = record;
    turn.unsaid = record.fillers_dropped ?? 0;
    turn.prepared = (record.held ?? []).map(({ began, ended, saved, delayed = 0, usage, ...kept }) => ({
      ...kept,
      began: began / 1000,
      ended: ended / 1000,
      saved: saved / 1000,
      delayed: delayed / 1000,
      tokens: usage.input + usage.output,
    }));
    for (const told of record.runs) {
      let run = turn.runs.find((run) => run.run === told.run);
      if (!run) turn.runs.push((run = { run: told.run }));
      Object.assign(run, {
        tool: told.tool,
        arguments: told.arguments,
        source: told.source,
        confidence: told.confidence,
        started: told.started / 1000,
        finished: told.finished === null ? undefined : told.finished / 1000,
        ok: told.ok,
        saved: told.saved / 1000,
        wasted: told.wasted / 1000,
        cost: told.cost,
      });
      if (told.fate.kind === 'committed') run.committed = told.fate.at / 1000;
      else Object.assign(run, { discarded: told.fate.at / 1000, reason: told.fate.reason });
    }
    return turn;
  }
}

const HANDLERS = {
  'input_audio_buffer.speech_started'(event, at) {
    return this.speechStarted(event, at);
  },
  'input_audio_buffer.speech_stopped'(event, at) {
    return this.speechStopped(event, at);
  },
  'undertone.transcript.partial'(event, at) {
    const turn = this.listening();
    turn.partials.push({ at, text: event.text });
    turn.user.text = event.text;
    return turn;
  },
  'undertone.utterance_dropped'(_, at) {
    return this.dropped(at);
  },
  'conversation.item.done'(event, at) {
    return event.item.role === 'user' ? this.said(event.item, at) : null;
  },
  'conversation.item.input_audio_transcription.completed'(event, at) {
    // Committed audio without words is no turn.
    if (event.transcript === '') return null;
    const turn = this.listening();
    turn.user.text = event.transcript;
    turn.user.understood = at;
    return turn;
  },
  'response.created'(_, at) {
    return this.responseCreated(at);
  },
  'undertone.speculation'(event) {
    return this.speculated(event);
  },
  'response.output_item.added'({ item }, at) {
    return this.called(item, at);
  },
  'response.mcp_call.completed'(event, at) {
    return this.call(event.item_id, { ended: at, ok: true });
  },
  'response.mcp_call.failed'(event, at) {
    return this.call(event.item_id, { ended: at, ok: false });
  },
  'response.output_item.done'({ item }) {
    return item.error ? this.call(item.id, { error: item.error.message }) : null;
  },
  'undertone.stage_failed'(event, at) {
    return this.failed(event, at);
  },
  'undertone.confirmation.asked'({ name }) {
    const turn = this.answering();
    if (turn) turn.asked = name;
    return turn;
  },
  'undertone.confirmation.ended'({ outcome }) {
    return this.confirmed(outcome === 'accepted');
  },
  'response.output_audio_transcript.delta'(event, at) {
    return this.clause(event, at);
  },
  'undertone.turn'(event, at) {
    return this.finished(event, at);
  },
  'undertone.turn_record'(event) {
    return this.recorded(event);
  },
};

function stamps(latency) {
  const known = Object.entries(latency).filter(([, time]) => time !== null);
  return Object.fromEntries(known.map(([stage, time]) => [stage, time / 1000]));
}

/** The start and end of the user's speech; the end is the server's timestamp where there is one. */
export function speech(turn) {
  const to = turn.latency.speech_end ?? turn.user.to;
  const from = turn.user.length !== undefined && to !== null ? to - turn.user.length : turn.user.from;
  return { from, to };
}

/** The piece that was playing when speech was detected at `at`, if any. */
function soundingAt(turn, at) {
  const clause = turn.clauses.findLast(({ pieces }) => pieces.length > 0);
  const piece = clause?.pieces.at(-1);
  // The page may have stopped playing before it learns why.
  const sounds = piece && (piece.to === null || (clause.cut && piece.to >= at - NOTICED));
  return sounds ? piece : null;
}

/** Whether nobody spoke or typed before it. */
export function isAlone(turn) {
  return turn.user.from === null && turn.user.text === '';
}

/** When the result of a call was ready; undefined if it never was. */
export function resultAt(run) {
  return run.finished ?? run.ready;
}

/** A call that started at most this long before its commit does not count as early, ms. */
const EARLY = 20;

/** Whether a call started noticeably before its commit. */
export function isEarly(run) {
  return Boolean(run.source) && (run.committed === undefined || run.committed - run.started >= EARLY);
}

/** Discard reasons of calls that the server never ran. */
const REFUSED = ['budget', 'overloaded'];

/** Whether the server refused to run an early call. */
export function isRefused(run) {
  return run.discarded !== undefined && REFUSED.includes(run.reason);
}

/** The least noticeable saving, ms. */
export const FELT = 100;

/** The prepared answer that the user heard noticeably sooner, if any: the one that gained most. */
export function preparedAnswer(turn) {
  const felt = turn.prepared.filter((answer) => answer.used && answer.saved >= FELT);
  return felt.toSorted((a, b) => b.saved - a.saved)[0];
}

/** Whether a speculative run was discarded because of a wrong prediction. */
export function isGuessWrong(run) {
  return run.discarded !== undefined && WRONG.includes(run.reason);
}

/** The server's reason for a failed call; undefined if there is none. */
export function whyFailed(turn, run) {
  return turn.calls.find((call) => call.tool === run.tool && call.error)?.error;
}

/** Whether a clause was a filler. */
export function isFiller(turn, clause) {
  if (turn.latency.answer_audio !== undefined) return clause.at < turn.latency.answer_audio - 0.5;
  if (turn.latency.tool_result !== undefined) return clause.at < turn.latency.tool_result;
  const call = turn.calls[0];
  return call !== undefined && clause.at < (call.ended ?? Infinity);
}

/** The playout in order: spans of time with their kinds. A piece that is still playing ends at `now`. */
export function playout(turn, now) {
  return turn.clauses.flatMap((clause) =>
    clause.pieces.map(({ from, to }) => ({
      from,
      to: to ?? now,
      kind: isFiller(turn, clause) ? 'filler' : 'answer',
      text: clause.text,
      at: clause.at,
      cut: clause.cut,
    })),
  );
}

/** Silences between two sounds; less than 40 ms is not counted. */
export function deadAir(turn, now) {
  const heard = playout(turn, now);
  return heard
    .slice(1)
    .map((piece, index) => ({ from: heard[index].to, to: piece.from, before: heard[index], after: piece }))
    .filter(({ from, to, before, after }) => to - from > 40 && before.kind === 'filler' && after.kind === 'answer');
}

/** The latest known moment of a turn. */
export function end(turn) {
  const times = [
    ...Object.entries(turn.latency).filter(([stage]) => stage !== 'dead_air').map(([, time]) => time),
    ...turn.runs.flatMap((run) => [run.started, run.finished, run.ready, run.committed, run.discarded]),
    ...turn.clauses.flatMap((clause) => [clause.at, ...clause.pieces.flatMap(({ from, to }) => [from, to])]),
    ...turn.partials.map(({ at }) => at),
    ...turn.predictions.map(({ at }) => at),
    turn.user.to,
    turn.user.from,
    turn.responded,
  ];
  return Math.max(...times.filter((time) => typeof time === 'number'), 0);
}

/** A turn for copying: plain values, times in ms since the session began. */
export function plainTurn(turn) {
  const { number, id, status, user, partials, predictions, runs, calls, clauses, latency, bargeIn, failure, record } = turn;
  const said = clauses.map((clause) => ({
    text: clause.text,
    kind: isFiller(turn, clause) ? 'filler' : 'answer',
    sent_at: clause.at,
    length_ms: clause.samples / 24,
    heard_ms: clause.heard / 24,
    heard: clause.pieces,
    interrupted: clause.cut ?? false,
  }));
  const { text, spoken } = user;
  return { number, id, status, user: { text, spoken, ...speech(turn) }, partials, predictions, runs, calls, said, latency, failure, barge_in: bargeIn && { noticed: bargeIn.at, silent: bargeIn.silent, by_turn: bargeIn.by.number }, server_record: record };
}
