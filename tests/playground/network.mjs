// The network between browser and server, for visits that cut it.

import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { address, PATIENCE } from './common.mjs';

/** The network between browser and server, which the test cuts. */
export class Network {
  #lines = new Set();
  /** The ways from the server to the browser. */
  #answers = new Map();
  #server = createServer((line) => this.#carry(line));
  up = true;

  async open() {
    this.#server.listen(0, '127.0.0.1');
    await once(this.#server, 'listening');
    return `http://127.0.0.1:${this.#server.address().port}/`;
  }

  #carry(line) {
    if (!this.up) return line.destroy();
    const { hostname, port } = new URL(address);
    const far = connect(Number(port), hostname);
    this.#answers.set(far, line);
    far.on('close', () => this.#answers.delete(far));
    for (const [one, other] of [[line, far], [far, line]]) {
      this.#lines.add(one);
      one.pipe(other);
      one.on('error', () => {});
      one.on('close', () => (this.#lines.delete(one), other.destroy()));
    }
  }

  /** Lets nothing of the server through to the browser any more. Resolves once it has sent these words. */
  swallow(words) {
    return new Promise((resolve, reject) => {
      setTimeout(() => reject(new Error(`the server does not send ${words}`)), PATIENCE).unref();
      for (const [far, line] of this.#answers) {
        let sent = '';
        far.unpipe(line);
        far.on('data', (bytes) => {
          sent += bytes.toString('latin1');
          if (sent.includes(words)) resolve();
        });
        far.resume();
      }
    });
  }

  /** Lets nothing of the browser through to the server any more. */
  mute() {
    for (const [far, line] of this.#answers) {
      line.unpipe(far);
      line.resume();
    }
  }

  /** Resets all connections; there are no new ones until `up` is true again. */
  cut() {
    this.up = false;
    for (const line of this.#lines) line.resetAndDestroy();
  }

  close() {
    this.cut();
    this.#server.close();
  }
}
