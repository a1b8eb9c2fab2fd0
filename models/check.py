"""Checks the derived models by running them, after a change to one of the conversions.

    .venv/bin/python check.py [CLIPS_DIR]

The two halves of the Piper voice, decoded in chunks, against the voice in one
piece; the sentence embeddings with products in int8 against those in f32; and
with CLIPS_DIR, Whisper against the texts of the clips in it: 16 kHz mono WAV
files, and a manifest.jsonl with `file` and `text` on each line.
"""

import json
import os
import re
import statistics
import sys
import time
import wave
from pathlib import Path

import numpy as np
import onnxruntime as ort

from ct2_to_ggml import FFT_SIZE, SAMPLE_RATE, byte_of_character, mel_filter_bank
from minilm_int8 import SENTENCES, words_at_random
from piper_split import LATENT

WEIGHTS = Path(os.environ.get("UNDERTONE_MODELS") or Path(__file__).resolve().parent / "weights")

HOP = 160
SAMPLES_PER_FRAME = 320  # of the encoder
SHORTEST_CONTEXT = 512  # frames; with fewer, tiny.en repeats itself
END, START, NO_TIMESTAMPS = 50256, 50257, 50362
LAYERS, HEADS, HEAD_WIDTH = 4, 6, 64

PIPER_HOP, CHUNK, MARGIN = 256, 44, 12  # samples per latent frame; latent frames


def session(path):
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return ort.InferenceSession(WEIGHTS / path, options)


def check_piper():
    voice, encoder, decoder = map(
        session, ("sources/piper-joe/voice.onnx", "piper-joe/encoder.onnx", "piper-joe/decoder.onnx")
    )
    ids = phoneme_ids("ðə wˈɛðɚ ɪn bˈoʊldɚ ɪz sˈʌni, wɪð ɐ hˈaɪ ʌv sˈɛvənti.")
    # No noise: the two runs must be the same speech.
    inputs = {"input": ids, "input_lengths": np.array([ids.size]), "scales": np.array([0, 1, 0], np.float32)}
    whole = voice.run(None, inputs)[0].ravel()
    latent = encoder.run(None, inputs)[0]
    chunks = np.concatenate(list(decode_in_chunks(decoder, latent)))
    noise = np.sum((whole - chunks) ** 2)
    snr = 10 * np.log10(np.sum(whole**2) / noise) if noise else float("inf")
    print(f"piper: {whole.size} samples, chunks against whole {snr:.0f} dB")
    return snr > 80


def phoneme_ids(phonemes):
    table = json.loads((WEIGHTS / "piper-joe/voice.json").read_text())["phoneme_id_map"]
    ids = [*table["^"], *table["_"]]
    for phoneme in phonemes:
        ids += [*table[phoneme], *table["_"]]
    return np.array([ids + table["$"]])


def decode_in_chunks(decoder, latent):
    frames = latent.shape[2]
    for start in range(0, frames, CHUNK):
        end = min(frames, start + CHUNK)
        first, last = max(0, start - MARGIN), min(frames, end + MARGIN)
        samples = decoder.run(None, {LATENT: latent[:, :, first:last]})[0].ravel()
        yield samples[(start - first) * PIPER_HOP : (end - first) * PIPER_HOP]


def check_minilm():
    vectors, times = [], []
    for embedder in map(session, ("sources/minilm/model.onnx", "minilm/model.onnx")):
        # Other words than the rewrite has seen.
        random = np.random.default_rng(1)
        inputs = [words_at_random(random) for _ in range(SENTENCES)]
        started = time.perf_counter()
        means = [embedder.run(None, each)[0][0].mean(axis=0) for each in inputs]
        times.append((time.perf_counter() - started) / SENTENCES)
        vectors.append([mean / np.linalg.norm(mean) for mean in means])
    cosines = np.sum(np.multiply(*vectors), axis=1)
    print(f"minilm: cosine of int8 and f32 {cosines.mean():.4f}, at least {cosines.min():.4f}; "
          f"{1000 * times[1]:.1f} ms a sentence, {times[0] / times[1]:.1f} times as fast")
    return cosines.min() > 0.99


