// What the visits share: the server, the screenshots and the checks of every state of the page.
//
// Usage: node SCRIPT.mjs SETTINGS.json

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { launch, violations } from './browser.mjs';

export const settings = JSON.parse(readFileSync(process.argv[2], 'utf8'));
const { undertone, config, port } = settings;
export const { artefacts } = settings;
export const address = `http://127.0.0.1:${port}/`;
/** Printed at the end as one JSON object. */
export const measured = {};
/** The longest that a turn may take on a busy machine, ms. */
export const PATIENCE = 40_000;

export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
export const step = (name) => process.stderr.write(`-- ${name}\n`);

let server = null;

/** Starts the server, with these variables in its environment. */
export async function startServer(variables = {}) {
  const env = { ...process.env, ...variables };
  server = spawn(undertone, ['serve', '--config', config], { env, stdio: ['ignore', 'ignore', 'inherit'] });
  for (let tries = 0; tries < 400; tries += 1) {
    const answer = await fetch(`${address}readyz`).catch(() => null);
    if (answer?.ok) return;
    await pause(100);
  }
  throw new Error('the server does not start');
}

export async function killServer() {
  const ended = once(server, 'exit');
  stopServer();
  await ended;
}

export function stopServer() {
  server?.kill('SIGKILL');
}

export const shot = (page, name) => page.screenshot({ path: join(artefacts, `${name}.png`) });
const WIDE = { width: 1280, height: 800 };
export const PHONE = { width: 390, height: 844 };

/** Internal terms that must not appear on the page. */
const CODE_WORDS = /\b(?:commit|committed|router|keyed|declaration|speculat\w+|eligib\w+|ledger|partials?)\b/i;

/**
 * Checks a state of the page, wide and on a phone, light and dark: no overflow, and no violations by axe. Then runs
 * `checkPhone` at the phone's size.
 */
export async function shots(page, name, checkPhone) {
  for (const [size, viewport] of [['1280', WIDE], ['390', PHONE]]) {
    await page.setViewportSize(viewport);
    await page.evaluate(() => scrollTo(0, 0));
    for (const colorScheme of ['light', 'dark']) {
      await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
      await page.evaluate(() => Promise.all([...document.getAnimations()].map((animation) => animation.finished.catch(() => {}))));
      await shot(page, `${name}-${size}-${colorScheme}`);
      measured[`axe_${name}_${size}_${colorScheme}`] = await violations(page);
    }
    const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(overflow <= 0, `${name}: the page is ${overflow} px wider than ${size}`);
    assert.doesNotMatch(await page.evaluate(() => document.body.innerText), CODE_WORDS, name);
  }
  await checkPhone?.();
  await page.setViewportSize(WIDE);
  await page.emulateMedia({ colorScheme: 'light', reducedMotion: 'no-preference' });
}

/** Runs a visit with a browser at whose microphone there is `sound`, and prints what it measured. */
export async function run(sound, ...visits) {
  try {
    await startServer();
    const browser = await launch(settings.chromium, sound);
    for (const visit of visits) await visit(browser);
    await browser.close();
    console.log(JSON.stringify(measured));
  } finally {
    stopServer();
  }
}
