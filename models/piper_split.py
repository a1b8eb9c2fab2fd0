"""Cuts a Piper voice in two, so that speech can be played while the rest is still being decoded.

    python piper_split.py SOURCE_DIR OUTPUT_DIR

reads `voice.onnx` from SOURCE_DIR and writes to OUTPUT_DIR, which it makes if it is missing,

encoder.onnx
    input i64[1,N] phoneme ids, input_lengths i64[1], scales f32[3]  ->  latent [1,192,T]
decoder.onnx
    latent [1,192,T]  ->  output f32[1,1,256 T] samples

The decoder is convolutional: a chunk of latent frames with 12 more on each
side decodes to the very samples of the whole. The tensor between the two
keeps the name it has in the voice, see LATENT.
"""

import sys
from pathlib import Path

from onnx.utils import extract_model

LATENT = "/Mul_7_output_0"  # the only tensor that enters the vocoder of this voice


def main(source_dir, output_dir):
    output_dir.mkdir(parents=True, exist_ok=True)
    voice = source_dir / "voice.onnx"
    extract_model(voice, output_dir / "encoder.onnx", ["input", "input_lengths", "scales"], [LATENT])
    extract_model(voice, output_dir / "decoder.onnx", [LATENT], ["output"])


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
