// A conversation's line over WebRTC: audio on tracks, events on a data channel.

/** How long the server's UDP port may stay silent until the call is given up, ms. */
const PATIENCE = 4000;

/** How long both sides' addresses may be known until the browser's statistics show how it pairs them, ms. */
const PAIRING = 300;

/** How long a call that receives nothing may recover, ms. */
const RECOVERY = 4000;

/** The close code of a WebSocket that was cut off. The call's reason to end is not known. */
export const CUT_OFF = 1006;
export const UNKNOWN = 1005;

/** Responses that any other way to the server would get, too. */
const REFUSALS = [401, 403, 429, 502, 503, 504];

/** The code of the one error in a request that concerns the call itself. */
const OF_THE_OFFER = 'invalid_offer';

/** WebRTC does not work here, though a WebSocket may: the reason, as the end of a sentence. */
export class NoCall extends Error {}

/** The server refuses the conversation. The message is its reason, as the end of a sentence; empty if it gave none. */
export class Refused extends Error {}

/** The header that shows a token; none if it is empty. */
export const bearer = (token) => (token ? { Authorization: `Bearer ${token}` } : {});

/** Resolves after some ms. */
export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Resolves once a peer's `state`, such as `iceGatheringState`, is as wanted. */
const reached = (peer, state, wanted) =>
  new Promise((resolve) => {
    const look = () => peer[state] === wanted && resolve();
    peer.addEventListener(`${state.toLowerCase()}change`, look);
    look();
  });

/** Does something with the browser's WebRTC, whose errors become a `NoCall`. */
async function inBrowser(act) {
  try {
    return await act();
  } catch (error) {
    throw new NoCall(`this browser refuses the call (${error.message}).`);
  }
}

/** A line of a conversation, as `SocketLine` is. `track` gets the agent's track. */
export class CallLine {
  onTrack = true;
  #told;
  #query;
  #token;
  #peer = null;
  #channel = null;
  #sender = null;
  #outgoing = null;
  /** The call's, while only a request ends it: later the server hears when the peer closes. */
  #id = null;
  #watching = 0;
  #over = false;

  /**
   * @param {URLSearchParams} query
   * @param {string} token empty if there is none
   * @param {{message: (text: string) => void, closed: (code: number, reason: string) => void, track: (receiver: RTCRtpReceiver, stream: MediaStream) => void}} told
   */
  constructor(query, token, told) {
    this.#query = query;
    this.#token = token;
    this.#told = told;
  }

  /**
   * Calls the server, or gives the call's place back.
   * @throws {NoCall} if WebRTC does not work here
   */
  async open() {
    try {
      await this.#dial();
    } catch (error) {
      const isClosed = this.#over;
      this.mute();
      await this.#end();
      throw isClosed ? new Error('closed') : error;
    }
  }

  get isOpen() {
    return this.#channel?.readyState === 'open';
  }

  send(text) {
    this.#channel.send(text);
  }

  /** The audio is on the track already. */
  audio() {}

  /** Sends the audio of a track from now on, or none. */
  feed(track) {
    this.#outgoing = track;
    this.#sender?.replaceTrack(track).catch(() => {});
  }

  close() {
    this.mute();
    this.#end();
  }

  /** Tells nothing more. */
  mute() {
    this.#over = true;
    clearTimeout(this.#watching);
    this.#told = { message() {}, closed() {}, track() {} };
  }

  async #dial() {
    if (typeof RTCPeerConnection !== 'function') throw new NoCall('this browser has no WebRTC.');
    const { receiver, opened } = await inBrowser(() => this.#prepare());
    const peer = this.#peer;
    const answer = await this.#offer(peer.localDescription.sdp);
    await inBrowser(() => peer.setRemoteDescription({ type: 'answer', sdp: answer }));
    this.#told.track(receiver, new MediaStream([receiver.track]));
    await this.#within(opened);
    this.#id = null;
    this.#channel.onclose = () => this.#told.closed(UNKNOWN, '');
    peer.onconnectionstatechange = () => this.#watch();
  }

  /** Makes the offer. Returns the receiver of the agent's track, and a promise for when events can be sent. */
  async #prepare() {
    const peer = (this.#peer = new RTCPeerConnection());
    const { sender, receiver } = peer.addTransceiver('audio', { direction: 'sendrecv' });
    this.#sender = sender;
    if (this.#outgoing) await sender.replaceTrack(this.#outgoing);
    const channel = (this.#channel = peer.createDataChannel('oai-events'));
    const opened = new Promise((resolve) => (channel.onopen = () => resolve(null)));
    channel.onmessage = ({ data }) => this.#told.message(data);
    await peer.setLocalDescription();
    return { receiver, opened };
  }

  /** Sends the offer. Returns the answer. */
  async #offer(sdp) {
    const headers = { 'Content-Type': 'application/sdp', ...bearer(this.#token) };
    const answer = await fetch(`v1/realtime/calls?${this.#query}`, { method: 'POST', headers, body: sdp });
    const body = await answer.text();
    if (!answer.ok) throw refusal(answer.status, errorIn(body));
    // Its path is the server's, which a proxy may show under another.
    this.#id = answer.headers.get('Location')?.split('/').at(-1);
    return body;
  }

  /** Waits until the call is up, or cannot come up any more. */
  async #within(opened) {
    const silent = (told) => `the server’s UDP port did not answer${told}; a firewall may be in between.`;
    const late = pause(PATIENCE).then(() => silent(` within ${PATIENCE / 1000} s`));
    const failed = reached(this.#peer, 'iceConnectionState', 'failed').then(() => silent(''));
    const trouble = await Promise.race([opened, late, failed, this.#unpaired()]);
    if (trouble !== null) throw new NoCall(trouble);
  }

  /** Resolves with the reason if the browser pairs none of its addresses with one of the server's. The answer lists all of those. */
  async #unpaired() {
    await reached(this.#peer, 'iceGatheringState', 'complete');
    await pause(PAIRING);
    const stats = await this.#peer.getStats().catch(() => null);
    const mayReach = stats === null || [...stats.values()].some(({ type }) => type === 'candidate-pair');
    if (mayReach) return new Promise(() => {});
    return 'this browser finds no way to the server’s address for calls; Firefox, for one, makes none to its own machine.';
  }

  /** Ends the call, once. */
  async #end() {
    const id = this.#id;
    this.#id = null;
    this.feed(null);
    if (id) await fetch(`v1/realtime/calls/${id}`, { method: 'DELETE', headers: bearer(this.#token) }).catch(() => {});
    this.#peer?.close();
  }

  #watch() {
    clearTimeout(this.#watching);
    const { connectionState: state } = this.#peer;
    if (state === 'failed' || state === 'closed') this.#told.closed(CUT_OFF, '');
    if (state === 'disconnected') this.#watching = setTimeout(() => this.#told.closed(CUT_OFF, ''), RECOVERY);
  }
}

/** The refusal of a call; a `NoCall` unless any other way to the server would be refused, too. */
function refusal(status, error) {
  const isGeneral = REFUSALS.includes(status) || (status === 400 && error !== null && error.code !== OF_THE_OFFER);
  if (isGeneral) return new Refused(error?.message);
  return new NoCall(error ? `the server says: ${error.message}` : `the server refuses the call (${status}).`);
}

/** The server's error in the body of a response, {code, message}; null if there is none. */
export function errorIn(body) {
  try {
    return JSON.parse(body).error ?? null;
  } catch {
    return null;
  }
}
