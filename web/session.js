// The socket to the server: one conversation and its state.

const KEY = 'undertone.token';

/** Pauses between attempts to reconnect, ms. */
const PAUSES = [500, 1000, 2000, 4000];

/**
 * A conversation over `/v1/realtime`.
 *
 * It opens when it is first needed. Events: `message` with `detail` {event, arrived}, where
 * `arrived` is a time of performance.now(); `state` with `detail` {state, reason}:
 *
 * - `ready`: the server is reachable, no conversation is open
 * - `opening`, `open`
 * - `ended`: the server ended the conversation normally
 * - `lost`: the connection was lost; reconnecting
 * - `locked`: the server requires a token
 * - `refused`: the server refuses this page
 */
export class Session extends EventTarget {
  #socket = null;
  #opening = null;
  #attempts = 0;
  #told = null;
  #wanted = false;

  /** The last reported state. */
  state = 'ready';

  /** The agent that the next conversation begins with; empty if the server decides. */
  agent = '';

  /** The server's description: its tools, and questions to play. Null if it is unavailable. */
  async about() {
    try {
      const answer = await fetch('/playground/about', { headers: this.headers() });
      if (answer.status === 401) this.#tell('locked');
      else if (answer.ok) return await answer.json();
      else this.#tell('refused', await answer.text());
    } catch {
      this.#look();
    }
    return null;
  }

  /** The headers for requests besides the socket. */
  headers() {
    const token = sessionStorage.getItem(KEY);
    return token ? { Authorization: `Bearer ${token}` } : {};
  }

  /** Sets the token, which is forgotten when this tab closes. */
  unlock(token) {
    sessionStorage.setItem(KEY, token);
    this.#tell('ready');
  }

  /** Opens the conversation if it is not open. */
  open() {
    this.#wanted = true;
    if (this.#socket?.readyState === WebSocket.OPEN) return Promise.resolve();
    this.#opening ??= this.#connect().finally(() => (this.#opening = null));
    return this.#opening;
  }

  /** Sends an event of the protocol; false if no conversation is open. */
  send(event) {
    if (this.#socket?.readyState !== WebSocket.OPEN) return false;
    this.#socket.send(JSON.stringify(event));
    return true;
  }

  /** Sends PCM16 at 24 kHz as a binary message; false if no conversation is open. */
  audio(samples) {
    if (this.#socket?.readyState !== WebSocket.OPEN) return false;
    this.#socket.send(samples);
    return true;
  }

  /** Ends an open conversation, and says so. */
  end() {
    if (!this.#socket) return;
    this.close();
    this.#tell('ended');
  }

  /** Ends the conversation. */
  close() {
    this.#wanted = false;
    clearTimeout(this.#told);
    const socket = this.#socket;
    this.#socket = null;
    if (!socket) return;
    socket.onclose = null;
    socket.close();
  }

  #connect() {
    this.#tell('opening');
    const token = sessionStorage.getItem(KEY);
    const protocols = ['realtime', ...(token ? [`openai-insecure-api-key.${token}`] : [])];
    const address = new URL('/v1/realtime?model=undertone&vendor_events=1&demonstration=1', location.href);
    if (this.agent) address.searchParams.set('agent', this.agent);
    address.protocol = location.protocol === 'https:' ? 'wss:' : 'ws:';
    const socket = new WebSocket(address, protocols);
    this.#socket = socket;
    return new Promise((resolve, reject) => {
      let opened = false;
      socket.onmessage = ({ data }) => {
        const arrived = performance.now();
        const event = JSON.parse(data);
        if (event.type === 'session.created') {
          opened = true;
          this.#attempts = 0;
          this.#tell('open');
          resolve();
        }
        this.dispatchEvent(new CustomEvent('message', { detail: { event, arrived } }));
      };
      socket.onclose = ({ code, reason }) => {
        if (this.#socket === socket) this.#socket = null;
        reject(new Error('no conversation'));
        this.#closed(opened, code, reason);
      };
    });
  }

  #closed(opened, code, reason) {
    if (opened && (code === 1000 || code === 1008)) {
      this.#wanted = false;
      this.#tell('ended', reason);
    } else {
      this.#look(opened);
    }
  }

  /** Polls the server until it responds, then resumes the pending action. */
  async #look(wasOpen = true) {
    if (this.#told) return;
    const found = wasOpen ? null : await this.#knock();
    if (found === 'ready') {
      // The server responds, but did not open a conversation.
      this.#wanted = false;
      return this.#refusal();
    }
    this.#tell('lost');
    const pause = PAUSES[Math.min(this.#attempts, PAUSES.length - 1)];
    this.#attempts += 1;
    this.#told = setTimeout(async () => {
      this.#told = null;
      if ((await this.#knock()) !== 'ready') return this.#look();
      this.#attempts = 0;
      this.#tell('ready');
      if (this.#wanted) this.open().catch(() => {});
    }, pause);
  }

  async #knock() {
    try {
      const answer = await fetch('/readyz', { cache: 'no-store' });
      return answer.ok ? 'ready' : 'draining';
    } catch {
      return 'gone';
    }
  }

  async #refusal() {
    const answer = await fetch('/playground/about', { headers: this.headers() }).catch(() => null);
    if (answer?.status === 401) return this.#tell('locked');
    this.#tell('refused', 'The server answers but opens no conversation: all places may be taken, or it does not know this address (server.allowed_origins).');
  }

  #tell(state, reason = '') {
    if (state === 'lost' && this.state === 'lost') return;
    this.state = state;
    this.dispatchEvent(new CustomEvent('state', { detail: { state, reason } }));
  }
}
