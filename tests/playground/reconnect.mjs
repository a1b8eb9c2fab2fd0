// The page loses its connection in the middle of an answer and comes back, in a real browser with the real server.
//
// Usage: node reconnect.mjs SETTINGS.json   Prints one JSON object of what was measured.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { address, artefacts, killServer, PATIENCE, run, settings, shots, startServer, step } from './common.mjs';
import { open, writeHeard } from './browser.mjs';
import { Network } from './network.mjs';

const QUESTION = 'What can you do?';

/** The agent's words since the last question, without those that were not heard. */
const told = (page) =>
  page.evaluate(() => {
    const messages = [...document.querySelectorAll('#log .message')];
    const after = messages.slice(messages.findLastIndex((message) => message.classList.contains('user')) + 1);
    const heard = after.map((message) => {
      const words = message.querySelector('p').cloneNode(true);
      for (const unheard of words.querySelectorAll('s, .visually-hidden')) unheard.remove();
      return words.textContent;
    });
    return heard.join(' ').replace(/\s+/g, ' ').trim();
  });

/** Waits until the agent has said everything. */
const calm = (page) =>
  page.waitForFunction(() => document.getElementById('status').dataset.state === 'open' && !document.querySelector('.sounding, .coming'), null, { timeout: PATIENCE });

/** Waits until the agent has said this, and no more. */
async function tells(page, whole) {
  const until = Date.now() + PATIENCE;
  while ((await told(page)) !== whole && Date.now() < until) await page.waitForTimeout(100);
  await calm(page);
  const found = await told(page);
  if (found !== whole) console.error(await page.locator('#log').innerHTML());
  assert.equal(found, whole);
}

async function ask(page) {
  const before = await page.locator('.message.user').count();
  await page.fill('#words', QUESTION);
  await page.keyboard.press('Enter');
  await page.waitForFunction((count) => document.querySelectorAll('.message.user').length > count, before, { timeout: PATIENCE });
}

async function comesBack(browser) {
  const network = new Network();
  const { context, page } = await open(browser, await network.open());
  await page.click('#settings summary');
  await page.selectOption('#way', 'websocket');

  step('an answer that is heard without interruption');
  await ask(page);
  await page.waitForSelector('.message.agent .said', { timeout: PATIENCE });
  await calm(page);
  const whole = await told(page);
  assert.ok(whole.split(' ').length > 12, `long enough to be interrupted: ${whole}`);

  step('the connection is cut in the middle of the answer');
  await writeHeard(page, join(artefacts, 'before.wav'));
  await ask(page);
  await page.waitForFunction(() => document.querySelectorAll('.message.agent:last-of-type .sounding').length === 1, null, { timeout: PATIENCE });
  network.cut();
  await page.waitForFunction(() => document.getElementById('status').textContent === 'Reconnecting…', null, { timeout: PATIENCE });
  assert.match(await page.locator('#alert').innerText(), /reconnects by itself, and the conversation goes on/);
  for (const control of ['#send', '#questions button >> nth=0', '#early']) assert.ok(await page.locator(control).isDisabled(), `${control} is disabled`);

  step('the page comes back by itself, and the answer goes on');
  network.up = true;
  await page.waitForSelector('#alert', { state: 'hidden', timeout: PATIENCE });
  await tells(page, whole);
  assert.ok(!(await page.locator('#log').innerText()).includes('new conversation'));
  await writeHeard(page, join(artefacts, 'reconnect.wav'));

  step('the conversation is the same: it goes on');
  await ask(page);
  await page.waitForSelector('.message.agent:last-of-type .sounding', { timeout: PATIENCE });
  await tells(page, whole);

  step('a message that the server had when the connection was lost is not in the field when the page is back');
  const had = network.swallow('conversation.item.done');
  await page.fill('#words', QUESTION);
  await page.keyboard.press('Enter');
  await had;
  network.cut();
  await page.waitForFunction(() => document.getElementById('status').textContent === 'Reconnecting…', null, { timeout: PATIENCE });
  assert.equal(await page.inputValue('#words'), QUESTION, 'nobody knows yet whether the server has it');
  await page.fill('#words', `${QUESTION} And then`);
  const asked = await page.locator('.message.user').count();
  network.up = true;
  await page.waitForSelector('#alert', { state: 'hidden', timeout: PATIENCE });
  assert.equal(await page.inputValue('#words'), 'And then', 'what was typed meanwhile stays');
  assert.equal(await page.locator('.message.user').count(), asked + 1);
  await page.waitForSelector('.message.agent:last-of-type .sounding', { timeout: PATIENCE });
  // It is answered. The whole answer was heard before.
  await page.keyboard.press('Escape');
  await page.waitForFunction(() => document.getElementById('status').dataset.state === 'open' && !document.querySelector('.sounding'), null, { timeout: PATIENCE });

  step('a message that never reached the server stays in the field');
  await page.fill('#words', QUESTION);
  network.mute();
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => document.getElementById('words').value === '', null, { timeout: PATIENCE });
  network.cut();
  await page.waitForFunction(() => document.getElementById('status').textContent === 'Reconnecting…', null, { timeout: PATIENCE });
  network.up = true;
  await page.waitForSelector('#alert', { state: 'hidden', timeout: PATIENCE });
  assert.equal(await page.inputValue('#words'), QUESTION);

  step('a server that does not know the conversation any more begins a new one');
  network.cut();
  await page.waitForFunction(() => document.getElementById('status').textContent === 'Reconnecting…', null, { timeout: PATIENCE });
  await killServer();
  await shots(page, 'reconnecting');
  await startServer();
  network.up = true;
  await page.waitForFunction(() => document.getElementById('log').innerText.includes('It begins a new conversation'), null, { timeout: PATIENCE });
  await ask(page);
  await page.waitForSelector('.message.agent:last-of-type .sounding', { timeout: PATIENCE });
  await calm(page);
  await context.close();
  network.close();
}

/** Keeps the page's calls in `window.peers`. */
function keepPeers() {
  window.peers = [];
  window.RTCPeerConnection = class extends RTCPeerConnection {
    constructor(...options) {
      super(...options);
      window.peers.push(this);
    }
  };
}

/** The browser finds that the call has failed; the server does not know it yet. */
const failCall = (page) =>
  page.evaluate(() => {
    const peer = window.peers.at(-1);
    Object.defineProperty(peer, 'connectionState', { value: 'failed' });
    peer.dispatchEvent(new Event('connectionstatechange'));
  });

async function comesBackFromACall(browser) {
  step('a call that is cut off goes on over the WebSocket');
  const { context, page, complaints } = await open(browser, address, {}, keepPeers);
  await ask(page);
  await page.waitForSelector('.message.agent .said', { timeout: PATIENCE });
  await calm(page);
  assert.equal(await page.locator('#way-told').innerText(), 'Connected over WebRTC.');
  const whole = await told(page);
  await ask(page);
  await page.waitForFunction(() => document.querySelectorAll('.message.agent:last-of-type .sounding').length === 1, null, { timeout: PATIENCE });
  await failCall(page);
  await page.waitForFunction(() => document.getElementById('way-told').textContent === 'Connected over WebSocket: the call was cut off.', null, { timeout: PATIENCE });
  await tells(page, whole);
  await writeHeard(page, join(artefacts, 'reconnect-call.wav'));
  assert.deepEqual(complaints, []);
  await context.close();
}

await run(settings.sounds.silence, comesBack, comesBackFromACall);
