// Tests the page's way to the server and back, with doubles of browser and server. Run by `node --test`.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import test from 'node:test';
import { Playing } from '../../web/comparison.js';
import { Session, way } from '../../web/session.js';

/** The answers of the server, by path. */
let answers = {};
globalThis.fetch = async (path, { signal } = {}) => {
  const { pathname } = new URL(path, location);
  const answer = answers[pathname]?.(signal);
  if (answer) return answer;
  throw new TypeError('Failed to fetch');
};

/** As the server words its errors. */
const fault = (status, code, message) => () => Response.json({ error: { message, code } }, { status });

/** The addresses that a browser pairs, of which it tells once `asked`; it fails in the step `failing`, if that is set. */
const webrtc = { failing: '', pairs: [], asked: () => {}, peer: null };

globalThis.RTCPeerConnection = class extends EventTarget {
  iceGatheringState = 'gathering';
  iceConnectionState = 'new';
  constructor() {
    super();
    webrtc.peer = this;
    this.#step('constructor');
  }
  addTransceiver() {
    return { sender: { replaceTrack: async () => {} }, receiver: {} };
  }
  createDataChannel() {
    return (this.channel = { readyState: 'connecting' });
  }
  async setLocalDescription() {
    this.localDescription = { sdp: 'v=0' };
  }
  async setRemoteDescription() {
    this.#step('setRemoteDescription');
  }
  async getStats() {
    webrtc.asked();
    return new Map(webrtc.pairs.map((pair) => [pair, { type: 'candidate-pair' }]));
  }
  /** Its addresses or its way to the server are in this state now. */
  become(state, value) {
    this[state] = value;
    this.dispatchEvent(new Event(`${state.toLowerCase()}change`));
  }
  close() {}
  #step(name) {
    if (webrtc.failing === name) throw new DOMException(`${name} is forbidden`, 'NotAllowedError');
  }
};
globalThis.MediaStream = class {};

const AT_THE_ROOT = new URL('http://127.0.0.1:8787/');
globalThis.location = AT_THE_ROOT;

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
  Object.assign(webrtc, { failing: '', pairs: [], asked: () => {}, peer: null });
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

/** All that follows without a wait has happened by the next timer. */
const settled = () => new Promise((resolve) => setTimeout(resolve, 0));

/** The conversation begins over a socket. */
async function overASocket(opening) {
  await until(() => sockets.length === 1);
  sockets[0].tell({ type: 'session.created', event_id: 'event_1' });
  await opening;
}

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
  await overASocket(session.open());
  assert.equal(way.trouble, 'the server says: The offer has no audio.');
  session.close();
});

/** The server answers a call. Returns what it is asked to end. */
function answering() {
  const ended = [];
  answers['/v1/realtime/calls'] = () => new Response('v=0', { status: 201, headers: { Location: '/v1/realtime/calls/call_1' } });
  answers['/v1/realtime/calls/call_1'] = () => (ended.push('call_1'), new Response(''));
  return ended;
}

/** A session whose call the server answers and waits for. */
async function calling() {
  const { session } = begin();
  const ended = answering();
  const opening = session.open();
  await until(() => webrtc.peer?.channel);
  return { session, ended, opening };
}

test('a browser that pairs no address with one of the server’s, as Firefox at 127.0.0.1, does not wait for its port', async () => {
  const { session, ended, opening } = await calling();
  webrtc.peer.become('iceGatheringState', 'complete');
  await overASocket(opening);
  assert.match(way.trouble, /^this browser finds no way to the server’s address for calls;/);
  assert.deepEqual(ended, ['call_1'], 'its place is given back');
  session.close();
});

test('a call that comes up after its addresses were paired is not given up', async () => {
  const { session, ended, opening } = await calling();
  webrtc.pairs = ['of a slow network'];
  const asked = new Promise((resolve) => (webrtc.asked = resolve));
  webrtc.peer.become('iceGatheringState', 'complete');
  await asked;
  await settled();
  const { channel } = webrtc.peer;
  channel.readyState = 'open';
  channel.onopen();
  channel.onmessage({ data: JSON.stringify({ type: 'session.created', event_id: 'event_1' }) });
  await opening;
  assert.equal(session.onTrack, true);
  assert.equal(way.trouble, null);
  session.close();
  await settled();
  assert.deepEqual(ended, [], 'the server hears it from the peer');
});

