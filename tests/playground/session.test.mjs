// Tests the page's way to the server and back, with doubles of browser and server. Run by `node --test`.

import assert from 'node:assert/strict';
import test from 'node:test';
import { Session, way } from '../../web/session.js';

/** The answers of the server, by path. */
let answers = {};
globalThis.fetch = async (path, { signal } = {}) => {
  const [place] = path.split('?');
  const answer = answers[place]?.(signal);
  if (answer) return answer;
  throw new TypeError('Failed to fetch');
};

/** As the server words its errors. */
const fault = (status, code, message) => () => Response.json({ error: { message, code } }, { status });

globalThis.RTCPeerConnection = class {
  addTransceiver() {
    return { sender: { replaceTrack: async () => {} }, receiver: {} };
  }
  createDataChannel() {
    return {};
  }
  async setLocalDescription() {
    this.localDescription = { sdp: 'v=0' };
  }
  close() {}
};

globalThis.location = new URL('http://127.0.0.1:8787/');

/** The sockets that the page has opened. */
const sockets = [];
globalThis.WebSocket = class {
  static OPEN = 1;
  readyState = 0;
  constructor(address) {
    this.address = address;
    sockets.push(this);
  }
  tell(event) {
    this.readyState = 1;
    this.onmessage({ data: JSON.stringify(event) });
  }
  cut() {
    this.readyState = 3;
    this.onclose({ code: 1006, reason: '' });
  }
  send() {}
  close() {
    this.readyState = 3;
  }
};

/** A new session, and what it tells of its state. */
function begin() {
  [answers, way.socket, way.trouble] = [{ '/readyz': () => new Response('ready'), '/playground/about': () => Response.json({ agents: [] }) }, false, null];
  sockets.splice(0);
  const [session, told] = [new Session(), []];
  session.addEventListener('state', ({ detail: { state, reason } }) => told.push([state, reason]));
  return { session, told };
}

/** A session with an open conversation that can be resumed. */
async function talking() {
  const { session, told } = begin();
  way.socket = true;
  const opening = session.open();
  await until(() => sockets.length === 1);
  sockets[0].tell({ type: 'undertone.session.resumable', event_id: 'event_1', resume: 'a secret', within_ms: 30_000 });
  sockets[0].tell({ type: 'session.created', event_id: 'event_2' });
  await opening;
  return { session, told };
}

const until = async (condition) => {
  const given = performance.now() + 10_000;
  while (!condition()) {
    assert.ok(performance.now() < given, `in vain: ${condition}`);
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
};

for (const [status, code, message] of [
  [503, 'no_place', 'All sessions are taken: try again later.'],
  [400, 'agent_not_found', "There is no agent 'billing'."],
]) {
  test(`a conversation that the server refuses with ${status} is refused in the server's words and not tried over a socket`, async () => {
    const { session, told } = begin();
    answers['/v1/realtime/calls'] = fault(status, code, message);
    await assert.rejects(session.open());
    await until(() => told.length === 2);
    assert.deepEqual(told, [['opening', ''], ['refused', `The server answers but opens no conversation: ${message}`]]);
    assert.equal(sockets.length, 0);
    assert.equal(way.trouble, null, 'WebRTC is not at fault');
  });
}

test('a call that a proxy answers while the server restarts is no reason to give WebRTC up', async () => {
  const { session, told } = begin();
  answers['/v1/realtime/calls'] = () => new Response('<h1>Bad Gateway</h1>', { status: 502 });
  answers['/readyz'] = () => new Response('', { status: 502 });
  await assert.rejects(session.open());
  await until(() => told.length === 2);
  assert.equal(told[1][0], 'lost');
  assert.equal(way.trouble, null);
  session.close();
});

test('a page whose question whether the server is ready gets lost in the network asks again', async (context) => {
  const { timeout } = AbortSignal;
  context.mock.method(AbortSignal, 'timeout', () => timeout.call(AbortSignal, 1));
  const { session, told } = begin();
  answers['/v1/realtime/calls'] = () => new Response('', { status: 502 });
  answers['/readyz'] = (signal) => {
    answers['/readyz'] = () => new Response('ready');
    return new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)));
  };
  await assert.rejects(session.open());
  await until(() => told.some(([state]) => state === 'ready'));
  assert.deepEqual(told.slice(0, 3).map(([state]) => state), ['opening', 'lost', 'ready']);
  session.close();
});

