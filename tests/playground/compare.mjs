// One click plays a question with and without the early start, in a real browser with the real server.
//
// Usage: node compare.mjs SETTINGS.json   Prints one JSON object of what was measured.

import assert from 'node:assert/strict';
import { address, measured, PATIENCE, run, settings, shots, step } from './common.mjs';
import { open } from './browser.mjs';

/** Clicks, and waits until both answers were heard or the page says why not. */
async function play(page, selector) {
  await page.click(selector);
  await page.waitForSelector('#outcome[data-mood="live"]', { timeout: PATIENCE });
  await page.waitForSelector('#outcome:not([data-mood="live"])', { timeout: 3 * PATIENCE });
}

/** Both turns, as the copy button yields them. */
async function copied(page) {
  await page.click('#both > summary');
  await page.click('#copy-both');
  await page.waitForFunction(() => document.getElementById('copied-both').textContent === 'Copied.');
  await page.click('#both > summary');
  return JSON.parse(await page.evaluate(() => navigator.clipboard.readText()));
}

const answerOf = (turn) => turn.said.find(({ kind }) => kind === 'answer').heard[0].from - turn.user.to;
const used = (turn) => turn.runs.find(({ committed }) => committed !== undefined);

async function compare(browser) {
  const { context, page, complaints } = await open(browser, address);
  step('one voice and one language are no choice');
  await page.click('#settings summary');
  // More weights than the shipped ones may be there, with which the server offers more languages.
  for (const [name, list] of [['Voice', '#chosen-voice'], ['Language', '#chosen-language']]) {
    const options = await page.locator(`${list} option`).count();
    assert.equal(await page.getByRole('combobox', { name }).count(), options > 1 ? 1 : 0, name);
  }
  await page.click('#settings summary');

  step('the first screen offers the difference');
  await page.waitForSelector('#compare-line:not([hidden])');
  await shots(page, 'compare-empty');

  step('one click plays the question twice');
  // On a busy machine the question may be misheard or the call may begin too late; the page then says so, and gives no number.
  for (let tries = 0; tries < 4; tries += 1) {
    await play(page, tries === 0 ? '#compare' : '#comparison-questions button >> nth=0');
    if (await page.locator('#outcome[data-mood="told"]').count()) break;
    assert.equal(await page.locator('#difference').innerText(), '');
    assert.ok((await page.locator('#difference-says').innerText()).length > 10, 'it says why there is no number');
  }
  assert.equal(await page.locator('#outcome').getAttribute('data-mood'), 'told', await page.locator('#difference-says').innerText());
  for (const axis of ['#with', '#without']) assert.equal(await page.locator(`${axis} svg .zero`).count(), 1, `${axis} has its axis`);
  const marks = await page.locator('#with, #without').evaluateAll((axes) => axes.map((axis) => [...axis.querySelectorAll('.zero line, .tick')].map((line) => Number(line.getAttribute('x1')))));
  assert.equal(marks[0].length, marks[1].length);
  for (const [index, x] of marks[0].entries()) assert.ok(Math.abs(x - marks[1][index]) < 0.1, `both axes have one zero and one scale: ${JSON.stringify(marks)}`);
  assert.ok((await page.locator('#with .call.used').count()) > 0 && (await page.locator('#without .call.late').count()) > 0);
  const both = await copied(page);
  assert.equal(used(both.with).tool, 'get_demo_order');
  assert.ok(used(both.with).started < used(both.with).committed, 'it began before the model asked for it');
  assert.ok(used(both.without).source === null && used(both.without).started >= used(both.without).committed, 'without, it began when the model asked for it');
  for (const turn of [both.with, both.without]) assert.match(turn.said.at(-1).text, /arrives tomorrow/);
  const sooner = answerOf(both.without) - answerOf(both.with);
  assert.ok(Math.abs(sooner - both.sooner_ms) < 1, `${sooner} is not ${both.sooner_ms}`);
  const told = await page.locator('#difference').innerText();
  if (sooner >= 100) assert.equal(told, `${(Math.round(sooner / 100) / 10).toFixed(1)} s earlier`);
  assert.equal(await page.locator('#outcome').getAttribute('aria-live'), 'polite', 'the outcome is announced');
  Object.assign(measured, { sooner_ms: Math.round(sooner), with_ms: Math.round(answerOf(both.with)), without_ms: Math.round(answerOf(both.without)), told });
  await shots(page, 'compare');

  step('the other question, and a stop');
  await page.click('#comparison-questions button >> nth=1');
  await page.waitForSelector('#outcome[data-mood="live"]');
  assert.equal(await page.locator('#compare').innerText(), 'Stop');
  await page.click('#compare');
  assert.equal(await page.locator('#difference-says').innerText(), 'Stopped.');
  assert.equal(await page.locator('#compare').innerText(), 'Hear the difference');

  step('a stop before the loudspeaker is awake is a stop');
  await page.evaluate(() => {
    document.querySelector('#comparison-questions button').click();
    document.querySelector('#compare').click();
    return new Promise((resolve) => setTimeout(resolve, 500));
  });
  assert.equal(await page.locator('#difference-says').innerText(), 'Stopped.');
  assert.equal(await page.locator('#compare').innerText(), 'Hear the difference');

  step('the conversation goes on as if nothing had been played');
  await page.fill('#words', 'What is two plus three?');
  await page.keyboard.press('Enter');
  await page.waitForSelector('#comparison', { state: 'hidden', timeout: PATIENCE });
  await page.waitForFunction(() => /5/.test([...document.querySelectorAll('.message.agent')].at(-1)?.innerText ?? ''), null, { timeout: PATIENCE });
  assert.equal(await page.locator('#which').innerText(), '1 of 1');
  assert.deepEqual(complaints, []);
  await context.close();
}

await run(settings.sounds.silence, compare);
