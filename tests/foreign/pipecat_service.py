"""Pipecat's OpenAIRealtimeLLMService as a client, in a pipeline whose transport is the test.

The service does not expose the server's events, so a relay in front of it reads them.

`pipecat_service.py WS_URL FOLDER_OF_SPEECH`
"""

import asyncio
import json
import sys

import websockets
from conversation import BYTES_PER_MS, Conversation
from loguru import logger
from pipecat.frames.frames import ErrorFrame, InputAudioRawFrame, LLMMessagesAppendFrame, LLMRunFrame
from pipecat.observers.base_observer import BaseObserver
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.services.openai.realtime.llm import OpenAIRealtimeLLMService
from pipecat.transports.base_output import BaseOutputTransport
from pipecat.transports.base_transport import TransportParams
from pipecat.workers.runner import WorkerRunner

RATE = 24_000

conversation = Conversation(sys.argv[2])
logger.remove()
logger.add(
    lambda message: conversation.complaints.append(str(message)),
    level="WARNING",
    format="{name}: {message}",
)


async def get_weather(params, city: str):
    """The weather in a city.

    Args:
        city: The name of the city.
    """
    await params.result_callback(conversation.weather(city))


class Loudspeaker(BaseOutputTransport):
    """An audio sink."""

    async def start(self, frame):
        await super().start(frame)
        await self.set_transport_ready(frame)

    async def write_audio_frame(self, frame):
        await asyncio.sleep(len(frame.audio) / BYTES_PER_MS / 1000)
        return True


class Keyboard(FrameProcessor):
    """Stands directly before the service."""

    async def process_frame(self, frame, direction):
        await super().process_frame(frame, direction)
        await self.push_frame(frame, direction)

    async def type(self, text):
        messages = [{"role": "user", "content": text}]
        await self.push_frame(LLMMessagesAppendFrame(messages, run_llm=True))


class Errors(BaseObserver):
    async def on_push_frame(self, data):
        if isinstance(data.frame, ErrorFrame):
            conversation.complaints.append(f"{data.frame}")


async def relay(url, client):
    async with websockets.connect(url, additional_headers={"Authorization": "Bearer x"}) as server:

        async def forth():
            async for message in client:
                await server.send(message)

        forward = asyncio.create_task(forth())
        async for message in server:
            conversation.event(json.loads(message))
            await client.send(message)
        forward.cancel()


async def main(url):
    between = await websockets.serve(lambda client: relay(url, client), "127.0.0.1", 0)
    port = between.sockets[0].getsockname()[1]
    context = LLMContext([{"role": "user", "content": "Hello!"}], [get_weather])
    users, agents = LLMContextAggregatorPair(context)
    service = OpenAIRealtimeLLMService(api_key="sk-test", base_url=f"ws://127.0.0.1:{port}")
    keyboard = Keyboard()
    params = TransportParams(audio_out_enabled=True, audio_out_sample_rate=RATE)
    pipeline = Pipeline([users, keyboard, service, Loudspeaker(params), agents])
    worker = PipelineWorker(
        pipeline,
        params=PipelineParams(audio_in_sample_rate=RATE, audio_out_sample_rate=RATE),
        cancel_on_idle_timeout=False,
        observers=[Errors()],
        enable_rtvi=False,
    )
    started = asyncio.Event()
    worker.event_handler("on_pipeline_started")(lambda worker, frame: started.set())
    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    running = asyncio.create_task(runner.run())
    await started.wait()
    conversation.begin("greeting")
    await worker.queue_frame(LLMRunFrame())
    await conversation.until("greeting", lambda: conversation.step["responses"])

    async def send(frame):
        await worker.queue_frame(InputAudioRawFrame(audio=frame, sample_rate=RATE, num_channels=1))

    def history():
        return [
            [message["role"], message["content"]]
            for message in context.get_messages()
            if message["role"] in ("user", "assistant") and isinstance(message.get("content"), str)
        ]

    await conversation.run(send, keyboard.type, history)
    await worker.cancel()
    await running


asyncio.run(main(sys.argv[1]))