test('an offer that the server cannot use goes on over a socket', async () => {
  const { session } = begin();
  answers['/v1/realtime/calls'] = fault(400, 'invalid_offer', 'The offer has no audio.');
  const opening = session.open();
  await until(() => sockets.length === 1);
  sockets[0].tell({ type: 'session.created', event_id: 'event_1' });
  await opening;
  assert.equal(way.trouble, 'the server says: The offer has no audio.');
  session.close();
});

test('a page that may not ask what the server can do is told why in words', async () => {
  const { session, told } = begin();
  answers['/playground/about'] = fault(403, 'forbidden', 'clients behind a proxy need a token');
  assert.equal(await session.about(), null);
  assert.deepEqual(told, [['refused', 'The server refuses this page: clients behind a proxy need a token']]);
  answers['/playground/about'] = () => new Response('<h1>Forbidden</h1>', { status: 403 });
  await session.about();
  assert.deepEqual(told[1], ['refused', 'The server refuses this page: status 403.']);
});

test('an agent that is gone after a restart is not wished for any more', async () => {
  const { session } = begin();
  answers['/playground/about'] = () => Response.json({ agents: ['stock'] });
  session.wishes.agent = 'stock';
  await session.about();
  assert.equal(session.wishes.agent, 'stock');
  session.wishes.agent = 'billing';
  await session.about();
  assert.equal(session.wishes.agent, '');
});

test('a page whose audio is not sent any more comes back over another socket', async () => {
  const { session, told } = await talking();
  sockets[0].bufferedAmount = 48_000;
  session.audio(new ArrayBuffer(960));
  assert.equal(told.at(-1)[0], 'open', 'a second late');
  sockets[0].bufferedAmount = 10 * 48_000;
  session.audio(new ArrayBuffer(960));
  await until(() => sockets.length === 2);
  assert.ok(sockets[1].address.search.includes('resume=a+secret'));
  sockets[1].tell({ type: 'undertone.session.resumed', event_id: 'event_3', resume: 'another secret', within_ms: 30_000 });
  await until(() => told.at(-1)[0] === 'open' && sockets[0].readyState === 3);
  assert.deepEqual(told.map(([state]) => state), ['opening', 'open', 'away', 'open']);
  session.close();
});

test('who ends a conversation that the page wants to come back to may begin another at once', async () => {
  const { session, told } = await talking();
  sockets[0].cut();
  await until(() => told.at(-1)[0] === 'away');
  session.end();
  assert.equal(told.at(-1)[0], 'ended');
  const another = session.open();
  await until(() => sockets.length === 2);
  assert.ok(!sockets[1].address.search.includes('resume='));
  sockets[1].tell({ type: 'undertone.session.resumable', event_id: 'event_1', resume: 'another secret', within_ms: 30_000 });
  sockets[1].tell({ type: 'session.created', event_id: 'event_2' });
  await another;
  assert.ok(session.send({ type: 'response.create' }), 'it is open');
  // Longer than the first pause before a return.
  await new Promise((resolve) => setTimeout(resolve, 400));
  assert.equal(sockets.length, 2, 'nobody comes back to either');
  assert.equal(told.at(-1)[0], 'open');
  session.close();
});

test('who ends a conversation while the page asks why its line was closed hears of no other end', async () => {
  const { session, told } = await talking();
  let ready = null;
  answers['/readyz'] = () => new Promise((resolve) => (ready = () => resolve(new Response('ready'))));
  sockets[0].readyState = 3;
  sockets[0].onclose({ code: 1005, reason: '' });
  await until(() => ready);
  session.end();
  const another = session.open();
  await until(() => sockets.length === 2);
  ready();
  // All that the answer leads to has happened by the next timer.
  await new Promise((resolve) => setTimeout(resolve, 0));
  sockets[1].tell({ type: 'session.created', event_id: 'event_1' });
  await another;
  assert.deepEqual(told.map(([state]) => state), ['opening', 'open', 'ended', 'opening', 'open']);
  session.close();
});
