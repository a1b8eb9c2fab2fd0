// How long a client waits for the first audible sample of an answer, over WebRTC (werift) and over the WebSocket.
//
// Usage: node first_audio.mjs [ADDRESS] [ROUNDS]   with a server at ADDRESS (http://127.0.0.1:8787) whose machine is idle
// Speaks the page's second question so often over each, in turn, each time in a conversation of its own. The wait is from the
// last frame of the question to the arrival of the answer's sound; the browser's own delays are not in it.

import OpusScript from 'opusscript';
import { MediaStreamTrack, RTCPeerConnection, RtpHeader, RtpPacket, useOPUS } from 'werift';
import WebSocket from 'ws';

const RATE = 24_000;
const FRAME_MS = 20;
const FRAME_BYTES = 960;
/** The length of a frame by RTP's clock of 48 kHz. */
const TICKS = 960;
/** A sample this far from zero is heard. */
const LOUD = 300;
const PATIENCE_MS = 30_000;

const [address = 'http://127.0.0.1:8787', rounds = '20'] = process.argv.slice(2);

/** The samples of a WAV file whose header is 44 bytes long. */
const question = Buffer.from(await (await fetch(new URL('/playground/questions/1', address))).arrayBuffer()).subarray(44);

const isLoud = (bytes) => {
  for (let at = 0; at + 1 < bytes.length; at += 2) if (Math.abs(bytes.readInt16LE(at)) > LOUD) return true;
  return false;
};

/** Opens a conversation over the WebSocket. `hear` gets the agent's audio. */
async function overSocket(hear) {
  const url = new URL('/v1/realtime?model=undertone&vendor_events=1', address);
  url.protocol = 'ws:';
  const socket = new WebSocket(url);
  await new Promise((resolve) => {
    socket.on('message', (data) => {
      const event = JSON.parse(data);
      if (event.type === 'session.created') resolve();
      if (event.type === 'response.output_audio.delta') hear(Buffer.from(event.delta, 'base64'));
    });
  });
  return { send: (frame) => socket.send(frame), close: () => socket.close() };
}

/** The same over WebRTC. */
async function overCall(hear) {
  const [mouth, ears] = [0, 1].map(() => new OpusScript(RATE, 1, OpusScript.Application.VOIP));
  const peer = new RTCPeerConnection({ codecs: { audio: [useOPUS()] } });
  const microphone = new MediaStreamTrack({ kind: 'audio' });
  const transceiver = peer.addTransceiver(microphone, { direction: 'sendrecv' });
  peer.ontrack = ({ track }) => track.onReceiveRtp.subscribe(({ payload }) => hear(Buffer.from(ears.decode(payload))));
  const channel = peer.createDataChannel('oai-events');
  const opened = new Promise((resolve) => {
    channel.onmessage = ({ data }) => JSON.parse(data).type === 'session.created' && resolve();
  });
  await peer.setLocalDescription(await peer.createOffer());
  const offer = { method: 'POST', headers: { 'Content-Type': 'application/sdp' }, body: peer.localDescription.sdp };
  const answer = await fetch(new URL('/v1/realtime/calls?model=undertone', address), offer);
  await peer.setRemoteDescription({ type: 'answer', sdp: await answer.text() });
  await opened;
  let sent = 0;
  const send = (frame) => {
    const header = new RtpHeader({ sequenceNumber: sent & 0xffff, timestamp: sent * TICKS, payloadType: transceiver.codecs[0].payloadType });
    microphone.writeRtp(new RtpPacket(header, mouth.encode(frame, FRAME_BYTES / 2)));
    sent += 1;
  };
  return { send, close: () => peer.close() };
}

/** Asks once. Returns the wait in ms. */
async function ask(open) {
  let spoken = null;
  let heard = null;
  const line = await open((audio) => {
    if (spoken !== null && heard === null && isLoud(audio)) heard = performance.now();
  });
  const began = performance.now();
  const silence = Buffer.alloc(FRAME_BYTES);
  const pause = 25;
  for (let frame = 0; heard === null; frame += 1) {
    const at = (frame - pause) * FRAME_BYTES;
    const samples = at < 0 ? Buffer.alloc(0) : question.subarray(at, at + FRAME_BYTES);
    line.send(samples.length === FRAME_BYTES ? samples : silence);
    if (at >= 0 && samples.length < FRAME_BYTES) spoken ??= performance.now();
    if (performance.now() - began > PATIENCE_MS) throw new Error('no answer was heard');
    const due = began + (frame + 1) * FRAME_MS;
    await new Promise((resolve) => setTimeout(resolve, Math.max(0, due - performance.now())));
  }
  await line.close();
  return heard - spoken;
}

function median(values) {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = Math.floor(sorted.length / 2);
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

const waits = { call: [], socket: [] };
for (let round = 0; round <= Number(rounds); round += 1) {
  for (const [way, open] of [['call', overCall], ['socket', overSocket]]) {
    const wait = await ask(open);
    // The first round warms up.
    if (round > 0) waits[way].push(wait);
  }
}
const [call, socket] = [median(waits.call), median(waits.socket)];
console.log(`WebRTC ${call.toFixed(0)} ms, WebSocket ${socket.toFixed(0)} ms: ${(call - socket).toFixed(0)} ms later (medians of ${rounds})`);
process.exit(0);
