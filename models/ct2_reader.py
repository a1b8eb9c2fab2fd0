"""Reads the weights of a CTranslate2 model (`model.bin`).

The file is little-endian and has no padding:

    u32     format version
    string  name of the specification, "WhisperSpec" here
    u32     revision of the specification
    u32     number of variables, then for each:
              string name
              u8     rank, then that many u32 dimensions
              u8     element type, see ELEMENT_TYPES
              u32    size in bytes, then the elements, row-major
    u32     number of aliases, then for each: string alias, string name

A string is a u16 length, which counts a trailing NUL, and the bytes.
"""

import struct
from pathlib import Path

import numpy as np

OLDEST_VERSION = 4
ELEMENT_TYPES = {0: np.float32, 1: np.int8, 2: np.int16, 3: np.int32, 4: np.float16}


class _Cursor:
    def __init__(self, data):
        self.data = data
        self.offset = 0

    def number(self, code):
        (value,) = struct.unpack_from("<" + code, self.data, self.offset)
        self.offset += struct.calcsize("<" + code)
        return value

    def take(self, size):
        piece = self.data[self.offset : self.offset + size]
        if len(piece) != size:
            raise ValueError("the model file ends early")
        self.offset += size
        return piece

    def string(self):
        return self.take(self.number("H")).rstrip(b"\0").decode()

    def tensor(self):
        shape = [self.number("I") for _ in range(self.number("B"))]
        element_type = self.number("B")
        if element_type not in ELEMENT_TYPES:
            raise ValueError(f"element type {element_type} is not supported")
        elements = self.take(self.number("I"))
        return np.frombuffer(elements, ELEMENT_TYPES[element_type]).reshape(shape)


class WhisperWeights:
    """The tensors of a Whisper model by name, and the sizes that follow from them."""

    def __init__(self, tensors):
        self.tensors = tensors
        self.vocabulary, self.width = self["decoder/embeddings/weight"].shape
        self.encoder_heads = int(self["encoder/num_heads"])
        self.decoder_heads = int(self["decoder/num_heads"])
        self.mel_bands = self["encoder/conv1/weight"].shape[1]
        self.audio_context = self["encoder/position_encodings/encodings"].shape[0]
        self.text_context = self["decoder/position_encodings/encodings"].shape[0]
        self.encoder_layers = self._count_layers("encoder")
        self.decoder_layers = self._count_layers("decoder")

    def __getitem__(self, name):
        return self.tensors[name]

    def _count_layers(self, half):
        layers = {name.split("/")[1] for name in self.tensors if name.startswith(f"{half}/layer_")}
        return len(layers - {"layer_norm"})

    @classmethod
    def read(cls, path):
        """Reads `model.bin`; raises ValueError when it is not an unquantised Whisper model."""
        cursor = _Cursor(Path(path).read_bytes())
        version, specification, _revision = cursor.number("I"), cursor.string(), cursor.number("I")
        if version < OLDEST_VERSION or specification != "WhisperSpec":
            raise ValueError(f"{path}: {specification} version {version}, expected a WhisperSpec of version 4 or later")
        tensors = {cursor.string(): cursor.tensor() for _ in range(cursor.number("I"))}
        for _ in range(cursor.number("I")):
            alias = cursor.string()
            tensors[alias] = tensors[cursor.string()]
        if cursor.offset != len(cursor.data):
            raise ValueError(f"{path}: bytes are left after the last variable")
        if any(tensor.dtype == np.int8 and tensor.ndim for tensor in tensors.values()):
            raise ValueError(f"{path}: int8 weights cannot be converted, use a float16 or float32 model")
        return cls(tensors)
