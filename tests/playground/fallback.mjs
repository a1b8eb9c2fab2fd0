// The page without WebRTC, in a real browser with the real server, whose UDP port nobody can reach.
//
// Usage: node fallback.mjs SETTINGS.json   Prints one JSON object of what was measured.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { address, artefacts, killServer, measured, PATIENCE, run, settings, shots, startServer, step } from './common.mjs';
import { copied, open, writeHeard } from './browser.mjs';
import { Network } from './network.mjs';

/** A token that cannot be a subprotocol. */
const TOKEN = 'abcdefghijklmnop/==';

const way = (page) => page.locator('#way-told').innerText();

/** Waits until the page says so about its connection. */
const connected = (page, words) =>
  page.waitForFunction((words) => document.getElementById('way-told').textContent.includes(words), words, { timeout: PATIENCE }).then(() => way(page));

/** Types a question, and waits until all of the answer was heard. */
async function ask(page, text, answer) {
  await page.fill('#words', text);
  await page.keyboard.press('Enter');
  await page.waitForFunction((answer) => document.getElementById('log').innerText.includes(answer), answer, { timeout: PATIENCE });
  await page.waitForFunction(() => document.getElementById('status').dataset.state === 'open' && !document.querySelector('.sounding'), null, { timeout: PATIENCE });
}

async function unreachable(browser) {
  step('a call that cannot be made is told, and the conversation goes on over the WebSocket');
  const { context, page, complaints } = await open(browser, address);
  const offers = [];
  page.on('request', (request) => request.method() === 'POST' && request.url().includes('/v1/realtime/calls') && offers.push(request));
  const clicked = Date.now();
  await ask(page, 'What is the weather in Rome?', 'cloudy in Rome');
  measured.fallback_ms = Date.now() - clicked;
  assert.match(await way(page), /^Connected over WebSocket: the server’s UDP port did not answer within 4 s; /);
  // On a busy machine the voice may come more slowly than it plays: words with holes are no sample of it.
  const whole = async () => (await copied(page)).said.every(({ heard }) => heard.length === 1);
  for (const place of ['Berlin', 'Madrid', 'Vienna']) {
    if (await whole()) break;
    await page.evaluate(() => window.heard.splice(0));
    await ask(page, `What is the weather in ${place}?`, `cloudy in ${place}`);
  }
  await writeHeard(page, join(artefacts, 'fallback.wav'));
  await shots(page, 'fallback');

  step('who chooses the WebSocket does not wait for a call');
  assert.equal(offers.length, 1);
  await page.click('#settings summary');
  await page.selectOption('#way', 'websocket');
  await page.waitForFunction(() => document.getElementById('log').innerText.includes('The conversation is over.'), null, { timeout: PATIENCE });
  await ask(page, 'What is two plus four?', '6');
  assert.equal(await way(page), 'Connected over WebSocket.');
  assert.equal(offers.length, 1);

  step('who chooses WebRTC again gets another try');
  await page.selectOption('#way', 'webrtc');
  await ask(page, 'What is two plus five?', '7');
  assert.match(await way(page), /^Connected over WebSocket: the server’s UDP port/);
  assert.equal(offers.length, 2);
  assert.deepEqual(complaints, []);
  await context.close();
}

async function unpaired(browser) {
  step('a browser that pairs none of its addresses with the server’s, as Firefox at 127.0.0.1, does not wait for the port');
  const { context, page, complaints } = await open(browser, address);
  await page.evaluate(() => {
    RTCPeerConnection.prototype.getStats = async () => new Map();
  });
  await page.click('#questions button >> nth=0');
  assert.match(await connected(page, 'WebSocket'), /^Connected over WebSocket: this browser finds no way to the server’s address for calls;/);
  await page.waitForSelector('.message.user', { timeout: PATIENCE });
  assert.deepEqual(complaints, []);
  await context.close();
}

