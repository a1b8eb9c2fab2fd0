#!/usr/bin/env python3
"""WebRTC's own echo canceller (AEC3, C++), to compare the one of `undertone talk` with.

It is no part of undertone. LiveKit's client for Python brings WebRTC's audio processing module along:

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
    # The high-pass filter, since the canceller of `undertone talk` has one in front, too.
    module = AudioProcessingModule(echo_cancellation=True, high_pass_filter=True)
    samples = np.frombuffer(sys.stdin.buffer.read(), dtype="<i2")
    whole = len(samples) // (2 * FRAME)
    for played, heard in samples[: whole * 2 * FRAME].reshape(whole, FRAME, 2).transpose(0, 2, 1):
        module.process_reverse_stream(frame(played))
        left = frame(heard)
        # The delay is for the canceller to find, as it is for ours.
        module.set_stream_delay_ms(0)
        module.process_stream(left)
        sys.stdout.buffer.write(bytes(left.data))


if __name__ == "__main__":
    main()
