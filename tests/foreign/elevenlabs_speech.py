"""The simulator of ElevenLabs' voices. `elevenlabs_speech.py ADDRESS KEY VOICE`: prints what ElevenLabs' SDK got."""

import asyncio
import base64
import json
import sys

from elevenlabs.client import AsyncElevenLabs
from elevenlabs.core.api_error import ApiError
from elevenlabs.types import StreamingAudioChunkWithTimestampsResponse


async def main(address, key, voice):
    url = f"http://{address}"
    request = {"text": "One two three.", "model_id": "eleven_flash_v2_5", "output_format": "pcm_24000"}
    client = AsyncElevenLabs(api_key=key, base_url=url)
    report = {"bytes": 0, "characters": "", "ends": []}
    async for chunk in client.text_to_speech.stream_with_timestamps(voice, **request):
        # The SDK itself takes anything. Its models know what ElevenLabs documents.
        StreamingAudioChunkWithTimestampsResponse.model_validate(chunk.dict(by_alias=True))
        report["bytes"] += len(base64.b64decode(chunk.audio_base_64))
        report["characters"] += "".join(chunk.alignment.characters)
        report["ends"].append(chunk.alignment.character_end_times_seconds[-1])
    report["refused"] = []
    for client, voice in [(AsyncElevenLabs(api_key="wrong", base_url=url), voice), (client, "nobody")]:
        try:
            async for _ in client.text_to_speech.stream_with_timestamps(voice, **request):
                pass
        except ApiError as error:
            report["refused"].append(error.status_code)
    print(json.dumps(report))


asyncio.run(main(*sys.argv[1:]))