async function withoutWebrtc(browser) {
  step('a browser without WebRTC goes on over the WebSocket, too');
  const { context, page, complaints } = await open(browser, address);
  await page.evaluate(() => delete window.RTCPeerConnection);
  await page.click('#questions button >> nth=0');
  assert.equal(await connected(page, 'WebSocket'), 'Connected over WebSocket: this browser has no WebRTC.');
  await page.waitForSelector('.message.user', { timeout: PATIENCE });
  await page.waitForSelector('.message.agent', { timeout: PATIENCE });
  assert.deepEqual(complaints, []);
  await context.close();
}

async function refused(browser) {
  step('who is refused is told why, the microphone is switched off, and another click tries again');
  const { context, page } = await open(browser, address);
  const error = { code: 'no_place', message: 'All sessions are taken: try again later.' };
  let asked = 0;
  await page.route('**/v1/realtime/calls?*', (route) => {
    asked += 1;
    return route.fulfill({ status: 503, json: { error } });
  });
  for (const times of [1, 2]) {
    await page.click('#microphone');
    await page.waitForFunction((words) => document.getElementById('alert').textContent.includes(words), error.message, { timeout: PATIENCE });
    await page.waitForFunction(() => document.getElementById('microphone-words').textContent === 'Talk', null, { timeout: PATIENCE });
    assert.equal(asked, times);
  }
  await context.close();
}

async function voiceless(browser) {
  step('who plays a question that cannot be fetched is told why');
  const { context, page } = await open(browser, address);
  // Its question does not wait until a call has failed.
  await page.evaluate(() => delete window.RTCPeerConnection);
  const error = { code: 'unavailable', message: 'The voice is busy or has failed.' };
  await page.route('**/playground/questions/*', (route) => route.fulfill({ status: 503, json: { error } }));
  await page.click('#questions button >> nth=0');
  await page.waitForFunction((words) => document.getElementById('alert').textContent === `The question could not be played: ${words}`, error.message, { timeout: PATIENCE });
  assert.ok(await page.locator('#alert').isVisible());
  await context.close();
}

async function withAToken(browser) {
  step('a token that the server does not accept is told of, and another can be typed at once');
  await killServer();
  await startServer({ UNDERTONE_AUTH_TOKEN: TOKEN });
  const network = new Network();
  const { context, page, complaints } = await open(browser, await network.open(), {}, () => {}, '#token');
  await page.waitForSelector('#token:not([hidden])', { timeout: PATIENCE });
  assert.ok(!(await page.locator('#alert').isVisible()), 'nobody has given a token');
  const toldWrong = () => page.waitForFunction(() => document.getElementById('alert').textContent === 'The server does not accept this token.' && document.activeElement.id === 'token-value', null, { timeout: PATIENCE });
  // The first has letters that no header carries.
  await page.fill('#token-value', 'ключ-ключ-ключ-ключ');
  await page.keyboard.press('Enter');
  await toldWrong();
  await page.keyboard.type('another-token-of-some-length');
  const refused = page.waitForResponse((answer) => answer.url().endsWith('/playground/about') && answer.status() === 401);
  await page.keyboard.press('Enter');
  await refused;
  await toldWrong();
  await page.keyboard.type(TOKEN);
  await page.keyboard.press('Enter');
  await page.waitForSelector('#questions button', { state: 'attached', timeout: PATIENCE });
  assert.ok(!(await page.locator('#alert').isVisible()));

  step('a token that cannot be a subprotocol opens a conversation over the WebSocket');
  await page.click('#settings summary');
  await page.selectOption('#way', 'websocket');
  await ask(page, 'What is two plus three?', '5');
  assert.equal(await way(page), 'Connected over WebSocket.');
  assert.deepEqual(complaints.filter((complaint) => !/\b401\b/.test(complaint)), []);

  step('with it the page comes back after a loss, too');
  network.cut();
  await page.waitForFunction(() => document.getElementById('status').textContent === 'Reconnecting…', null, { timeout: PATIENCE });
  network.up = true;
  await page.waitForSelector('#alert', { state: 'hidden', timeout: PATIENCE });
  await ask(page, 'What is two plus four?', '6');
  assert.ok(!(await page.locator('#log').innerText()).includes('new conversation'));
  await context.close();
  network.close();
}

await run(settings.sounds.silence, unreachable, unpaired, withoutWebrtc, refused, voiceless, withAToken);
