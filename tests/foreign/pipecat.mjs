// One call with Pipecat's client for Twilio's protocol. It asks, interrupts the answer, and reports
// what it heard. `node pipecat.mjs URL SIGNATURE TICKET ACCOUNT CALL QUESTION INTERRUPTION ANSWER`:
// the last three are files of mono PCM16LE at 8 kHz; ANSWER is written.
//
// Only the package's TwilioSerializer is used, since the rest needs a browser. The package depends
// on the code generator that it was made with and never loads it; package.json replaces that with a
// small package.

import { readFileSync, writeFileSync } from 'node:fs';
import { TwilioSerializer } from '@pipecat-ai/websocket-transport';
import WebSocket from 'ws';

const [url, signature, ticket, accountSid, callSid, question, interruption, answer] =
  process.argv.slice(2);
const RATE = 8000;
const FRAME = RATE / 50;
const QUIET_MS = 500;
// How much of the answer is heard before the barge-in, samples.
const HEARD = 4 * RATE;

const frames = (path) => {
  const bytes = readFileSync(path);
  const samples = new Int16Array(bytes.buffer, bytes.byteOffset, bytes.length / 2);
  return Array.from({ length: Math.floor(samples.length / FRAME) }, (_, at) =>
    samples.slice(at * FRAME, (at + 1) * FRAME),
  );
};

const twilio = new TwilioSerializer();
const socket = new WebSocket(url, { headers: { 'X-Twilio-Signature': signature } });
const heard = { greeting: 0, answer: 0, clear: false, stale: 0 };
const kept = [];
const say = [];
let phase = 'greeting';
let lastAudio = Infinity;

socket.on('message', async (data) => {
  const message = await twilio.deserialize(data.toString());
  if (message.type === 'raw') {
    if (phase === 'interrupting') heard.clear = true;
    else {
      // This was an answer to half of the question, because the rest came late.
      heard.answer = 0;
      kept.length = 0;
    }
  } else if (message.type === 'audio') {
    lastAudio = Date.now();
    if (heard.clear) heard.stale += message.audio.length;
    else if (phase === 'greeting') heard.greeting += message.audio.length;
    else {
      heard.answer += message.audio.length;
      kept.push(Buffer.from(Int16Array.from(message.audio).buffer));
    }
  }
});

// Decides the caller's next step once its speech has been sent.
const proceed = () => {
  if (phase === 'greeting' && Date.now() > lastAudio + QUIET_MS) {
    phase = 'asking';
    say.push(...frames(question));
  } else if (phase === 'asking' && heard.answer >= HEARD) {
    phase = 'interrupting';
    say.push(...frames(interruption));
  } else if (phase === 'interrupting' && heard.clear) {
    phase = 'over';
    socket.send(twilio.serialize({ event: 'stop', stop: { accountSid, callSid } }));
  }
};

socket.on('open', () => {
  const streamSid = 'MZ00000000000000000000000000000001';
  const mediaFormat = { encoding: 'audio/x-mulaw', sampleRate: RATE, channels: 1 };
  const customParameters = { ticket };
  const start = { streamSid, accountSid, callSid, tracks: ['inbound'], customParameters, mediaFormat };
  socket.send(twilio.serialize({ event: 'connected', protocol: 'Call', version: '1.0.0' }));
  socket.send(twilio.serialize({ event: 'start', sequenceNumber: '1', streamSid, start }));
  const began = Date.now();
  let sent = 0;
  const beat = setInterval(() => {
    for (; sent * 20 <= Date.now() - began && phase !== 'over'; sent += 1) {
      const frame = say.shift() ?? new Int16Array(FRAME);
      socket.send(twilio.serializeAudio(frame.buffer, RATE, 1));
      if (say.length === 0) proceed();
    }
    if (phase === 'over') clearInterval(beat);
  }, 10);
});
socket.on('close', () => {
  writeFileSync(answer, Buffer.concat(kept));
  console.log(JSON.stringify({ ...heard, phase }));
});
setTimeout(() => {
  console.error(`no end in time: ${JSON.stringify({ ...heard, phase })}`);
  process.exit(1);
}, 150_000).unref();
