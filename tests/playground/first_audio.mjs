// How long a visitor waits for the first sound of an answer, over WebRTC and over the WebSocket, in a real browser.
//
// Usage: node first_audio.mjs [ADDRESS] [ROUNDS]   with a server at ADDRESS (http://127.0.0.1:8787/) whose machine is idle
// Plays the page's second question so often over each, in turn, each time in a conversation of its own. Prints the medians from
// the end of the question to the first sound in the page, from the end of the turn to it, and how much later WebRTC is.

import { launch, open } from './browser.mjs';

const [address = 'http://127.0.0.1:8787/', rounds = '10'] = process.argv.slice(2);
const QUESTION = '#questions button >> nth=1';
const WAYS = { webrtc: 'Connected over WebRTC.', websocket: 'Connected over WebSocket.' };
const PATIENCE = 60_000;

/** Plays the question once. Returns the waits, ms. */
async function ask(page, way) {
  await page.selectOption('#way', way);
  const before = await page.locator('.message.agent').count();
  await page.click(QUESTION);
  await page.waitForFunction((count) => document.querySelectorAll('.message.agent').length > count, before, { timeout: PATIENCE });
  await page.waitForFunction(() => document.getElementById('status').dataset.state === 'open' && !document.querySelector('.sounding'), null, { timeout: PATIENCE });
  const told = await page.locator('#way-told').innerText();
  if (told !== WAYS[way]) throw new Error(`${way}: ${told}`);
  if (!(await page.locator('#copy').isVisible())) await page.click('#turn details summary');
  await page.click('#copy');
  await page.waitForFunction(() => document.getElementById('copied').textContent === 'Copied.');
  const { said, user, latency } = JSON.parse(await page.evaluate(() => navigator.clipboard.readText()));
  // The next conversation is another.
  await page.selectOption('#way', way === 'webrtc' ? 'websocket' : 'webrtc');
  const heard = said[0].heard[0].from;
  return { whole: heard - user.to, after: heard - latency.end_of_turn, way: heard - latency.first_audio };
}

function median(values) {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = Math.floor(sorted.length / 2);
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

const browser = await launch('/usr/bin/chromium', '/dev/null');
const { page } = await open(browser, address);
await page.click('#settings summary');
const waits = { webrtc: [], websocket: [] };
for (let round = 0; round <= Number(rounds); round += 1) {
  for (const way of Object.keys(waits)) {
    const wait = await ask(page, way);
    // The first round warms up.
    if (round > 0) waits[way].push(wait);
  }
}
await browser.close();
const FIGURES = { whole: 'from the end of the question to the first sound', after: 'from the end of the turn to the first sound', way: 'from the first frame sent to the first sound' };
for (const [name, words] of Object.entries(FIGURES)) {
  const [call, socket] = ['webrtc', 'websocket'].map((way) => median(waits[way].map((wait) => wait[name])));
  console.log(`${words}: WebRTC ${call.toFixed(0)} ms, WebSocket ${socket.toFixed(0)} ms, ${(call - socket).toFixed(0)} ms later (medians of ${rounds})`);
}
