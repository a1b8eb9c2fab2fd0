// openai-realtime-api as a client, which uses the protocol's beta. `node beta.mjs WS_URL FOLDER_OF_SPEECH`

import { RealtimeClient } from 'openai-realtime-api';
import { Conversation, WEATHER } from './conversation.mjs';

const [url, folder] = process.argv.slice(2);
const conversation = new Conversation(folder);
const client = new RealtimeClient({
  url,
  apiKey: 'sk-test',
  sessionConfig: { instructions: 'Be brief.', turn_detection: { type: 'server_vad' } },
});
client.realtime.on('server.*', (event) => conversation.event(event));
await client.connect();
await client.waitForSessionCreated();
client.addTool(WEATHER, conversation.weather);
await conversation.run({
  send: (frame) => {
    // The package keeps all audio that it sends, and copies all of it to add a frame: after a minute of an open
    // microphone that takes a core most of its time. It needs the copy only for turns that the client commits.
    client.inputAudioBuffer = new Int16Array(0);
    client.appendInputAudio(frame);
  },
  type: (text) => client.sendUserMessageContent([{ type: 'input_text', text }]),
  history: () =>
    client.conversation
      .getItems()
      .filter((item) => item.type === 'message')
      .map((item) => [item.role, item.formatted.transcript || item.formatted.text]),
});