// The server had heard it from the peer when the request came, and the console showed its 404.
test('who ends a conversation while its call comes up ends the call at once, and once', async () => {
  const { session, ended, opening } = await calling();
  await new Promise((resolve) => session.addEventListener('track', resolve, { once: true }));
  session.close();
  await assert.rejects(opening);
  assert.deepEqual(ended, ['call_1']);
  webrtc.peer.become('iceConnectionState', 'failed');
  await settled();
  assert.deepEqual(ended, ['call_1']);
});

test('a call whose browser has tried all addresses in vain is given up at once', async () => {
  const { session, ended, opening } = await calling();
  webrtc.peer.become('iceConnectionState', 'failed');
  await overASocket(opening);
  assert.equal(way.trouble, 'the server’s UDP port did not answer; a firewall may be in between.');
  assert.deepEqual(ended, ['call_1']);
  session.close();
});

for (const [failing, places] of [
  ['constructor', []],
  ['setRemoteDescription', ['call_1']],
]) {
  test(`a browser whose WebRTC fails in ${failing} goes on over a socket, and keeps no place`, async () => {
    const { session } = begin();
    const ended = answering();
    webrtc.failing = failing;
    await overASocket(session.open());
    assert.equal(way.trouble, `this browser refuses the call (${failing} is forbidden).`);
    assert.deepEqual(ended, places);
    session.close();
  });
}

test('an offer that gets lost in the network is no reason to give WebRTC up', async () => {
  const { session, told } = begin();
  delete answers['/readyz'];
  await assert.rejects(session.open());
  await until(() => told.length === 2);
  assert.equal(told[1][0], 'lost');
  assert.equal(way.trouble, null);
  assert.equal(sockets.length, 0);
  session.close();
});

test('behind a proxy that serves it under a path, the page asks for everything below that path', async (context) => {
  const page = readFileSync(new URL('../../web/index.html', import.meta.url), 'utf8');
  assert.doesNotMatch(page, /(?:href|src)="\//);
  globalThis.location = new URL('http://127.0.0.1/voice/');
  context.after(() => (globalThis.location = AT_THE_ROOT));
  const { session } = begin();
  const ended = answering();
  for (const [path, answer] of Object.entries(answers)) {
    delete answers[path];
    answers[`/voice${path}`] = answer;
  }
  assert.deepEqual(await session.about(), { agents: [] });
  webrtc.failing = 'setRemoteDescription';
  await overASocket(session.open());
  assert.deepEqual(ended, ['call_1']);
  assert.equal(sockets[0].address.pathname, '/voice/v1/realtime');
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

/** It was played into the greeting, which begins behind the answer to the update. */
test('the comparison plays its question behind the greeting', async () => {
  begin();
  way.socket = true;
  let plays = false;
  answers['/playground/questions/0'] = () => {
    plays = true;
    return fault(404, 'not_found', 'There is no such question.')();
  };
  const speaker = Object.assign(new EventTarget(), { playing: false, start: async () => {}, leave() {} });
  const playing = new Playing(true, { preRoll: 0, language: '' }, speaker, {}, () => {});
  const played = playing.play(0).catch(({ message }) => message);
  await until(() => sockets.length === 1);
  const sent = [];
  sockets[0].send = (text) => sent.push(JSON.parse(text).type);
  const tell = (type) => {
    sockets[0].tell({ type, event_id: `event_${type}` });
    // All that it leads to has happened by the next timer.
    return new Promise((resolve) => setTimeout(resolve, 0));
  };
  await tell('session.created');
  assert.deepEqual(sent, ['session.update', 'input_audio_buffer.clear']);
  for (const type of ['session.updated', 'response.created', 'input_audio_buffer.cleared']) {
    await tell(type);
    assert.ok(!plays, type);
  }
  await tell('response.done');
  assert.ok(plays);
  assert.match(await played, /There is no such question/);
});
