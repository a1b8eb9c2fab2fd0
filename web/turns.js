// What happened, gathered into turns. No page and no sound here: events in, turns out.
//
// Times are milliseconds since the session began, by the server's clock. What happens in the page is
// brought to that clock by the least delay that was seen between an event and its arrival.

/** Speech is noticed so long after it began, ms: three windows of the voice activity detector. */
const NOTICED = 96;

/** What a noise has cut short is taken up again within this time, ms. */
const SOON = 1000;

/** Why a call that ran early had been guessed wrong. */
const WRONG = ['superseded', 'turn_ended', 'no_turn'];

/** How fast the page's clock may run away from the server's: 0.1 ms a second. */
const DRIFT = 0.0001;

/**
 * @typedef {object} Run a call of a tool
 * @property {number} run
 * @property {string} tool
 * @property {object} arguments
 * @property {string | null} source who predicted it; null if it started because it was committed
 * @property {number} confidence
 * @property {number} started
 * @property {number} [ready] its result was there
 * @property {number} [committed]
 * @property {number} [discarded]
 * @property {string} [reason] why it was discarded
 * @property {number} [saved] ms
 * @property {number} [wasted] ms
 */

/** Events: `change` with the turn that changed as `detail`, `new` with a new one. */
export class Turns extends EventTarget {
  /** Oldest first. */
  list = [];
  /** Audio before the first sound of speech that the server counts as speech, ms. */
  preRoll = 0;
  #offset = null;
  #seen = 0;
  /** The turn whose user is being heard, or the next one's. */
  #listening = null;
  /** The turn that is being answered. */
  #answering = null;
  #pieces = new Map();
  #typed = null;
  /** A noise cut a turn short: {turn, noise, until}. What the agent says by `until` goes on with it. */
  #cutShort = null;
  /** A yes was given, and what it is for has not begun. */
  #yes = false;

  /** A new conversation: turns stay, its clock begins anew. */
  reset() {
    for (const turn of [this.#listening, this.#answering]) if (turn) turn.over = true;
    this.#offset = null;
    this.#listening = null;
    this.#answering = null;
    this.#cutShort = null;
  }

  /** A time of the page on the session's clock; null before the server was heard. */
  at(local) {
    return this.#offset === null ? null : local - this.#offset;
  }

  /** The user typed. */
  typed(local) {
    this.#typed = local;
  }

  /** Takes in an event of the server. Returns the turn that it belongs to, if any. */
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

  /** The turn that gathers what is heard. */
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
      calls: [],
      clauses: [],
      latency: {},
      /** The user spoke over what was sounding: {at, silent, by}. */
      bargeIn: null,
      /** The turn that was being answered when the user was heard. */
      interrupted: null,
      /** A noise cut it short, and another turn goes on with it. */
      continued: false,
      /** It goes on with a turn that a noise cut short. */
      continues: false,
      /** A stage that failed: {stage, message, at}. */
      failure: null,
      /** The tool whose call waits for the user's yes. */
      asked: null,
      declined: false,
      /** The user has just said yes to what it does. */
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
    turn.user.length = Math.max(0, event.audio_end_ms - turn.user.audio - this.preRoll);
    // The event comes when the silence was long enough. The last word was before that.
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

  /** What a noise cut short is taken up again. */
  #goOn() {
    const { turn, noise } = this.#cutShort;
    this.#answering.continues = true;
    turn.continued = true;
    noise.continued = true;
    this.changed(turn);
    this.changed(noise);
  }

  /** The turn to which what runs early now belongs. */
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

  /** Something is known of a call. */
  call(item, known) {
    for (const turn of this.list.toReversed()) {
      const call = turn.calls.find((call) => call.item === item);
      if (!call) continue;
      Object.assign(call, known);
      return turn;
    }
    return null;
  }

  /** The question whether something may be done has its answer. */
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
      at,
      samples: 0,
      heard: 0,
      pieces: [],
    };
    turn.clauses.push(clause);
    this.#pieces.set(clause.id, { turn, clause });
    return turn;
  }

  /** Audio of an item came: returns the id of the piece that it belongs to. */
  audio(item, samples) {
    const clause = this.#answering?.clauses.findLast((clause) => clause.item === item);
    if (!clause) return null;
    clause.samples += samples;
    return clause.id;
  }

  /** The page's speaker told something of a piece. */
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

  /** The page fell silent because the user spoke. */
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
  'conversation.item.input_audio_transcription.completed'(event) {
    const turn = this.listening();
    turn.user.text = event.transcript;
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

/** When the user began and ended; the end by the server's own stamp where there is one. */
export function speech(turn) {
  const to = turn.latency.speech_end ?? turn.user.to;
  const from = turn.user.length !== undefined && to !== null ? to - turn.user.length : turn.user.from;
  return { from, to };
}

/** The piece of sound that a voice which was noticed at `at` has cut short, if one was sounding. */
function soundingAt(turn, at) {
  const clause = turn.clauses.findLast(({ pieces }) => pieces.length > 0);
  const piece = clause?.pieces.at(-1);
  // The page may have fallen silent before it is told why.
  const sounds = piece && (piece.to === null || (clause.cut && piece.to >= at - NOTICED));
  return sounds ? piece : null;
}

/** Whether nobody spoke or typed before it. */
export function isAlone(turn) {
  return turn.user.from === null && turn.user.text === '';
}

/** When the result of a call was there; undefined if it never was. */
export function resultAt(run) {
  return run.finished ?? run.ready;
}

/** A call that began so shortly before the model asked for it did not begin early, ms. */
const EARLY = 20;

/** Whether a call began before the model had asked for it, as far as that matters. */
export function isEarly(run) {
  return Boolean(run.source) && (run.committed === undefined || run.committed - run.started >= EARLY);
}

/** Whether a call ran early for nothing because something else was meant. */
export function isGuessWrong(run) {
  return run.discarded !== undefined && WRONG.includes(run.reason);
}

/** Why a call failed, in the words of the server; undefined if it does not say. */
export function whyFailed(turn, run) {
  return turn.calls.find((call) => call.tool === run.tool && call.error)?.error;
}

/** Whether the words of a clause bridged the wait for a tool. */
export function isFiller(turn, clause) {
  if (turn.latency.answer_audio !== undefined) return clause.at < turn.latency.answer_audio - 0.5;
  if (turn.latency.tool_result !== undefined) return clause.at < turn.latency.tool_result;
  const call = turn.calls[0];
  return call !== undefined && clause.at < (call.ended ?? Infinity);
}

/** What was heard, oldest first: pieces of time and what they were. A piece that still sounds ends at `now`. */
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

/** Spans between two sounds in which the user heard nothing. Less than 40 ms is a breath. */
export function deadAir(turn, now) {
  const heard = playout(turn, now);
  return heard
    .slice(1)
    .map((piece, index) => ({ from: heard[index].to, to: piece.from, before: heard[index], after: piece }))
    .filter(({ from, to, before, after }) => to - from > 40 && before.kind === 'filler' && after.kind === 'answer');
}

/** The last moment of a turn that anything is known of. */
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

/** A turn as it is copied: plain values, times in ms since the session began. */
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
