// The audio API of the openai package. `openai_audio.mjs URL`: prints what it got.
import OpenAI, { toFile } from 'openai';

const TEXT = 'The next train to Boston leaves at nine. Platform four is on the left.';
const client = new OpenAI({ apiKey: 'sk-test', baseURL: process.argv[2], maxRetries: 0 });

const spoken = await client.audio.speech.create({ model: 'tts-1', voice: 'alloy', input: TEXT });
const recording = Buffer.from(await spoken.arrayBuffer());
const file = () => toFile(recording, 'speech.mp3');
const model = 'whisper-1';
const { text } = await client.audio.transcriptions.create({ model, file: await file() });
let done = null;
const events = await client.audio.transcriptions.create({ model, file: await file(), stream: true });
for await (const event of events) {
  if (event.type === 'transcript.text.done') done = event.text;
}
const wrong = client.audio.speech.create({ model, voice: 'Nobody', input: 'Hi.' });
const refused = await wrong.then(() => null, (error) => error.param);
console.log(JSON.stringify({ bytes: recording.length, text, done, refused }));
