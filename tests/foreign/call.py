"""The streamdouble package as Twilio: one call.

Usage: call.py URL SIGNATURE TICKET ACCOUNT CALL SPEECH.wav
Prints one JSON object about what came back.
"""

import asyncio
import functools
import json
import sys

import streamdouble.session
from streamdouble import audio
from streamdouble.protocol import StreamIdentity
from streamdouble.session import Session, SessionConfig


async def call(url, ticket, account, call_sid, speech):
    config = SessionConfig(custom_parameters={"ticket": ticket}, quiet_period_s=3.0)
    identity = StreamIdentity(account_sid=account, call_sid=call_sid)
    frames = audio.wav_to_ulaw_frames(speech)
    result = await Session(url, frames, config=config, identity=identity).run()
    return {
        "audio_ms": len(result.audio_received) // 8,
        "marks": len(result.marks_received),
        "echoed": len(result.marks_echoed),
        "unknown": result.unknown_events,
        "violations": [str(violation) for violation in result.violations],
    }


url, signature, ticket, account, call_sid, speech = sys.argv[1:]
# The package sends no signature header, so it is added here.
connect = streamdouble.session.websockets.connect
streamdouble.session.websockets.connect = functools.partial(
    connect, additional_headers={"X-Twilio-Signature": signature}
)
print(json.dumps(asyncio.run(call(url, ticket, account, call_sid, speech))))
