"""Converts Whisper from CTranslate2 to the ggml file that whisper.cpp loads.

    python ct2_to_ggml.py SOURCE_DIR OUTPUT_DIR

reads `model.bin` and `vocabulary.txt` from SOURCE_DIR and writes
`ggml-tiny.en.bin`: a header of i32, the mel filter bank, the vocabulary, then
the tensors. No tensor is transposed; ggml lists dimensions innermost first.
"""

import struct
import sys
from pathlib import Path

import numpy as np

from ct2_reader import WhisperWeights

OUTPUT = "ggml-tiny.en.bin"
MAGIC = 0x67676D6C  # "ggml"
F32, F16 = 0, 1
SAMPLE_RATE = 16_000
FFT_SIZE = 400


def mel_filter_bank(bands, sample_rate=SAMPLE_RATE, fft_size=FFT_SIZE):
    """Slaney's mel filters, each of unit area: f32[bands, fft_size / 2 + 1].

    The scale is linear up to 1 kHz (15 mels) and logarithmic above, 27 mels for each factor of 6.4.
    """
    knee_hz, knee_mel, log_step = 1000.0, 15.0, np.log(6.4) / 27.0
    top_mel = knee_mel + np.log(sample_rate / 2 / knee_hz) / log_step
    mels = np.linspace(0.0, top_mel, bands + 2)
    edges = np.where(mels < knee_mel, mels * knee_hz / knee_mel, knee_hz * np.exp(log_step * (mels - knee_mel)))
    bins = np.linspace(0.0, sample_rate / 2, fft_size // 2 + 1)
    low, centre, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    rising, falling = (bins - low) / (centre - low), (high - bins) / (high - centre)
    triangles = np.maximum(0.0, np.minimum(rising, falling))
    return (triangles * 2.0 / (high - low)).astype(np.float32)


def byte_of_character():
    """GPT-2 writes every byte as a printable character; this maps the characters back."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable}
    table.update({chr(256 + index): byte for index, byte in enumerate(others)})
    return table


def read_vocabulary(path):
    """The text tokens as bytes; whisper.cpp adds the special ones itself."""
    tokens = path.read_text(encoding="utf-8").split("\n")
    byte_of = byte_of_character()
    return [bytes(byte_of[character] for character in token) for token in tokens[: tokens.index("<|endoftext|>")]]


def named_tensors(weights):
    """Yields every tensor under the name ggml knows it by."""
    yield "encoder.positional_embedding", weights["encoder/position_encodings/encodings"]
    for convolution in ("conv1", "conv2"):
        yield f"encoder.{convolution}.weight", weights[f"encoder/{convolution}/weight"]
        yield f"encoder.{convolution}.bias", weights[f"encoder/{convolution}/bias"].reshape(-1, 1)
    for layer in range(weights.encoder_layers):
        yield from block(weights, f"encoder.blocks.{layer}", f"encoder/layer_{layer}")
    yield from layer_norm(weights, "encoder.ln_post", "encoder/layer_norm")
    yield "decoder.positional_embedding", weights["decoder/position_encodings/encodings"]
    yield "decoder.token_embedding.weight", weights["decoder/embeddings/weight"]
    for layer in range(weights.decoder_layers):
        yield from block(weights, f"decoder.blocks.{layer}", f"decoder/layer_{layer}")
        yield from cross_attention(weights, f"decoder.blocks.{layer}", f"decoder/layer_{layer}/attention")
    yield from layer_norm(weights, "decoder.ln", "decoder/layer_norm")


def layer_norm(weights, target, source):
    yield f"{target}.weight", weights[f"{source}/gamma"]
    yield f"{target}.bias", weights[f"{source}/beta"]


def linear(weights, target, source):
    yield f"{target}.weight", weights[f"{source}/weight"]
    yield f"{target}.bias", weights[f"{source}/bias"]


def fused(weights, target, source, parts):
    """Splits a fused projection into its parts; a key has no bias in Whisper."""
    rows = np.split(weights[f"{source}/weight"], len(parts))
    biases = np.split(weights[f"{source}/bias"], len(parts))
    for part, row, bias in zip(parts, rows, biases):
        yield f"{target}.{part}.weight", row
        if part != "key":
            yield f"{target}.{part}.bias", bias
        elif bias.any():
            raise ValueError(f"{source}: a key with a bias cannot be written as ggml")


def block(weights, target, source):
    attention = f"{source}/self_attention"
    yield from layer_norm(weights, f"{target}.attn_ln", f"{attention}/layer_norm")
    yield from fused(weights, f"{target}.attn", f"{attention}/linear_0", ("query", "key", "value"))
    yield from linear(weights, f"{target}.attn.out", f"{attention}/linear_1")
    yield from layer_norm(weights, f"{target}.mlp_ln", f"{source}/ffn/layer_norm")
    yield from linear(weights, f"{target}.mlp.0", f"{source}/ffn/linear_0")
    yield from linear(weights, f"{target}.mlp.2", f"{source}/ffn/linear_1")


def cross_attention(weights, target, source):
    yield from layer_norm(weights, f"{target}.cross_attn_ln", f"{source}/layer_norm")
    yield from linear(weights, f"{target}.cross_attn.query", f"{source}/linear_0")
    yield from fused(weights, f"{target}.cross_attn", f"{source}/linear_1", ("key", "value"))
    yield from linear(weights, f"{target}.cross_attn.out", f"{source}/linear_2")


def stays_f32(name, tensor):
    """whisper.cpp wants f32 for everything that is added, f16 for everything that is multiplied."""
    return tensor.ndim == 1 or name.endswith((".bias", "positional_embedding"))


def integers(*values):
    return struct.pack(f"<{len(values)}i", *values)


def header(weights):
    return integers(
        MAGIC,
        weights.vocabulary,
        weights.audio_context,
        weights.width,
        weights.encoder_heads,
        weights.encoder_layers,
        weights.text_context,
        weights.width,
        weights.decoder_heads,
        weights.decoder_layers,
        weights.mel_bands,
        F16,
    )


def tensor_record(name, tensor):
    kind, element = (F32, np.float32) if stays_f32(name, tensor) else (F16, np.float16)
    encoded = name.encode()
    head = integers(tensor.ndim, len(encoded), kind, *reversed(tensor.shape))
    return head + encoded + np.ascontiguousarray(tensor, element).tobytes()


def main(source_dir, output_dir):
    weights = WhisperWeights.read(source_dir / "model.bin")
    vocabulary = read_vocabulary(source_dir / "vocabulary.txt")
    filters = mel_filter_bank(weights.mel_bands)
    with open(output_dir / OUTPUT, "wb") as file:
        file.write(header(weights))
        file.write(integers(*filters.shape) + filters.tobytes())
        file.write(integers(len(vocabulary)))
        for token in vocabulary:
            file.write(integers(len(token)) + token)
        for name, tensor in named_tensors(weights):
            file.write(tensor_record(name, tensor))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
