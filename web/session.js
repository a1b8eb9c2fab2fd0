// One conversation with the server and its state.

import { bearer, CallLine, CUT_OFF, errorIn, NoCall, pause, UNKNOWN } from './call.js';
import { Kept } from './kept.js';
import { SocketLine } from './socket.js';

/** The token, which is forgotten when this tab closes. */
const kept = new Kept(() => sessionStorage);

/** Pauses between attempts to reconnect, ms. */
const PAUSES = [500, 1000, 2000, 4000];

/** Pauses before attempts to come back to a conversation, ms; the first lets the page learn what was heard. */
const RETURNS = [200, 500, 1000, 2000];

/** How long such an attempt may take, ms. */
const RETURN_PATIENCE = 5000;

/** How long the server may take to say whether it is ready, ms. In a dead network a browser waits for minutes. */
const READY_PATIENCE = 5000;

/** The characters that a header carries to the server, and so all that a token can have. */
const TOKEN = /^[\x20-\x7e]*$/;

const NOT_ACCEPTED = 'The server does not accept this token.';

/** The usual reasons for which a server that answers opens no conversation, as the end of a sentence. */
const USUALLY = 'all places may be taken, or it does not know this address (server.allowed_origins).';

/** The reason that a response gives for a refusal; its status if that is a proxy's. */
export async function reasonOf(answer) {
  return errorIn(await answer.text())?.message ?? `status ${answer.status}.`;
}

/** The server does not keep the conversation any more. */
class Gone extends Error {}

/** Which way the page's conversations go: WebRTC, unless the visitor does not want it or it does not work. */
export const way = {
  /** The visitor wants WebSockets. */
  socket: false,
  /** The reason that WebRTC does not work here, as the end of a sentence; null while it may. */
  trouble: null,
};

/**
 * A conversation over `/v1/realtime`.
 *
 * It opens when it is first needed. Events: `message` with `detail` {event, arrived}, where
 * `arrived` is a time of performance.now(); `track` with the agent's track, {receiver, stream}, if audio goes over tracks;
 * `state` with `detail` {state, reason}:
 *
 * - `ready`: the server is reachable, no conversation is open
 * - `opening`, `open`
 * - `ended`: the server ended the conversation normally
 * - `away`: the connection was lost, and the server keeps the conversation; reconnecting
 * - `lost`: the connection was lost, and with it the conversation; reconnecting
 * - `locked`: the server requires a token; `reason` if it does not accept the one that it was shown
 * - `refused`: the server refuses this page
 */
export class Session extends EventTarget {
  #line = null;
  #opening = null;
  #attempts = 0;
  #told = null;
  #wanted = false;
  #microphone = null;
  #question = null;
  /** The ticket back to the conversation if its line is lost: {secret, within}; null if there is none. */
  #back = null;
  /** The id of the last event. */
  #received = '';
  /** How often a conversation was ended here. */
  #ends = 0;
  /** A line that was cut off and is not hung up yet. */
  #left = null;
  /** Gives up the line that is being opened. */
  #giveUp = () => {};

  /** Returns the agent's last item of which something was heard, and how much: {item, ms}; null if there is none. */
  heard = () => null;

  /** The last reported state. */
  state = 'ready';

  /** The agent, the voice and the language that the next conversation begins with; empty if the server decides. */
  wishes = { agent: '', voice: '', language: '' };

  /** The server's description: its tools, and questions to play. Null if it is unavailable. */
  async about() {
    try {
      const answer = await fetch('playground/about', { headers: this.headers() });
      if (answer.status === 401) this.#lock();
      else if (answer.ok) return this.#offered(await answer.json());
      else this.#tell('refused', `The server refuses this page: ${await reasonOf(answer)}`);
    } catch {
      this.#look();
    }
    return null;
  }

