// @openai/agents-realtime as a client: one spoken turn, or one turn with a tool of the client.
//
// Usage: node turn.mjs WS_URL spoken|tool SPEECH.pcm   (mono PCM16LE, 24 kHz)
// Prints one JSON object about what it received.

import { readFileSync } from 'node:fs';
import {
  OpenAIRealtimeWebSocket,
  RealtimeAgent,
  RealtimeSession,
  tool,
} from '@openai/agents-realtime';
import { z } from 'zod';

const [url, mode, path] = process.argv.slice(2);
const calls = [];
const getWeather = tool({
  name: 'get_weather',
  description: 'The weather in a city.',
  parameters: z.object({ city: z.string() }),
  execute: async (given) => {
    calls.push(given);
    return JSON.stringify({ degrees: 21 });
  },
});

const agent = new RealtimeAgent({
  name: 'Foreign',
  instructions: 'Be brief.',
  tools: mode === 'tool' ? [getWeather] : [],
});
const transport = new OpenAIRealtimeWebSocket({ url });
const session = new RealtimeSession(agent, { transport, model: 'undertone' });

const types = [];
let audioBytes = 0;
let responses = 0;

const done = new Promise((resolve, reject) => {
  setTimeout(() => reject(new Error(`no answer in time; saw ${types}`)), 40_000).unref();
  session.on('error', (event) => reject(new Error(JSON.stringify(event))));
  session.on('audio', (event) => (audioBytes += event.data.byteLength));
  session.on('transport_event', (event) => {
    if (types.at(-1) !== event.type) types.push(event.type);
    if (event.type === 'response.done') {
      responses += 1;
      if (responses === (mode === 'tool' ? 2 : 1)) resolve();
    }
  });
});
done.catch(() => {});

await session.connect({ apiKey: 'sk-test' });
const speech = readFileSync(path);
session.sendAudio(speech.buffer.slice(speech.byteOffset, speech.byteOffset + speech.byteLength));
await done;
// The session asks for the item of each transcript; its answer fills the history.
await new Promise((resolve, reject) => {
  const look = () => {
    const user = session.history.find((item) => item.role === 'user');
    if (user?.content[0].transcript) resolve();
    else setTimeout(look, 5);
  };
  setTimeout(() => reject(new Error('no transcript in the history')), 5000).unref();
  look();
});
const words = (role) =>
  session.history
    .filter((item) => item.role === role)
    .map((item) => item.content.map((part) => part.transcript ?? part.text).join(' '))
    .join(' ');
console.log(
  JSON.stringify({
    types,
    audio_bytes: audioBytes,
    transcript: words('user'),
    agent: words('assistant'),
    calls,
    responses,
  }),
);
session.close();
process.exit(0);