class Whisper:
    def __init__(self, encoder):
        self.encoder, self.decoder = session(f"whisper-tiny.en/{encoder}"), session("whisper-tiny.en/decoder.int8.onnx")
        config = json.loads((WEIGHTS / "whisper-tiny.en/config.json").read_text())
        self.never, self.not_first = config["suppress_ids"], config["suppress_ids_begin"]
        vocabulary = json.loads((WEIGHTS / "whisper-tiny.en/tokenizer.json").read_text())["model"]["vocab"]
        byte_of = byte_of_character()
        self.bytes_of = {
            token: bytes(byte_of[character] for character in text) for text, token in vocabulary.items() if token < END
        }

    def transcribe(self, audio):
        frames = min(1500, max(SHORTEST_CONTEXT, audio.size // SAMPLES_PER_FRAME + 64))
        cross = self.run(self.encoder, {"mel": log_mel(audio, frames * SAMPLES_PER_FRAME)})
        past = {}
        for layer in range(LAYERS):
            past[f"pk{layer}"] = np.zeros((1, HEADS, HEAD_WIDTH, 0), np.float32)
            past[f"pv{layer}"] = np.zeros((1, HEADS, 0, HEAD_WIDTH), np.float32)
        tokens, longest = [START, NO_TIMESTAMPS], audio.size * 6 // SAMPLE_RATE + 16
        for position in range(longest):
            step = {"id": np.array([[tokens[position]]]), "pos": np.array([[position]])}
            result = self.run(self.decoder, {**step, **past, **cross})
            past = {"p" + name[1:]: value for name, value in result.items() if name != "logits"}
            if position + 1 == len(tokens):
                token = self.choose(result["logits"].ravel(), first=len(tokens) == 2)
                if token == END:
                    break
                tokens.append(token)
        return b"".join(self.bytes_of[token] for token in tokens[2:]).decode(errors="replace").strip()

    def choose(self, logits, first):
        logits[self.never] = -np.inf
        logits[START:] = -np.inf
        if first:
            logits[self.not_first] = -np.inf
        return int(logits.argmax())

    @staticmethod
    def run(graph, inputs):
        return dict(zip((output.name for output in graph.get_outputs()), graph.run(None, inputs)))


def log_mel(audio, samples):
    padded = np.pad(np.pad(audio, (0, max(0, samples - audio.size)))[:samples], FFT_SIZE // 2, mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, FFT_SIZE)[::HOP][:-1]
    hann = np.hanning(FFT_SIZE + 1)[:-1]
    power = np.abs(np.fft.rfft(windows * hann)) ** 2
    mel = np.log10(np.maximum(mel_filter_bank(80) @ power.T, 1e-10))
    return ((np.maximum(mel, mel.max() - 8) + 4) / 4).astype(np.float32)[None]


def read_wav(path):
    with wave.open(str(path)) as file:
        if (file.getframerate(), file.getnchannels(), file.getsampwidth()) != (SAMPLE_RATE, 1, 2):
            raise ValueError(f"{path}: expected 16 kHz, mono, 16 bits")
        return np.frombuffer(file.readframes(file.getnframes()), np.int16).astype(np.float32) / 32768


def words(text):
    return re.sub(r"[^a-z0-9' ]", " ", text.lower()).split()


def word_errors(expected, heard):
    row = list(range(len(heard) + 1))
    for index, word in enumerate(expected, 1):
        diagonal, row[0] = row[0], index
        for column, other in enumerate(heard, 1):
            best = min(row[column] + 1, row[column - 1] + 1, diagonal + (word != other))
            diagonal, row[column] = row[column], best
    return row[-1]


def check_whisper(clips, encoder, highest_wer):
    whisper = Whisper(encoder)
    errors, total, times = 0, 0, []
    for line in (clips / "manifest.jsonl").read_text().splitlines():
        clip = json.loads(line)
        audio = read_wav(clips / clip["file"])
        started = time.perf_counter()
        heard = whisper.transcribe(audio)
        times.append(time.perf_counter() - started)
        expected = words(clip["text"])
        wrong = word_errors(expected, words(heard))
        errors, total = errors + wrong, total + len(expected)
        if wrong:
            print(f"  {clip['file']}: {wrong} of {len(expected)}\n    {clip['text']}\n    {heard}")
    print(f"whisper, {encoder}: {len(times)} clips, {errors} of {total} words wrong, "
          f"{100 * errors / total:.1f} %; median {1000 * statistics.median(times):.0f} ms a clip")
    return errors / total < highest_wer


def main():
    good = [check_piper(), check_minilm()]
    if len(sys.argv) > 1:
        # Without a normaliser, "fourteen" for "14" counts as an error.
        for encoder in ("encoder.int8.onnx", "encoder.f32.onnx"):
            good.append(check_whisper(Path(sys.argv[1]), encoder, highest_wer=0.12))
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