  /** Forgets a chosen agent that the server does not offer any more. */
  #offered(about) {
    if (this.wishes.agent !== '' && !about.agents.includes(this.wishes.agent)) this.wishes.agent = '';
    return about;
  }

  /** The headers for requests besides the socket. */
  headers() {
    return bearer(kept.recall('token'));
  }

  /** Sets the token, which is forgotten when this tab closes. */
  unlock(token) {
    if (!TOKEN.test(token)) return this.#tell('locked', NOT_ACCEPTED);
    kept.keep('token', token);
    this.#tell('ready');
  }

  /** Opens the conversation if it is not open. */
  open() {
    this.#wanted = true;
    if (this.#isOpen) return Promise.resolve();
    return this.#opening ?? this.#pending(this.#connect());
  }

  /** Has `open` wait for this, until it is over or the conversation is ended. */
  #pending(opening) {
    const pending = opening.finally(() => {
      if (this.#opening === pending) this.#opening = null;
    });
    this.#opening = pending;
    return pending;
  }

  /** Sends an event of the protocol; false if no conversation is open. */
  send(event) {
    if (!this.#isOpen) return false;
    this.#line.send(JSON.stringify(event));
    return true;
  }

  /** Sends PCM16 at 24 kHz, unless it goes over a track; false if no conversation is open. */
  audio(samples) {
    if (!this.#isOpen) return false;
    this.#line.audio(samples);
    return true;
  }

  /** Whether an open conversation has its audio on tracks. */
  get onTrack() {
    return this.#line?.onTrack ?? false;
  }

  /** The microphone's track, or null. */
  set microphone(track) {
    this.#microphone = track;
    this.#feed();
  }

  /** The track of a question that is played instead of the microphone, or null. */
  set question(track) {
    this.#question = track;
    this.#feed();
  }

  /** Ends an open conversation, and says so. */
  end() {
    if (!this.#line && !this.#back) return;
    this.close();
    this.#tell('ended');
  }

  /** Ends the conversation. */
  close() {
    this.#wanted = false;
    this.#back = null;
    this.#opening = null;
    this.#ends += 1;
    clearTimeout(this.#told);
    this.#told = null;
    this.#line?.close();
    this.#line = null;
    this.#giveUp();
  }

  get #isOpen() {
    return this.#line?.isOpen ?? false;
  }

  #feed() {
    this.#line?.feed(this.#question ?? this.#microphone);
  }

  async #connect() {
    this.#tell('opening');
    if (!way.socket && way.trouble === null) {
      try {
        return await this.#through(CallLine, this.#anew());
      } catch (error) {
        if (!(error instanceof NoCall)) throw error;
        way.trouble = error.message;
      }
    }
    return this.#through(SocketLine, this.#anew());
  }

  /** The query of a new conversation. */
  #anew() {
    const wishes = Object.entries(this.wishes).filter(([, wish]) => wish !== '');
    return { model: 'undertone', vendor_events: 1, demonstration: 1, resumable: 1, ...Object.fromEntries(wishes) };
  }

  /** The query with which the page comes back to its conversation. */
  #again() {
    const heard = this.heard();
    return { resume: this.#back.secret, last_event_id: this.#received, ...(heard && { item_id: heard.item, audio_end_ms: heard.ms }) };
  }

  /** Opens a conversation through a kind of line, or comes back to one. */
  #through(Line, query) {
    return new Promise((resolve, reject) => {
      this.#giveUp = () => reject(new Error('closed'));
      let opened = false;
      const message = (text) => {
        const arrived = performance.now();
        const event = JSON.parse(text);
        if (event.error?.code === 'session_not_resumable') return reject(new Gone());
        this.#received = event.event_id;
        if (/^undertone\.session\.resum(?:able|ed)$/.test(event.type)) this.#back = { secret: event.resume, within: event.within_ms };
        if (event.type === 'session.created' || event.type === 'undertone.session.resumed') {
          opened = true;
          this.#attempts = 0;
          this.#tell('open');
          resolve();
        }
        this.dispatchEvent(new CustomEvent('message', { detail: { event, arrived } }));
      };
      const closed = (code, reason) => {
        reject(new Error('no conversation'));
        if (this.#line !== line) return;
        this.#line = null;
        // A call is hung up only once the page is back: hanging up would end the conversation.
        if (code === CUT_OFF && opened && this.#back) this.#leave(line);
        else line.close();
        if (opened || !query.resume) this.#closed(opened, code, reason);
      };
      const track = (receiver, stream) => this.dispatchEvent(new CustomEvent('track', { detail: { receiver, stream } }));
      const line = new Line(new URLSearchParams(query), kept.recall('token'), { message, closed, track });
      this.#line = line;
      this.#feed();
      line.open().catch((error) => {
        reject(error);
        if (this.#line !== line) return;
        this.#line = null;
        if (!(error instanceof NoCall) && !query.resume) this.#closed(false, CUT_OFF, error.message);
      });
    });
  }

  async #closed(opened, code, reason) {
    const ends = this.#ends;
    // A call does not tell why it ends, but a server that shuts down is not ready.
    const normally = code === 1000 || code === 1008 || (code === UNKNOWN && (await this.#readiness()) === 'ready');
    // It has been ended meanwhile, and another may have begun.
    if (this.#ends !== ends) return;
    const back = this.#back;
    if (opened && back && !normally) {
      const returning = this.#return(back.within).finally(() => {
        this.#left?.close();
        this.#left = null;
      });
      return this.#pending(returning);
    }
    this.#back = null;
    if (opened && normally) {
      this.#wanted = false;
      this.#tell('ended', reason);
    } else {
      this.#look(opened, reason);
    }
  }

  /** Leaves a line that was cut off, without hanging it up yet. */
  #leave(line) {
    line.mute();
    this.#left = line;
  }

  /** Comes back to the conversation whose line was lost, while the server keeps it. */
  async #return(within) {
    const [ends, until] = [this.#ends, performance.now() + within];
    this.#tell('away');
    for (let tries = 0; performance.now() < until; tries += 1) {
      await pause(RETURNS[Math.min(tries, RETURNS.length - 1)]);
      // It has been ended meanwhile, and another may have begun.
      if (this.#ends !== ends) return;
      const late = pause(RETURN_PATIENCE).then(() => Promise.reject(new Error('late')));
      try {
        return await Promise.race([this.#through(SocketLine, this.#again()), late]);
      } catch (error) {
        if (this.#ends !== ends) return;
        this.#line?.close();
        this.#line = null;
        if (error instanceof Gone) break;
      }
    }
    this.#back = null;
    this.#look();
  }

  /** Polls the server until it responds, then resumes the pending action. `reason`: why it opened no conversation, if that is known. */
  async #look(wasOpen = true, reason = '') {
    if (this.#told) return;
    const found = wasOpen ? null : await this.#readiness();
    if (found === 'ready') {
      // The server responds, but did not open a conversation.
      this.#wanted = false;
      return this.#refusal(reason);
    }
    this.#tell('lost');
    const pause = PAUSES[Math.min(this.#attempts, PAUSES.length - 1)];
    this.#attempts += 1;
    this.#told = setTimeout(async () => {
      this.#told = null;
      if ((await this.#readiness()) !== 'ready') return this.#look();
      this.#attempts = 0;
      this.#tell('ready');
      if (this.#wanted) this.open().catch(() => {});
    }, pause);
  }

  async #readiness() {
    try {
      const answer = await fetch('readyz', { cache: 'no-store', signal: AbortSignal.timeout(READY_PATIENCE) });
      return answer.ok ? 'ready' : 'draining';
    } catch {
      return 'gone';
    }
  }

  async #refusal(reason) {
    const answer = await fetch('playground/about', { headers: this.headers() }).catch(() => null);
    if (answer?.status === 401) return this.#lock();
    const told = reason || (answer?.ok === false && (await reasonOf(answer)));
    this.#tell('refused', `The server answers but opens no conversation: ${told || USUALLY}`);
  }

  /** The server requires a token. One that it does not accept is forgotten. */
  #lock() {
    const reason = kept.recall('token') ? NOT_ACCEPTED : '';
    kept.keep('token', '');
    this.#tell('locked', reason);
  }

  #tell(state, reason = '') {
    if (state === 'lost' && this.state === 'lost') return;
    this.state = state;
    this.dispatchEvent(new CustomEvent('state', { detail: { state, reason } }));
  }
}
