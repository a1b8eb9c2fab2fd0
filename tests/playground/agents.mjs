// A visitor chooses between agents, in a real browser with the real server.
//
// Usage: node agents.mjs SETTINGS.json   Prints one JSON object of what was measured.

import assert from 'node:assert/strict';
import { address, measured, PATIENCE, run, settings, shots, step } from './common.mjs';
import { open } from './browser.mjs';

const said = (page, words) => page.waitForFunction((words) => document.getElementById('log').innerText.includes(words), words, { timeout: PATIENCE });

async function type(page, text) {
  await page.fill('#words', text);
  await page.keyboard.press('Enter');
}

async function choose(browser) {
  const { context, page, complaints } = await open(browser, address);
  step('the agents that may be chosen by name are offered');
  const options = await page.locator('#agent option').allInnerTexts();
  assert.deepEqual(options, ['chosen for you', 'billing', 'stock']);
  assert.equal(await page.locator('#agent').inputValue(), '');
  await shots(page, 'agents');

  step('the chosen agent greets');
  await page.selectOption('#agent', 'billing');
  await type(page, 'What is five plus six?');
  await said(page, 'This is billing');
  step('the words that came in the middle of its greeting are answered, too');
  await said(page, '11');
  assert.equal(await page.locator('#log .note.failed').count(), 0);

  step('another one begins a new conversation');
  await page.focus('#agent');
  await page.keyboard.press('ArrowDown');
  assert.equal(await page.locator('#agent').inputValue(), 'stock');
  await said(page, 'The conversation is over.');
  await type(page, 'What is two plus three?');
  await said(page, 'This is the stock room');
  assert.deepEqual(complaints, []);
  await context.close();
}

await run(settings.sounds.silence, choose);
