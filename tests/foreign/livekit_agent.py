"""LiveKit's agents with their OpenAI plugin as a client: an agent without a room, whose microphone and
loudspeaker are the test's, and which brings a conversation along that was held before.

`livekit_agent.py HTTP_URL FOLDER_OF_SPEECH`
"""

import asyncio
import json
import sys
import time

from conversation import FRAME, Conversation
from livekit import rtc
from livekit.agents import Agent, AgentSession, function_tool
from livekit.agents.llm import ChatContext, FunctionCall, FunctionCallOutput
from livekit.agents.voice import io
from livekit.plugins.openai.realtime import RealtimeModel

RATE = 24_000

conversation = Conversation(sys.argv[2])
# It cancels responses that the server has already cancelled.
conversation.forgiven.add("response_cancel_not_active")


class Microphone(io.AudioInput):
    def __init__(self):
        super().__init__(label="microphone")
        self.frames = asyncio.Queue()

    async def send(self, frame):
        samples = FRAME // 2
        await self.frames.put(rtc.AudioFrame(frame, RATE, 1, samples))

    async def __anext__(self):
        return await self.frames.get()


class Loudspeaker(io.AudioOutput):
    """An audio sink that reports how much it has played."""

    def __init__(self):
        capabilities = io.AudioOutputCapabilities(pause=False)
        super().__init__(label="loudspeaker", capabilities=capabilities, sample_rate=RATE)
        self.length, self.began, self.ending = 0.0, None, None

    async def capture_frame(self, frame):
        await super().capture_frame(frame)
        if self.began is None:
            self.began = time.time()
            self.on_playback_started(created_at=self.began)
        self.length += frame.duration

    def flush(self):
        super().flush()
        if self.began is not None and self.ending is None:
            left = self.began + self.length - time.time()
            self.ending = asyncio.get_running_loop().call_later(max(left, 0), self.end, False)

    def clear_buffer(self):
        if self.began is not None:
            self.end(True)

    def end(self, interrupted):
        if self.ending is not None:
            self.ending.cancel()
        played = min(time.time() - self.began, self.length) if interrupted else self.length
        self.length, self.began, self.ending = 0.0, None, None
        super().flush()
        self.on_playback_finished(playback_position=played, interrupted=interrupted)


class Foreign(Agent):
    @function_tool
    async def get_weather(self, city: str) -> str:
        """The weather in a city."""
        return json.dumps(conversation.weather(city))


def held_before():
    arguments = json.dumps({"city": "Rome"})
    call = FunctionCall(call_id="call_before", name="get_weather", arguments=arguments)
    result = FunctionCallOutput(
        call_id="call_before", name="get_weather", output='{"degrees": 30}', is_error=False
    )
    held = ChatContext.empty()
    held.add_message(role="user", content="What's the weather in Rome?")
    held.items += [call, result]
    held.add_message(role="assistant", content="It is 30 degrees in Rome.")
    return held


async def main(url):
    agent = Foreign(instructions="Be brief.", chat_ctx=held_before())
    model = RealtimeModel(base_url=url, api_key="sk-test", model="undertone")
    # The loudspeaker cannot pause.
    handling = {"interruption": {"resume_false_interruption": False}}
    session = AgentSession(llm=model, turn_handling=handling)
    microphone = Microphone()
    session.input.audio, session.output.audio = microphone, Loudspeaker()
    session.on("error", lambda event: conversation.complaints.append(f"error: {event.error}"))
    await session.start(agent, record=False)
    connection = agent.realtime_llm_session
    connection.on("openai_server_event_received", conversation.event)

    async def type_text(text):
        session.generate_reply(user_input=text)

    def history():
        return [
            [item.role, item.text_content] for item in session.history.items if item.type == "message"
        ]

    await conversation.run(microphone.send, type_text, history)
    await session.aclose()


asyncio.run(main(sys.argv[1]))
