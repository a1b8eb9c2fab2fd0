// A conversation's line over a WebSocket: events and audio in messages.

/** A line of a conversation. `message` gets each message's text, `closed` the code and the reason once it ends. */
export class SocketLine {
  /** Whether the audio of both sides is on tracks instead of in messages. */
  onTrack = false;
  #socket;

  /**
   * @param {URLSearchParams} query
   * @param {string} token empty if there is none
   * @param {{message: (text: string) => void, closed: (code: number, reason: string) => void}} told
   */
  constructor(query, token, told) {
    const address = new URL(`/v1/realtime?${query}`, location.href);
    address.protocol = location.protocol === 'https:' ? 'wss:' : 'ws:';
    this.#socket = new WebSocket(address, ['realtime', ...(token ? [`openai-insecure-api-key.${token}`] : [])]);
    this.#socket.onmessage = ({ data }) => told.message(data);
    this.#socket.onclose = ({ code, reason }) => told.closed(code, reason);
  }

  /** Whether messages can be sent. */
  get isOpen() {
    return this.#socket.readyState === WebSocket.OPEN;
  }

  /** Sends an event. */
  send(text) {
    this.#socket.send(text);
  }

  /** Sends PCM16 at 24 kHz. */
  audio(samples) {
    this.#socket.send(samples);
  }

  /** There is no track. */
  feed() {}

  /** Tells nothing more. */
  mute() {
    this.#socket.onmessage = null;
    this.#socket.onclose = null;
  }

  /** Ends it, untold. */
  close() {
    this.#socket.onclose = null;
    this.#socket.close();
  }
}
