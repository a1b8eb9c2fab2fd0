// Runs Chromium with a file as its microphone, and takes the tests' measurements.

import { chromium } from 'playwright-core';
import { readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

const ARGUMENTS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  '--use-fake-device-for-media-stream',
  // Without them a browser gathers no address for calls to its own machine.
  '--allow-loopback-in-peer-connection',
  '--disable-features=WebRtcHideLocalIpsWithMdns',
];

/** Starts a browser whose microphone plays `sound`, once, from the moment it is switched on. */
export async function launch(executable, sound) {
  return chromium.launch({
    executablePath: executable,
    headless: true,
    args: [...ARGUMENTS, `--use-file-for-fake-audio-capture=${sound}%noloop`],
  });
}

/** Opens the page until `ready` is there, and collects its errors in `complaints`. `first` runs in it before its own code. */
export async function open(browser, address, options = {}, first = () => {}, ready = '#questions button') {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, permissions: ['microphone', 'clipboard-read', 'clipboard-write'], ...options });
  await context.addInitScript(listen);
  await context.addInitScript(first);
  const page = await context.newPage();
  const complaints = [];
  page.on('console', (message) => message.type() === 'error' && complaints.push(message.text()));
  page.on('pageerror', (error) => complaints.push(String(error)));
  await page.goto(address);
  await page.waitForSelector(ready, { state: 'attached' });
  return { context, page, complaints };
}

/**
 * Runs in the page before its own code: records all audio sent to the loudspeaker, and notes
 * whether a call was shown as running before the model asked for it.
 */
function listen() {
  window.heard = [];
  window.calls = false;
  window.sawStarted = false;
  const connect = AudioNode.prototype.connect;
  const record = (context) => {
    const tap = context.createScriptProcessor(1024, 1, 1);
    tap.isTap = true;
    tap.onaudioprocess = ({ inputBuffer, playbackTime }) => {
      const samples = [...inputBuffer.getChannelData(0)];
      // During a call the answers are on its track.
      if (!window.calls || samples.some((sample) => sample !== 0)) window.heard.push({ at: playbackTime, samples });
    };
    connect.call(tap, context.destination);
    return tap;
  };
  AudioNode.prototype.connect = function (to, ...rest) {
    // The microphone's context writes silence to its output; the voice's is at 24 kHz.
    if (to instanceof AudioDestinationNode && to.context.sampleRate === 24000 && !this.isTap) {
      connect.call(this, record(to.context));
    }
    return connect.call(this, to, ...rest);
  };
  const capture = async (stream) => {
    const context = new AudioContext();
    await context.audioWorklet.addModule('/audio-in.worklet.js');
    const node = new AudioWorkletNode(context, 'capture', { channelCount: 1, channelCountMode: 'explicit' });
    node.port.onmessage = ({ data: { samples } }) => window.heard.push({ samples: [...samples].map((sample) => sample / 32768) });
    connect.call(context.createMediaStreamSource(stream), node);
    connect.call(node, context.destination);
  };
  // A call's track is played by an element.
  const { set } = Object.getOwnPropertyDescriptor(HTMLMediaElement.prototype, 'srcObject');
  Object.defineProperty(HTMLMediaElement.prototype, 'srcObject', {
    set(stream) {
      window.calls = Boolean(stream);
      if (stream) capture(stream);
      set.call(this, stream);
    },
  });
  addEventListener('DOMContentLoaded', () => {
    new MutationObserver(() => {
      window.sawStarted ||= document.querySelector('#drawing .call.started') !== null;
    }).observe(document.body, { childList: true, subtree: true });
  });
}

/** The shown turn, as the copy button yields it. */
export async function copied(page) {
  const folded = !(await page.locator('#copy').isVisible());
  if (folded) await page.click('#turn details summary');
  await page.click('#copy');
  await page.waitForFunction(() => document.getElementById('copied').textContent === 'Copied.');
  if (folded) await page.click('#turn details summary');
  return JSON.parse(await page.evaluate(() => navigator.clipboard.readText()));
}

/**
 * Writes the audio heard since the last call as a WAV file. Long silences are cut to 200 ms,
 * because the recogniser finds nothing in a mostly silent file.
 */
export async function writeHeard(page, path) {
  const samples = await page.evaluate(() => {
    let silent = 0;
    const kept = window.heard.splice(0).filter(({ samples }) => {
      silent = samples.some((sample) => Math.abs(sample) > 1e-3) ? 0 : silent + samples.length;
      return silent <= 4800;
    });
    return kept.flatMap(({ samples }) => samples);
  });
  const data = Buffer.alloc(44 + 2 * samples.length);
  data.write('RIFF', 0);
  data.writeUInt32LE(36 + 2 * samples.length, 4);
  data.write('WAVEfmt ', 8);
  data.writeUInt32LE(16, 16);
  data.writeUInt16LE(1, 20);
  data.writeUInt16LE(1, 22);
  data.writeUInt32LE(24000, 24);
  data.writeUInt32LE(48000, 28);
  data.writeUInt16LE(2, 32);
  data.writeUInt16LE(16, 34);
  data.write('data', 36);
  data.writeUInt32LE(2 * samples.length, 40);
  samples.forEach((sample, index) => data.writeInt16LE(Math.max(-32768, Math.min(32767, Math.round(sample * 32767))), 44 + 2 * index));
  writeFileSync(path, data);
}

/** The violations that axe rates serious or worse. */
export async function violations(page) {
  await page.evaluate(AXE);
  const found = await page.evaluate(async () => {
    const { violations } = await window.axe.run(document);
    return violations.map(({ id, impact, nodes }) => ({ id, impact, where: nodes.slice(0, 3).map((node) => node.html.slice(0, 160)) }));
  });
  return found.filter(({ impact }) => impact === 'serious' || impact === 'critical');
}

/** The share of a core that the page's processes use over some seconds. */
export async function usage(browser, seconds) {
  const cdp = await browser.newBrowserCDPSession();
  const spent = async () => {
    const { processInfo } = await cdp.send('SystemInfo.getProcessInfo');
    return processInfo.filter(({ type }) => type === 'renderer').reduce((sum, { cpuTime }) => sum + cpuTime, 0);
  };
  const before = await spent();
  await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
  const share = ((await spent()) - before) / seconds;
  await cdp.detach();
  return share;
}
