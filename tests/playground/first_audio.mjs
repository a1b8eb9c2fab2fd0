// How long a visitor waits for the first sound of an answer, over WebRTC and over the WebSocket, in a real browser.
//
// Usage: node first_audio.mjs [ADDRESS] [ROUNDS] [NUMBER]   with a server at ADDRESS (http://127.0.0.1:8787/) whose machine is idle
// Plays the page's question of this number, by default the first that does not belong to the demonstration and so waits for no
// slow tool, so often over each, in turn, each time in a conversation of its own. Prints the medians of the whole wait, from the last sample of the question that the page plays to the
// first sound of the answer, and of its parts.

import { launch, open } from './browser.mjs';

const [address = 'http://127.0.0.1:8787/', rounds = '10', chosen] = process.argv.slice(2);
const WAYS = { webrtc: 'Connected over WebRTC.', websocket: 'Connected over WebSocket.' };
const PATIENCE = 60_000;

/** The parts of a wait, in order: each is from the moment before it to this one. */
const PARTS = {
  spoken: 'the page has played the question',
  arrived: 'its last speech is at the server',
  transcript: 'the transcript is final',
  end_of_turn: 'the turn is over',
  tool_result: 'the tool has answered',
  first_audio: 'the first audio is sent',
  heard: 'it is heard in the page',
};

/**
 * Runs in the page before its own code: notes when the question ends, and by how much the page's clock is ahead of the
 * session's, which is the least delay of an event.
 */
function watch() {
  window.ahead = Infinity;
  const { parse } = JSON;
  JSON.parse = (...values) => {
    const event = parse(...values);
    if (event?.undertone_at !== undefined) window.ahead = Math.min(window.ahead, performance.now() - event.undertone_at / 1000);
    return event;
  };
  const { start } = AudioBufferSourceNode.prototype;
  AudioBufferSourceNode.prototype.start = function (...values) {
    const samples = this.buffer.getChannelData(0);
    const last = samples.findLastIndex((sample) => Math.abs(sample) > 0.01);
    window.spoken = performance.now() + (1000 * last) / this.buffer.sampleRate;
    window.ahead = Infinity;
    return start.apply(this, values);
  };
}

/** Plays the question once. Returns the moments, ms of the session's clock. */
async function ask(page, question, way) {
  await page.selectOption('#way', way);
  const before = await page.locator('.message.agent').count();
  await page.click(question);
  await page.waitForFunction((count) => document.querySelectorAll('.message.agent').length > count, before, { timeout: PATIENCE });
  await page.waitForFunction(() => document.getElementById('status').dataset.state === 'open' && !document.querySelector('.sounding'), null, { timeout: PATIENCE });
  const told = await page.locator('#way-told').innerText();
  if (told !== WAYS[way]) throw new Error(`${way}: ${told}`);
  if (!(await page.locator('#copy').isVisible())) await page.click('#turn details summary');
  await page.click('#copy');
  await page.waitForFunction(() => document.getElementById('copied').textContent === 'Copied.');
  const { said, latency } = JSON.parse(await page.evaluate(() => navigator.clipboard.readText()));
  const spoken = await page.evaluate(() => window.spoken - window.ahead);
  // The next conversation is another.
  await page.selectOption('#way', way === 'webrtc' ? 'websocket' : 'webrtc');
  const { speech_end: arrived, transcript, end_of_turn, tool_result = end_of_turn, first_audio } = latency;
  return { spoken, arrived, transcript, end_of_turn, tool_result, first_audio, heard: said[0].heard[0].from };
}

function median(values) {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = Math.floor(sorted.length / 2);
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

const browser = await launch('/usr/bin/chromium', '/dev/null');
const { page } = await open(browser, address, {}, watch);
const { questions } = await page.evaluate(() => fetch('/playground/about').then((answer) => answer.json()));
const number = Number(chosen ?? questions.findIndex(({ demonstrates }) => !demonstrates));
await page.click('#settings summary');
const waits = { webrtc: [], websocket: [] };
for (let round = 0; round <= Number(rounds); round += 1) {
  for (const way of Object.keys(waits)) {
    const moments = await ask(page, `#questions button >> nth=${number}`, way);
    // The first round warms up.
    if (round > 0) waits[way].push(moments);
  }
}
await browser.close();

const table = (name, of) => {
  const [call, socket] = ['webrtc', 'websocket'].map((way) => median(waits[way].map(of)));
  console.log(`${name.padEnd(36)} WebRTC ${call.toFixed(0).padStart(5)} ms   WebSocket ${socket.toFixed(0).padStart(5)} ms   ${(call - socket).toFixed(0).padStart(5)} ms later`);
};
console.log(`“${questions[number].text}”, medians of ${rounds}`);
const names = Object.keys(PARTS);
for (const [before, name] of names.slice(1).map((name, at) => [names[at], name])) table(PARTS[name], (moments) => moments[name] - moments[before]);
table('the whole wait', ({ spoken, heard }) => heard - spoken);
