// The page where no UDP port is open, in a real browser with the real server: the call goes over TCP.
//
// Usage: node tcp.mjs SETTINGS.json   Prints one JSON object of what was measured.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { address, artefacts, measured, PATIENCE, run, settings, step } from './common.mjs';
import { open, writeHeard } from './browser.mjs';

/** Runs in the page before its own code: the browser learns of no address over UDP. */
function withoutUdp() {
  const { setRemoteDescription } = RTCPeerConnection.prototype;
  RTCPeerConnection.prototype.setRemoteDescription = function ({ type, sdp }) {
    window.peer = this;
    const lines = sdp.split('\r\n').filter((line) => !/^a=candidate:\S+ \d+ udp /i.test(line));
    return setRemoteDescription.call(this, { type, sdp: lines.join('\r\n') });
  };
}

/** The protocol of the call's packets. */
async function protocol() {
  const stats = [...(await window.peer.getStats()).values()];
  const pair = stats.find(({ type, nominated, state }) => type === 'candidate-pair' && nominated && state === 'succeeded');
  return stats.find(({ id }) => id === pair.remoteCandidateId).protocol;
}

async function talk(browser) {
  const { context, page, complaints } = await open(browser, address);
  await page.addInitScript(withoutUdp);
  await page.reload();
  await page.waitForSelector('#questions button', { state: 'attached' });
  step('a call goes over TCP, both ways');
  await page.click('#questions button >> nth=1');
  await page.waitForSelector('.message.user', { timeout: PATIENCE });
  await page.waitForSelector('.said, .sounding', { timeout: PATIENCE });
  await page.waitForFunction(() => document.getElementById('status').dataset.state === 'open' && !document.querySelector('.sounding'), null, { timeout: PATIENCE });
  assert.equal(await page.locator('#way-told').innerText(), 'Connected over WebRTC.');
  assert.equal(await page.evaluate(protocol), 'tcp');
  await writeHeard(page, join(artefacts, 'tcp.wav'));
  assert.deepEqual(complaints, []);
  await context.close();
}

await run(settings.sounds.silence, talk);
