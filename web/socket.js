// A conversation's line over a WebSocket: events and audio in messages.

import { bearer, CUT_OFF, errorIn, Refused } from './call.js';

/** A subprotocol, by which a browser shows a token, has no other characters (RFC 9110: token). */
const FIT = /^[\w!#$%&'*+.^`|~-]*$/;

/** How long a client secret is valid, s: it is used at once. */
const VALID = 60;

/** Audio that may wait to be sent, bytes: five seconds. If more waits, the network is gone, which a socket does not tell. */
const MAX_WAITING = 5 * 24_000 * 2;

/** A line of a conversation. `message` gets each message's text, `closed` the code and the reason once it ends. */
export class SocketLine {
  /** Whether the audio of both sides is on tracks instead of in messages. */
  onTrack = false;
  #query;
  #token;
  #told;
  #socket = null;
  #over = false;

  /**
   * @param {URLSearchParams} query
   * @param {string} token empty if there is none
   * @param {{message: (text: string) => void, closed: (code: number, reason: string) => void}} told
   */
  constructor(query, token, told) {
    this.#query = query;
    this.#token = token;
    this.#told = told;
  }

  /** Connects. */
  async open() {
    const key = FIT.test(this.#token) ? this.#token : await this.#secret();
    if (this.#over) throw new Error('closed');
    const address = new URL(`v1/realtime?${this.#query}`, location.href);
    address.protocol = location.protocol === 'https:' ? 'wss:' : 'ws:';
    this.#socket = new WebSocket(address, ['realtime', ...(key ? [`openai-insecure-api-key.${key}`] : [])]);
    this.#socket.onmessage = ({ data }) => this.#told.message(data);
    this.#socket.onclose = ({ code, reason }) => this.#told.closed(code, reason);
  }

  /** Whether messages can be sent. */
  get isOpen() {
    return this.#socket?.readyState === WebSocket.OPEN;
  }

  /** Sends an event. */
  send(text) {
    this.#socket.send(text);
  }

  /** Sends PCM16 at 24 kHz. */
  audio(samples) {
    this.#socket.send(samples);
    if (this.#socket.bufferedAmount > MAX_WAITING) this.#told.closed(CUT_OFF, '');
  }

  /** There is no track. */
  feed() {}

  /** Tells nothing more. */
  mute() {
    this.#told = { message() {}, closed() {} };
  }

  /** Ends it, untold. */
  close() {
    this.#over = true;
    this.mute();
    this.#socket?.close();
  }

  /**
   * Asks for a client secret to show instead of the token. The wishes go into it, because whoever shows a secret may
   * choose less than whoever shows the token.
   */
  async #secret() {
    const [agent, voice, language] = ['agent', 'voice', 'language'].map((wish) => {
      const wanted = this.#query.get(wish);
      this.#query.delete(wish);
      return wanted;
    });
    const audio = { ...(voice && { output: { voice } }), ...(language && { input: { transcription: { language } } }) };
    const wishes = { session: { type: 'realtime', audio }, undertone: { ...(agent && { agent }) } };
    const body = JSON.stringify({ expires_after: { anchor: 'created_at', seconds: VALID }, ...wishes });
    const headers = { 'Content-Type': 'application/json', ...bearer(this.#token) };
    const answer = await fetch('v1/realtime/client_secrets', { method: 'POST', headers, body });
    if (!answer.ok) throw new Refused(errorIn(await answer.text())?.message);
    return (await answer.json()).value;
  }
}
