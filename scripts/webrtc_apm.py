#!/usr/bin/env python3
"""WebRTC's own echo canceller (AEC3, C++), for comparison with the one in `undertone talk`.

It is not part of undertone. LiveKit's Python client includes WebRTC's audio processing module:

    python3 -m venv /tmp/apm && /tmp/apm/bin/pip install livekit==1.2.1
    PYTHON=/tmp/apm/bin/python cargo test --features desktop --test desktop -- \\
        --ignored --nocapture webrtcs_own

Standard input: 16-bit samples at 16 kHz, in turns one that the loudspeaker plays and one that the microphone
hears. Standard output: what is left of the latter.
"""

import sys

import numpy as np
from livekit.rtc import AudioFrame, AudioProcessingModule

RATE = 16_000
FRAME = RATE // 100  # the module takes 10 ms at once


def frame(samples: np.ndarray) -> AudioFrame:
    return AudioFrame(samples.tobytes(), RATE, 1, FRAME)


def main() -> None:
    # With the high-pass filter, as in `undertone talk`.
    module = AudioProcessingModule(echo_cancellation=True, high_pass_filter=True)
    samples = np.frombuffer(sys.stdin.buffer.read(), dtype="<i2")
    whole = len(samples) // (2 * FRAME)
    for played, heard in samples[: whole * 2 * FRAME].reshape(whole, FRAME, 2).transpose(0, 2, 1):
        module.process_reverse_stream(frame(played))
        left = frame(heard)
        # The canceller has to find the delay itself, like ours.
        module.set_stream_delay_ms(0)
        module.process_stream(left)
        sys.stdout.buffer.write(bytes(left.data))


if __name__ == "__main__":
    main()
