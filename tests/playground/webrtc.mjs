// @openai/agents-realtime in a real browser, with its default transport, against the real server: only the URL is
// another. A question, one for a tool of the page's, an interruption by voice, one by `interrupt()`, and a typed question.
//
// Usage: node webrtc.mjs SETTINGS.json   Prints one JSON object of what happened.

import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { readFile } from 'node:fs/promises';
import { once } from 'node:events';
import { join } from 'node:path';
import { chromium } from 'playwright-core';
import { address, measured, PATIENCE, settings, startServer, step, stopServer } from './common.mjs';

const TYPES = { mjs: 'text/javascript', js: 'text/javascript', html: 'text/html', wav: 'audio/wav' };
const PAGE = '<!doctype html><title>A page of somebody else</title>';

/** Serves the page, the SDK and the speech: a page of another origin than the server's. */
async function servePage() {
  const server = createServer(async (request, response) => {
    const [, folder, name] = request.url.split('/');
    const from = { sdk: settings.sdk, speech: settings.speech }[folder];
    const body = from ? await readFile(join(from, name)).catch(() => null) : PAGE;
    response.writeHead(body ? 200 : 404, { 'content-type': TYPES[name?.split('.').pop()] ?? 'text/html' });
    response.end(body);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return { page: `http://127.0.0.1:${server.address().port}/`, close: () => server.close() };
}

/** Runs in the page before anything else: a microphone that plays what `window.say` is given. */
function microphone() {
  let context;
  let stream;
  navigator.mediaDevices.getUserMedia = async () => {
    context = new AudioContext();
    stream = context.createMediaStreamDestination();
    await context.resume();
    return stream.stream;
  };
  window.say = async (name) => {
    const bytes = await (await fetch(`/speech/${name}.wav`)).arrayBuffer();
    const source = context.createBufferSource();
    source.buffer = await context.decodeAudioData(bytes);
    source.connect(stream);
    source.start();
  };
}

/** Runs in the page: connects, as the SDK's documentation says. */
async function connect(server) {
  const { RealtimeAgent, RealtimeSession, tool } = await import('/sdk/openai-realtime-agents.mjs');
  window.events = [];
  window.complaints = [];
  window.calls = [];
  const weather = tool({
    name: 'get_weather',
    description: 'The weather in a city.',
    parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'], additionalProperties: true },
    strict: false,
    execute: async (given) => {
      window.calls.push(given);
      return JSON.stringify({ degrees: 21 });
    },
  });
  const agent = new RealtimeAgent({ name: 'Foreign', instructions: 'Be brief.', tools: [weather] });
  const session = new RealtimeSession(agent, { model: 'undertone' });
  session.on('error', (event) => window.complaints.push(JSON.stringify(event)));
  session.on('transport_event', (event) => window.events.push({ ...event, at: performance.now() }));
  const made = await fetch(`${server}v1/realtime/client_secrets`, { method: 'POST', body: '{}' });
  const { value } = await made.json();
  await session.connect({ apiKey: value, url: `${server}v1/realtime/calls` });
  window.session = session;
}

/** How much the page has heard. */
function energy() {
  const { peerConnection } = window.session.transport.connectionState;
  return peerConnection.getStats().then((stats) => {
    const inbound = [...stats.values()].find(({ type, kind }) => type === 'inbound-rtp' && kind === 'audio');
    return { energy: inbound?.totalAudioEnergy ?? 0, packets: inbound?.packetsReceived ?? 0, lost: inbound?.packetsLost ?? 0 };
  });
}

const stub = await servePage();
let browser;
try {
  await startServer();
  browser = await chromium.launch({
    executablePath: settings.chromium,
    headless: true,
    args: [
      '--no-sandbox',
      '--disable-gpu',
      '--no-first-run',
      '--disable-background-networking',
      '--autoplay-policy=no-user-gesture-required',
      '--allow-loopback-in-peer-connection',
      '--disable-features=WebRtcHideLocalIpsWithMdns,LocalNetworkAccessChecks',
    ],
  });
  const context = await browser.newContext({ permissions: ['microphone'] });
  await context.addInitScript(microphone);
  const page = await context.newPage();
  const complaints = [];
  page.on('console', (message) => ['error', 'warning'].includes(message.type()) && complaints.push(message.text()));
  page.on('pageerror', (error) => complaints.push(String(error)));
  await page.goto(stub.page);

  /** Waits for `count` events of a kind that fit, since `since`. */
  const wait = async (kind, since, count = 1, fields = {}) => {
    const found = await page
      .waitForFunction(
        ([kind, since, count, fields]) => {
          const fits = (event) => event.type === kind && Object.entries(fields).every(([name, value]) => event.response?.[name] === value);
          const found = window.events.slice(since).filter(fits);
          return found.length >= count && found;
        },
        [kind, since, count, fields],
        { timeout: PATIENCE, polling: 20 },
      )
      .catch(async (error) => {
        const seen = await page.evaluate((since) => window.events.slice(since).map(({ type }) => type), since);
        throw new Error(`no ${kind}: ${seen}; ${complaints}`, { cause: error });
      });
    return found.jsonValue();
  };
  const mark = () => page.evaluate(() => window.events.length);
  const said = async (since) => {
    const done = await page.evaluate((since) => window.events.slice(since).filter(({ type }) => type === 'response.output_audio_transcript.done'), since);
    return done.map(({ transcript }) => transcript).join(' ');
  };
  const pause = (ms) => page.waitForTimeout(ms);
  /** Speaks until it is understood, three times at most: a browser on a busy machine loses sound. */
  const ask = async (name, understood) => {
    for (let tries = 1; ; tries += 1) {
      const since = await mark();
      await page.evaluate((name) => window.say(name), name);
      const [{ response }] = await wait('response.done', since, 1, { status: 'completed' });
      if (understood(response) || tries === 3) return since;
      await wait('output_audio_buffer.stopped', since);
    }
  };
  const calls_a_tool = ({ output }) => output.some(({ type }) => type === 'function_call');
  const says = (words) => ({ output }) => output.some(({ content }) => content?.some(({ transcript }) => words.test(transcript)));

  step('it connects, and its settings are taken');
  await page.evaluate(connect, address);
  await wait('session.created', 0);
  await wait('session.updated', 0);

  step('a spoken question is answered, and heard');
  const before = await page.evaluate(energy);
  let since = await ask('sum', says(/84/));
  await wait('output_audio_buffer.stopped', since);
  assert.match(await said(since), /84/);
  const after = await page.evaluate(energy);
  assert.ok(after.energy - before.energy > 0.001, `nothing was heard: ${JSON.stringify([before, after])}`);

  step('the page runs its tool');
  since = await ask('weather', calls_a_tool);
  await wait('response.done', since, 2, { status: 'completed' });
  await wait('output_audio_buffer.stopped', since);
  assert.match(await said(since), /21/);
  const calls = await page.evaluate(() => window.calls);
  assert.equal(calls.length, 1);
  assert.match(calls[0].city, /London/);

  step('speech over the answer stops it');
  await pause(1500);
  since = await mark();
  await page.evaluate(() => window.say('abilities'));
  await wait('output_audio_buffer.started', since);
  await pause(1200);
  const interrupted = await mark();
  await page.evaluate(() => window.say('plus'));
  const [cleared] = await wait('output_audio_buffer.cleared', interrupted);
  const [cancelled] = await wait('response.done', interrupted, 1, { status: 'cancelled' });
  assert.equal(cancelled.response.status_details.reason, 'turn_detected');
  assert.equal(cleared.response_id, cancelled.response.id);
  await wait('conversation.item.truncated', interrupted);
  const [{ response }] = await wait('response.done', interrupted, 1, { status: 'completed' });
  await wait('output_audio_buffer.stopped', interrupted);
  const sum = says(/\b4\b/);
  if (!sum(response)) await wait('output_audio_buffer.stopped', await ask('plus', sum));
  assert.match(await said(interrupted), /\b4\b/);

  step('interrupt() stops it');
  await pause(500);
  since = await mark();
  await page.evaluate(() => window.session.sendMessage('What can you do?'));
  await wait('output_audio_buffer.started', since);
  await pause(800);
  const stopped = await mark();
  await page.evaluate(() => window.session.interrupt());
  await wait('output_audio_buffer.cleared', stopped);
  const [ended] = await wait('response.done', since);
  assert.equal(ended.response.status, 'cancelled');
  assert.equal(ended.response.status_details.reason, 'client_cancelled');
  // The answer would last several seconds more; a browser on a busy machine plays out late.
  let [quiet, still] = [await page.evaluate(energy)];
  for (let tries = 0; tries < 3; tries += 1) {
    await pause(1000);
    still = await page.evaluate(energy);
    if (still.energy - quiet.energy < 1e-4) break;
    if (tries < 2) quiet = still;
  }
  assert.ok(still.energy - quiet.energy < 1e-4, 'it speaks on');
  assert.ok(still.packets > quiet.packets + 30, 'silence is sent, too');

  step('a typed question is answered');
  since = await mark();
  await page.evaluate(() => window.session.sendMessage('What is 5 plus 6?'));
  await wait('output_audio_buffer.stopped', since);
  assert.match(await said(since), /11/);

  step('it leaves, and its place is free');
  await page.evaluate(() => window.session.close());
  let metrics = '';
  for (let tries = 0; tries < 100 && !metrics.includes('webrtc_calls_total{outcome="connected"} 1'); tries += 1) {
    await pause(100);
    metrics = await (await fetch(`${address}metrics`)).text();
  }
  assert.match(metrics, /webrtc_calls_total\{outcome="connected"\} 1/);
  const deltas = await page.evaluate(() => window.events.filter(({ type }) => type === 'response.output_audio.delta').length);
  assert.equal(deltas, 0);
  measured.packets = still.packets;
  measured.complaints = [...complaints, ...(await page.evaluate(() => window.complaints))];
  console.log(JSON.stringify(measured));
} finally {
  await browser?.close();
  stopServer();
  stub.close();
}
