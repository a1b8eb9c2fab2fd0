// @openai/agents-realtime as a client. `node agents.mjs WS_URL FOLDER_OF_SPEECH`

import {
  OpenAIRealtimeWebSocket,
  RealtimeAgent,
  RealtimeSession,
  tool,
} from '@openai/agents-realtime';
import { z } from 'zod';
import { Conversation, WEATHER } from './conversation.mjs';

const [url, folder] = process.argv.slice(2);
const conversation = new Conversation(folder);
const weather = tool({
  ...WEATHER,
  parameters: z.object({ city: z.string() }),
  execute: async (given) => JSON.stringify(await conversation.weather(given)),
});
const agent = new RealtimeAgent({ name: 'Foreign', instructions: 'Be brief.', tools: [weather] });
const transport = new OpenAIRealtimeWebSocket({ url });
const session = new RealtimeSession(agent, { transport, model: 'undertone' });

session.on('error', (event) => conversation.complaints.push(JSON.stringify(event)));
session.on('transport_event', (event) => conversation.event(event));
await session.connect({ apiKey: 'sk-test' });
await conversation.run({
  send: (frame) => session.sendAudio(frame),
  type: (text) => session.sendMessage(text),
  history: () =>
    session.history
      .filter((item) => item.type === 'message')
      .map((item) => [item.role, item.content.map((part) => part.transcript ?? part.text).join(' ')]),
});
