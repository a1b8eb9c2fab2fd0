// A conversation's line over WebRTC: audio on tracks, events on a data channel.

/** How long the server's UDP port may stay silent until the call is given up, ms. */
const PATIENCE = 4000;

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
  #place = null;
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
   * Calls the server.
   * @throws {NoCall} if WebRTC does not work here
   */
  async open() {
    try {
      await this.#dial();
    } catch (error) {
      this.close();
      throw error;
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
    this.#peer?.close();
  }

  /** Tells nothing more. */
  mute() {
    this.#over = true;
    clearTimeout(this.#watching);
    this.#told = { message() {}, closed() {}, track() {} };
  }

  async #dial() {
    if (typeof RTCPeerConnection !== 'function') throw new NoCall('this browser has no WebRTC.');
    const peer = (this.#peer = new RTCPeerConnection());
    const { sender, receiver } = peer.addTransceiver('audio', { direction: 'sendrecv' });
    this.#sender = sender;
    if (this.#outgoing) await sender.replaceTrack(this.#outgoing);
    const channel = (this.#channel = peer.createDataChannel('oai-events'));
    const opened = new Promise((resolve) => (channel.onopen = resolve));
    channel.onmessage = ({ data }) => this.#told.message(data);
    await peer.setLocalDescription();
    await peer.setRemoteDescription({ type: 'answer', sdp: await this.#offer(peer.localDescription.sdp) });
    this.#told.track(receiver, new MediaStream([receiver.track]));
    await this.#within(opened);
    channel.onclose = () => this.#told.closed(UNKNOWN, '');
    peer.onconnectionstatechange = () => this.#watch();
  }

  /** Sends the offer. Returns the answer. */
  async #offer(sdp) {
    const headers = { 'Content-Type': 'application/sdp', ...bearer(this.#token) };
    const answer = await fetch(`/v1/realtime/calls?${this.#query}`, { method: 'POST', headers, body: sdp });
    const body = await answer.text();
    if (!answer.ok) throw refusal(answer.status, errorIn(body));
    this.#place = answer.headers.get('Location');
    return body;
  }

  /** Waits until the call is up, or gives its place back. */
  async #within(opened) {
    const late = new Promise((resolve) => setTimeout(() => resolve('late'), PATIENCE));
    if ((await Promise.race([opened, late])) !== 'late') return;
    await this.#hangUp();
    if (this.#over) throw new Error('closed');
    throw new NoCall(`the server’s UDP port did not answer within ${PATIENCE / 1000} s; a firewall may be in between.`);
  }

  async #hangUp() {
    if (this.#place) await fetch(this.#place, { method: 'DELETE', headers: bearer(this.#token) }).catch(() => {});
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
