// The network between browser and server, for visits that cut it.

import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { address } from './common.mjs';

/** The network between browser and server, which the test cuts. */
export class Network {
  #lines = new Set();
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
    for (const [one, other] of [[line, far], [far, line]]) {
      this.#lines.add(one);
      one.pipe(other);
      one.on('error', () => {});
      one.on('close', () => (this.#lines.delete(one), other.destroy()));
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
