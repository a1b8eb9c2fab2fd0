"""aiortc as a client over WebRTC. `aiortc_call.py HTTP_URL FOLDER_OF_SPEECH`"""

import asyncio
import fractions
import json
import logging
import sys
import urllib.request

import av
from aiortc import MediaStreamTrack, RTCPeerConnection, RTCSessionDescription
from conversation import FRAME, FRAME_MS, WEATHER, Conversation

RATE = 24_000
# A sample this far from zero is heard.
LOUD = 300


class Microphone(MediaStreamTrack):
    """The audio that the conversation sends, as a track."""

    kind = "audio"

    def __init__(self):
        super().__init__()
        self.frames = asyncio.Queue()
        self.sent = 0

    async def recv(self):
        data = await self.frames.get()
        frame = av.AudioFrame(format="s16", layout="mono", samples=FRAME // 2)
        frame.planes[0].update(data)
        frame.sample_rate = RATE
        frame.pts = self.sent
        frame.time_base = fractions.Fraction(1, RATE)
        self.sent += FRAME // 2
        return frame


async def listen(track, conversation):
    """Counts the audio in which the agent is heard."""
    while True:
        frame = await track.recv()
        samples = memoryview(bytes(frame.planes[0])).cast("h")
        if max(samples, default=0) > LOUD:
            conversation.speaks(FRAME_MS)


def post(url, offer):
    """Posts an offer as the openai package for Python does: SDP and session as JSON."""
    session = {"type": "realtime", "instructions": "Be brief.", "tools": [WEATHER]}
    body = json.dumps({"sdp": offer, "session": session}).encode()
    headers = {"Content-Type": "application/json", "Accept": "application/sdp"}
    with urllib.request.urlopen(urllib.request.Request(url, body, headers)) as answer:
        return answer.read().decode()


async def main(url, folder):
    conversation, history = Conversation(folder), []
    # It complains about its own end.
    logging.getLogger("aioice").setLevel(logging.ERROR)
    peer, microphone, opened = RTCPeerConnection(), Microphone(), asyncio.Event()
    peer.addTrack(microphone)
    # As agents that also watch do.
    peer.addTransceiver("video")
    channel = peer.createDataChannel("oai-events")
    answers = 0

    def send_event(event):
        channel.send(json.dumps(event))

    @peer.on("track")
    def on_track(track):
        conversation.listening = asyncio.ensure_future(listen(track, conversation))

    @channel.on("message")
    def on_message(message):
        nonlocal answers
        event = json.loads(message)
        kind = event["type"]
        if kind == "session.created":
            opened.set()
        elif kind == "response.output_audio.delta":
            conversation.complaints.append(kind)
        elif kind == "response.function_call_arguments.done":
            output = conversation.weather(**json.loads(event["arguments"]))
            item = {"type": "function_call_output", "call_id": event["call_id"], "output": json.dumps(output)}
            send_event({"type": "conversation.item.create", "item": item})
            answers += 1
        elif kind == "response.done" and answers:
            answers -= 1
            send_event({"type": "response.create"})
        elif kind == "response.output_audio_transcript.done":
            history.append(["assistant", event["transcript"]])
        elif kind == "conversation.item.input_audio_transcription.completed":
            history.append(["user", event["transcript"]])
        conversation.event(event)

    await peer.setLocalDescription(await peer.createOffer())
    answer = await asyncio.to_thread(post, url, peer.localDescription.sdp)
    await peer.setRemoteDescription(RTCSessionDescription(answer, "answer"))
    await asyncio.wait_for(opened.wait(), 60)

    async def send(frame):
        microphone.frames.put_nowait(frame)

    async def type_text(text):
        content = [{"type": "input_text", "text": text}]
        send_event({"type": "conversation.item.create", "item": {"type": "message", "role": "user", "content": content}})
        send_event({"type": "response.create"})

    await conversation.run(send, type_text, lambda: history)
    conversation.listening.cancel()
    await peer.close()


asyncio.run(main(*sys.argv[1:]))
