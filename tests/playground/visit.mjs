// A visit to the playground, in a real browser against the real server.
//
// Usage: node visit.mjs SETTINGS.json   Prints one JSON object of what was measured.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { launch, open, usage, violations, writeHeard } from './browser.mjs';

const settings = JSON.parse(readFileSync(process.argv[2], 'utf8'));
const { chromium, undertone, config, port, artefacts, sounds } = settings;
const address = `http://127.0.0.1:${port}/`;
const measured = {};
/** The longest that a turn takes on a busy machine, ms. */
const PATIENCE = 40_000;

let server = null;

async function startServer() {
  server = spawn(undertone, ['serve', '--config', config], { stdio: ['ignore', 'ignore', 'inherit'] });
  for (let tries = 0; tries < 400; tries += 1) {
    const answer = await fetch(`${address}readyz`).catch(() => null);
    if (answer?.ok) return;
    await pause(100);
  }
  throw new Error('the server does not start');
}

async function killServer() {
  const ended = once(server, 'exit');
  server.kill('SIGKILL');
  await ended;
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const shot = (page, name, fullPage = false) => page.screenshot({ path: join(artefacts, `${name}.png`), fullPage });
const log = (page) => page.locator('#log').innerText();
const step = (name) => process.stderr.write(`-- ${name}\n`);

/** Waits until the agent has fallen silent and nothing is under way. */
async function calm(page) {
  await page.waitForFunction(() => document.getElementById('status').dataset.state === 'open' && !document.querySelector('.sounding'), null, { timeout: PATIENCE });
}

async function say(page, text) {
  const before = await page.locator('.message.agent').count();
  await page.fill('#words', text);
  await page.keyboard.press('Enter');
  await page.waitForFunction((count) => document.querySelectorAll('.message.agent').length > count, before, { timeout: PATIENCE });
}

/** Asks until it is understood: a busy machine may be too late for a question, and says so. */
async function insist(page, ask, answer) {
  for (let tries = 0; ; tries += 1) {
    await ask();
    const found = page.waitForFunction((words) => document.getElementById('log').innerText.includes(words), answer, { timeout: PATIENCE / 2 });
    if (await found.then(() => true, () => false)) return;
    assert.ok(tries < 3, `no "${answer}" in: ${await log(page)}`);
    await calm(page);
  }
}

async function firstVisit(browser) {
  const { page, complaints } = await open(browser, address);
  step('the page is light and quick, and rests');
  Object.assign(
    measured,
    await page.evaluate(() => {
      const files = [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')];
      const [paint] = performance.getEntriesByName('first-contentful-paint');
      return { page_bytes: files.reduce((sum, { encodedBodySize }) => sum + encodedBodySize, 0), requests: files.length, first_paint_ms: Math.round(paint.startTime) };
    }),
  );
  await pause(1000);
  measured.idle_share_of_a_core = Number((await usage(browser, 5)).toFixed(4));
  await shot(page, 'first-visit');

  step('a question is played and answered');
  const play = async () => {
    const clicked = Date.now();
    await page.click('#questions button >> nth=0');
    await page.waitForSelector('.sounding', { timeout: PATIENCE });
    measured.demo_click_to_voice_ms = Date.now() - clicked;
    await page.waitForSelector('#drawing .answer', { timeout: PATIENCE });
    measured.demo_click_to_answer_ms = Date.now() - clicked;
  };
  await insist(page, play, 'cloudy in Tokyo');
  await calm(page);
  await writeHeard(page, join(artefacts, 'demo.wav'));
  assert.equal(await page.locator('#drawing .early.committed').count(), 1);
  assert.equal(await page.locator('#drawing .moment.commit').count(), 1);
  assert.match(await log(page), /how warm is it in tokyo/i);
  assert.match(await log(page), /ran early, .* saved/);
  await shot(page, 'desktop');

  step('the microphone is heard');
  const speak = async () => {
    if ((await page.getAttribute('#microphone', 'aria-pressed')) === 'true') await page.click('#microphone');
    await page.click('#microphone');
    // On a busy machine it is committed before anybody could take a picture.
    await page.waitForSelector('#drawing .early.started', { timeout: 5000 }).then(() => shot(page, 'runs-early'), () => {});
  };
  await insist(page, speak, 'cloudy in London');
  assert.ok(await page.evaluate(() => window.sawStarted), 'a call was seen before it was committed');
  assert.ok((await page.locator('#device option').count()) > 0);
  await calm(page);
  await writeHeard(page, join(artefacts, 'spoken.wav'));
  await page.click('#microphone');
  assert.equal(await page.getAttribute('#microphone', 'aria-pressed'), 'false');

  step('typing works');
  await say(page, 'What is the weather in Berlin?');
  await page.waitForSelector('#drawing .answer', { timeout: PATIENCE });
  await calm(page);
  assert.match(await log(page), /cloudy in Berlin/);
  await writeHeard(page, join(artefacts, 'typed.wav'));

  step('the timeline is reached by keyboard and told in numbers');
  await page.click('#earlier');
  await page.focus('#drawing .mark[tabindex="0"]');
  for (let steps = 0; steps < 30; steps += 1) {
    await page.keyboard.press('ArrowRight');
    if (/committed/.test(await page.locator('#detail').innerText())) break;
  }
  assert.match(await page.locator('#detail').innerText(), /ran early.*sure.*committed, .* saved/s);
  await shot(page, 'keyboard');
  await page.click('summary');
  assert.ok((await page.locator('#numbers tr').count()) > 5);
  await page.click('summary');

  step('turn and session can be taken along');
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write', 'microphone']);
  await page.click('#copy');
  await page.waitForFunction(() => document.getElementById('copied').textContent === 'Copied.');
  const copied = JSON.parse(await page.evaluate(() => navigator.clipboard.readText()));
  assert.equal(copied.runs[0].tool, 'get_weather');
  assert.ok(copied.runs[0].committed > copied.runs[0].started);
  for (const kind of ['wav', 'jsonl']) {
    const [file] = await Promise.all([page.waitForEvent('download'), page.click(`#save-${kind}`)]);
    await file.saveAs(join(artefacts, `session.${kind}`));
  }
  const lines = readFileSync(join(artefacts, 'session.jsonl'), 'utf8').trim().split('\n').map((line) => JSON.parse(line));
  assert.ok(lines.some(({ type }) => type === 'undertone.turn_record'));

  step('without speculation it waits');
  await page.click('#early');
  await say(page, 'What is the weather in London?');
  await page.waitForFunction(() => [...document.querySelectorAll('.note')].some((note) => note.textContent.trim() === 'get_weather (place: London)'), null, { timeout: PATIENCE });
  await calm(page);
  assert.equal(await page.locator('#drawing .early').count(), 0);
  assert.equal(await page.locator('#drawing .dead').count(), 1, 'silence between filler and answer is visible');
  await page.evaluate(() => scrollTo(0, 0));
  await shot(page, 'without-speculation');
  await page.click('#early');

  step('a change asks first');
  await page.evaluate(() => scrollTo(0, 0));
  await page.fill('#words', 'Add a note buy milk');
  await page.keyboard.press('Enter');
  await page.waitForSelector('.confirmation', { timeout: PATIENCE });
  await shot(page, 'confirmation');
  measured.axe_confirmation = await violations(page);
  await page.click('.confirmation .primary');
  await page.waitForFunction(() => /Confirmation accepted/.test(document.getElementById('log').innerText), null, { timeout: PATIENCE });
  await calm(page);

  measured.axe_light = await violations(page);
  await page.emulateMedia({ colorScheme: 'dark' });
  measured.axe_dark = await violations(page);
  await page.evaluate(() => scrollTo(0, 0));
  await shot(page, 'dark');
  await page.emulateMedia({ colorScheme: 'light' });
  await page.setViewportSize({ width: 390, height: 844 });
  await pause(200);
  measured.axe_phone = await violations(page);
  const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  assert.ok(overflow <= 0, `the phone page is ${overflow} px too wide`);
  await shot(page, 'phone', true);
  await page.setViewportSize({ width: 1280, height: 800 });
  assert.deepEqual(complaints, []);

  step('what was discarded fades, whatever happened');
  await page.evaluate(drawDiscarded);
  assert.equal(await page.locator('#drawing .early.discarded').count(), 1);
  assert.match(await page.locator('#numbers').textContent(), /discarded: superseded, 340 ms wasted/);
  await shot(page, 'discarded');
  await page.click('#earlier');
  await page.click('#later');

  step('a killed server is told of, and the page recovers');
  await killServer();
  await page.waitForSelector('#alert:not([hidden])', { timeout: PATIENCE });
  assert.match(await page.locator('#alert').innerText(), /does not answer/);
  measured.axe_error = await violations(page);
  await shot(page, 'error');
  await startServer();
  await page.waitForSelector('#alert', { state: 'hidden', timeout: PATIENCE });
  await say(page, 'What is two plus two?');
  await calm(page);
  await page.context().close();
}

/** Runs in the page: a turn whose first guess was wrong, told by the events of the server. */
async function drawDiscarded() {
  const { Turns } = await import('/turns.js');
  const { Timeline } = await import('/timeline.js');
  const turns = new Turns();
  const us = (ms) => ms * 1000;
  const early = (at, more) => ({ type: 'undertone.speculation', at: us(at), undertone_at: us(at), ...more });
  const place = (name) => ({ arguments: { place: name } });
  const sure = { tool: 'get_weather', source: 'rule', confidence: 0.8 };
  for (const event of [
    { type: 'input_audio_buffer.speech_started', undertone_at: us(500), audio_start_ms: 400 },
    { type: 'undertone.transcript.partial', undertone_at: us(1500), text: 'What is the weather in New' },
    early(1520, { kind: 'started', run: 1, ...sure, ...place('New') }),
    { type: 'undertone.transcript.partial', undertone_at: us(1860), text: 'What is the weather in New York' },
    early(1860, { kind: 'discarded', run: 1, reason: 'superseded', wasted: us(340) }),
    early(1870, { kind: 'started', run: 2, ...sure, ...place('New York') }),
    { type: 'input_audio_buffer.speech_stopped', undertone_at: us(2500), audio_end_ms: 2400 },
    early(2600, { kind: 'committed', run: 2, call: 1, ready: false }),
    early(2900, { kind: 'ready', run: 2 }),
  ]) {
    turns.take(event, event.undertone_at / 1000 + 5);
  }
  const [drawing, detail, numbers] = ['drawing', 'detail', 'numbers'].map((id) => document.getElementById(id));
  new Timeline(drawing, detail, numbers).draw(turns.list[0], 3000);
}

async function bargeIn() {
  step('speaking over the agent silences it');
  const browser = await launch(chromium, sounds.interruption);
  const { page, complaints } = await open(browser, address);
  await say(page, 'What can you do?');
  await page.waitForSelector('.sounding', { timeout: PATIENCE });
  await page.click('#microphone');
  await page.waitForSelector('#log s', { timeout: PATIENCE });
  await page.waitForFunction(() => /Tokyo/.test(document.getElementById('log').innerText), null, { timeout: PATIENCE });
  await calm(page);
  await page.waitForFunction(() => !/–/.test(document.querySelector('#metrics .tile:nth-child(4) .value').textContent), null, { timeout: PATIENCE });
  measured.barge_in_stop = await page.locator('#metrics .tile:nth-child(4) .value').innerText();
  await page.click('#earlier');
  await shot(page, 'barge-in');
  measured.struck = await page.locator('#log s').first().innerText();
  assert.equal(await page.locator('#log s:has-text("not heard")').count(), 0, 'what is for screen readers is not struck');
  assert.deepEqual(complaints, []);
  await browser.close();
}

async function pushToTalk() {
  step('held down, a key talks; let go, the turn is over');
  const browser = await launch(chromium, sounds.question);
  const { page, complaints } = await open(browser, address);
  await page.click('#microphone');
  await page.waitForSelector('#voice:not([hidden])', { timeout: PATIENCE });
  await page.check('#push');
  const hold = async () => {
    if ((await page.locator('.message').count()) > 0) await page.click('#microphone');
    if ((await page.getAttribute('#microphone', 'aria-pressed')) === 'false') await page.click('#microphone');
    await page.waitForSelector('#talk:not([hidden])');
    await page.focus('#talk');
    await page.keyboard.down(' ');
    await pause(4500);
    await page.keyboard.up(' ');
  };
  await insist(page, hold, 'cloudy in London');
  await shot(page, 'push-to-talk');
  assert.deepEqual(complaints, []);
  await browser.close();
}

async function withoutMicrophone(browser) {
  step('without permission the page says so, and typing works');
  const { context, page, complaints } = await open(browser, address, { permissions: [] });
  await page.click('#microphone');
  await page.waitForSelector('#alert:not([hidden])', { timeout: PATIENCE });
  assert.match(await page.locator('#alert').innerText(), /not allowed/);
  await shot(page, 'no-permission');
  await say(page, 'What is two plus three?');
  assert.deepEqual(complaints, []);
  await context.close();
}

try {
  await startServer();
  const browser = await launch(chromium, sounds.question);
  await firstVisit(browser);
  await withoutMicrophone(browser);
  await browser.close();
  await bargeIn();
  await pushToTalk();
  console.log(JSON.stringify(measured));
} finally {
  server?.kill('SIGKILL');
}
