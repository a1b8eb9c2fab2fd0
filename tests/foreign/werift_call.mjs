// werift as a client over WebRTC. `node werift_call.mjs HTTP_URL FOLDER_OF_SPEECH`

import OpusScript from 'opusscript';
import { MediaStreamTrack, RTCPeerConnection, RtpHeader, RtpPacket, useOPUS } from 'werift';
import { Conversation, WEATHER } from './conversation.mjs';

const RATE = 24_000;
const FRAME_MS = 20;
/** The length of a frame by RTP's clock of 48 kHz. */
const TICKS = 960;
/** A sample this far from zero is heard. */
const LOUD = 300;

const [url, folder] = process.argv.slice(2);
const conversation = new Conversation(folder);
const history = [];
const mouth = new OpusScript(RATE, 1, OpusScript.Application.VOIP);
const ears = new OpusScript(RATE, 1, OpusScript.Application.VOIP);

const peer = new RTCPeerConnection({ codecs: { audio: [useOPUS()] } });
const microphone = new MediaStreamTrack({ kind: 'audio' });
const transceiver = peer.addTransceiver(microphone, { direction: 'sendrecv' });
peer.ontrack = ({ track }) =>
  track.onReceiveRtp.subscribe(({ payload }) => {
    const heard = ears.decode(payload);
    const samples = new Int16Array(heard.buffer, heard.byteOffset, heard.length / 2);
    if (samples.some((sample) => Math.abs(sample) > LOUD)) conversation.speaks(FRAME_MS);
  });

const channel = peer.createDataChannel('oai-events');
const tell = (event) => channel.send(JSON.stringify(event));
const opened = new Promise((resolve) => {
  let answers = 0;
  const REACTIONS = {
    'session.created': resolve,
    'response.output_audio.delta': ({ type }) => conversation.complaints.push(type),
    'response.function_call_arguments.done': async ({ call_id, arguments: given }) => {
      const output = JSON.stringify(await conversation.weather(JSON.parse(given)));
      tell({ type: 'conversation.item.create', item: { type: 'function_call_output', call_id, output } });
      answers += 1;
    },
    'response.done': () => {
      if (answers === 0) return;
      answers -= 1;
      tell({ type: 'response.create' });
    },
    'response.output_audio_transcript.done': ({ transcript }) => history.push(['assistant', transcript]),
    'conversation.item.input_audio_transcription.completed': ({ transcript }) => history.push(['user', transcript]),
  };
  channel.onmessage = ({ data }) => {
    const event = JSON.parse(data);
    REACTIONS[event.type]?.(event);
    conversation.event(event);
  };
});

await peer.setLocalDescription(await peer.createOffer());
const session = { type: 'realtime', instructions: 'Be brief.', tools: [{ type: 'function', ...WEATHER }] };
const form = new FormData();
form.set('sdp', peer.localDescription.sdp);
form.set('session', JSON.stringify(session));
const answer = await fetch(url, { method: 'POST', body: form });
await peer.setRemoteDescription({ type: 'answer', sdp: await answer.text() });
await opened;

let sent = 0;
await conversation.run({
  send: (frame) => {
    const payload = mouth.encode(Buffer.from(frame), frame.byteLength / 2);
    const header = new RtpHeader({ sequenceNumber: sent & 0xffff, timestamp: (sent * TICKS) >>> 0, payloadType: transceiver.codecs[0]?.payloadType });
    microphone.writeRtp(new RtpPacket(header, payload));
    sent += 1;
  },
  type: (text) => {
    tell({ type: 'conversation.item.create', item: { type: 'message', role: 'user', content: [{ type: 'input_text', text }] } });
    tell({ type: 'response.create' });
  },
  history: () => history,
});
