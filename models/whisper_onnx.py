"""Builds ONNX graphs of Whisper from CTranslate2 weights.

    python whisper_onnx.py SOURCE_DIR OUTPUT_DIR

reads `model.bin` from SOURCE_DIR and writes, with H heads of D elements,
T encoder frames (20 ms each) and P tokens decoded so far:

encoder.f32.onnx and encoder.int8.onnx
    mel f32[1,80,2T], sk{i} f32[1,H,D,S], sv{i} f32[1,H,S,D], xk{i} f32[1,H,D,S], xv{i} f32[1,H,S,D]
        ->  ck{i} f32[1,H,D,max(T,S)], cv{i} f32[1,H,max(T,S),D], ek{i} f32[1,H,D,T], ev{i} f32[1,H,T,D]
    ck and cv are the keys and values that each decoder layer i attends to: all
    the decoder ever needs from the audio, computed once. ek and ev are those
    of the encoder's own layers. If S > T, the encoder takes the frames from T on
    from an earlier run, whose ek, ev, ck and cv are sk, sv, xk and xv: silence
    behind speech is computed once for all. Start with S = 0.

decoder.int8.onnx, N tokens per run
    id i64[1,N], pos i64[1,N], pk{i} f32[1,H,D,P], pv{i} f32[1,H,P,D], ck{i}, cv{i}
        ->  logits f32[1,N,vocabulary], nk{i} f32[1,H,D,P+N], nv{i} f32[1,H,P+N,D]
    Feed nk and nv back as pk and pv; start with P = 0. No token sees those after it.

Keys are kept transposed, so that no step has to transpose them again.
"""

import logging
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

from ct2_reader import WhisperWeights

OPSET = 20  # the first with Gelu
IR_VERSION = 9
KEYS = [0, 2, 3, 1]  # [1,T,H,D] -> [1,H,D,T]
VALUES = [0, 2, 1, 3]  # [1,T,H,D] -> [1,H,T,D]; also undoes itself


def float_tensor(name, *shape):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def index_tensor(name):
    return helper.make_tensor_value_info(name, TensorProto.INT64, [1, "N"])


class Graph:
    """A graph under construction. Methods add nodes and return the name of their result."""

    def __init__(self, weights, heads):
        self.weights = weights
        self.width = weights.width
        self.head_width = weights.width // heads
        self.nodes = []
        self.constants = []
        self.per_head = self.constant(np.array([1, -1, heads, self.head_width]))
        self.merged = self.constant(np.array([1, -1, self.width]))

    def weight(self, name):
        return self.weights[name].astype(np.float32)

    def constant(self, array):
        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def op(self, kind, *inputs, name=None, **attributes):
        name = name or f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=f"node_{name}", **attributes))
        return name

    def affine(self, x, weight, bias=None):
        product = self.op("MatMul", x, self.constant(weight.T))
        return product if bias is None else self.op("Add", product, self.constant(bias))

    def linear(self, x, prefix):
        return self.affine(x, self.weight(f"{prefix}/weight"), self.weight(f"{prefix}/bias"))

    def layer_norm(self, x, prefix):
        gamma, beta = (self.constant(self.weight(f"{prefix}/{part}")) for part in ("gamma", "beta"))
        return self.op("LayerNormalization", x, gamma, beta, axis=-1, epsilon=1e-5)

    def split_heads(self, x, order, name=None):
        return self.op("Transpose", self.op("Reshape", x, self.per_head), perm=order, name=name)

    def attend(self, query, keys, values, mask=None):
        scores = self.op("MatMul", query, keys)
        scores = scores if mask is None else self.op("Add", scores, mask)
        shares = self.op("Softmax", scores, axis=-1)
        mixed = self.op("Transpose", self.op("MatMul", shares, values), perm=VALUES)
        return self.op("Reshape", mixed, self.merged)

    def query(self, x, weight, bias):
        """The query, already divided by the square root of the head's width."""
        scale = np.float32(self.head_width**-0.5)
        return self.split_heads(self.affine(x, weight * scale, bias * scale), VALUES)

    def with_silence(self, own, silence, axis, frames, name=None):
        """`own`, and behind it the frames of `silence` from its end on."""
        end, along = (self.constant(np.array([n])) for n in (np.iinfo(np.int64).max, axis))
        behind = self.op("Slice", silence, frames, end, along)
        return self.op("Concat", own, behind, axis=axis, name=name)

    def self_attention(self, x, prefix, cache=None, mask=None, silence=None):
        """Adds self-attention to `x`; with `cache` = i, keys and values join those of layer i's past. `silence` is the
        number of the layer, and the frames of `x`, in an encoder."""
        normed = self.layer_norm(x, f"{prefix}/layer_norm")
        # The rows of linear_0 are query, key and value; Whisper's keys have no bias.
        query_w, key_w, value_w = np.split(self.weight(f"{prefix}/linear_0/weight"), 3)
        query_b, _, value_b = np.split(self.weight(f"{prefix}/linear_0/bias"), 3)
        query = self.query(normed, query_w, query_b)
        keys = self.split_heads(self.affine(normed, key_w), KEYS)
        values = self.split_heads(self.affine(normed, value_w, value_b), VALUES)
        if cache is not None:
            keys = self.op("Concat", f"pk{cache}", keys, axis=3, name=f"nk{cache}")
            values = self.op("Concat", f"pv{cache}", values, axis=2, name=f"nv{cache}")
        if silence is not None:
            layer, frames = silence
            keys = self.op("Identity", keys, name=f"ek{layer}")
            values = self.op("Identity", values, name=f"ev{layer}")
            keys = self.with_silence(keys, f"sk{layer}", 3, frames)
            values = self.with_silence(values, f"sv{layer}", 2, frames)
        return self.op("Add", x, self.linear(self.attend(query, keys, values, mask), f"{prefix}/linear_1"))

    def cross_attention(self, x, prefix, layer):
        normed = self.layer_norm(x, f"{prefix}/layer_norm")
        query = self.query(normed, self.weight(f"{prefix}/linear_0/weight"), self.weight(f"{prefix}/linear_0/bias"))
        attended = self.attend(query, f"ck{layer}", f"cv{layer}")
        return self.op("Add", x, self.linear(attended, f"{prefix}/linear_2"))

    def feed_forward(self, x, prefix):
        hidden = self.linear(self.layer_norm(x, f"{prefix}/layer_norm"), f"{prefix}/linear_0")
        return self.op("Add", x, self.linear(self.op("Gelu", hidden), f"{prefix}/linear_1"))

    def model(self, name, inputs, outputs):
        graph = helper.make_graph(self.nodes, name, inputs, outputs, self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="undertone")
        model.ir_version = IR_VERSION
        onnx.checker.check_model(model)
        return model


def keys_and_values(graph, prefix, layers, heads, length):
    """Declares {prefix}k{i} and {prefix}v{i} for each layer i."""
    for layer in range(layers):
        yield float_tensor(f"{prefix}k{layer}", 1, heads, graph.head_width, length)
        yield float_tensor(f"{prefix}v{layer}", 1, heads, length, graph.head_width)


def in_decoder(graph, weights, prefix, length):
    return keys_and_values(graph, prefix, weights.decoder_layers, weights.decoder_heads, length)


def in_encoder(graph, weights, prefix, length):
    return keys_and_values(graph, prefix, weights.encoder_layers, weights.encoder_heads, length)


def convolve(graph, x, prefix, stride):
    kernel, bias = (graph.constant(graph.weight(f"{prefix}/{part}")) for part in ("weight", "bias"))
    return graph.op("Gelu", graph.op("Conv", x, kernel, bias, kernel_shape=[3], pads=[1, 1], strides=[stride]))


def frames_of(graph, x):
    """How many frames `x` [1,T,width] has: i64[1]."""
    one, two = (graph.constant(np.array([n])) for n in (1, 2))
    return graph.op("Slice", graph.op("Shape", x), one, two)


def add_positions(graph, x, frames):
    """Adds as many of the encoder's position encodings as `x` [1,T,width] has frames."""
    positions = graph.constant(graph.weight("encoder/position_encodings/encodings")[None])
    zero, one = (graph.constant(np.array([n])) for n in (0, 1))
    return graph.op("Add", x, graph.op("Slice", positions, zero, frames, one))


def build_encoder(weights):
    graph = Graph(weights, weights.encoder_heads)
    x = convolve(graph, "mel", "encoder/conv1", stride=1)
    x = convolve(graph, x, "encoder/conv2", stride=2)
    x = graph.op("Transpose", x, perm=[0, 2, 1])
    frames = frames_of(graph, x)
    x = add_positions(graph, x, frames)
    for layer in range(weights.encoder_layers):
        x = graph.self_attention(x, f"encoder/layer_{layer}/self_attention", silence=(layer, frames))
        x = graph.feed_forward(x, f"encoder/layer_{layer}/ffn")
    x = graph.layer_norm(x, "encoder/layer_norm")
    for layer in range(weights.decoder_layers):
        prefix = f"decoder/layer_{layer}/attention/linear_1"
        key_w, value_w = np.split(graph.weight(f"{prefix}/weight"), 2)
        _, value_b = np.split(graph.weight(f"{prefix}/bias"), 2)
        keys = graph.split_heads(graph.affine(x, key_w), KEYS)
        values = graph.split_heads(graph.affine(x, value_w, value_b), VALUES)
        graph.with_silence(keys, f"xk{layer}", 3, frames, name=f"ck{layer}")
        graph.with_silence(values, f"xv{layer}", 2, frames, name=f"cv{layer}")
    mel = float_tensor("mel", 1, weights.mel_bands, "M")
    inputs = [mel, *in_encoder(graph, weights, "s", "S"), *in_decoder(graph, weights, "x", "S")]
    outputs = [*in_decoder(graph, weights, "c", "A"), *in_encoder(graph, weights, "e", "T")]
    return graph.model("whisper_encoder", inputs, outputs)


def embed(graph, table, index):
    # The table stays in the precision it is stored in, f16: half the memory, and no rounding.
    return graph.op("Cast", graph.op("Gather", graph.constant(graph.weights[table]), index), to=TensorProto.FLOAT)


def causal_mask(graph):
    """Added to the scores [1,H,N,P+N]: minus infinity where a token would see one after it."""
    zero, one = (graph.constant(np.array(n)) for n in (0, 1))
    past = graph.op("Gather", graph.op("Shape", "pk0"), graph.constant(np.array(3)))
    new = graph.op("Gather", graph.op("Shape", "id"), graph.constant(np.array(1)))
    keys = graph.op("Range", zero, graph.op("Add", past, new), one)
    # [1,N] -> [1,1,N,1]
    queries = graph.op("Unsqueeze", "pos", graph.constant(np.array([1, 3])))
    unseen = graph.op("Greater", keys, queries)
    never, always = (graph.constant(np.array(n, np.float32)) for n in (-np.inf, 0))
    return graph.op("Where", unseen, never, always)


def build_decoder(weights):
    graph = Graph(weights, weights.decoder_heads)
    mask = causal_mask(graph)
    token = embed(graph, "decoder/embeddings/weight", "id")
    position = embed(graph, "decoder/position_encodings/encodings", "pos")
    x = graph.op("Add", token, position)
    for layer in range(weights.decoder_layers):
        x = graph.self_attention(x, f"decoder/layer_{layer}/self_attention", cache=layer, mask=mask)
        x = graph.cross_attention(x, f"decoder/layer_{layer}/attention", layer)
        x = graph.feed_forward(x, f"decoder/layer_{layer}/ffn")
    x = graph.layer_norm(x, "decoder/layer_norm")
    graph.op("MatMul", x, graph.constant(graph.weight("decoder/embeddings/weight").T), name="logits")
    inputs = [index_tensor("id"), index_tensor("pos"), *in_decoder(graph, weights, "p", "P")]
    outputs = [float_tensor("logits", 1, "N", weights.vocabulary), *in_decoder(graph, weights, "n", "P1")]
    return graph.model("whisper_decoder", [*inputs, *in_decoder(graph, weights, "c", "T")], outputs)


def quantise(source, target):
    """Turns the weights of matrix products into int8, one scale per output channel."""
    quantize_dynamic(source, target, op_types_to_quantize=["MatMul"], per_channel=True, weight_type=QuantType.QInt8)


def main(source_dir, output_dir):
    logging.disable(logging.WARNING)  # the quantiser advises a pre-processing that these graphs do not need
    weights = WhisperWeights.read(source_dir / "model.bin")
    with tempfile.TemporaryDirectory(dir=output_dir) as scratch:
        encoder, decoder = output_dir / "encoder.f32.onnx", Path(scratch) / "decoder.f32.onnx"
        onnx.save(build_encoder(weights), encoder)
        onnx.save(build_decoder(weights), decoder)
        quantise(encoder, output_dir / "encoder.int8.onnx")
        quantise(decoder, output_dir / "decoder.int8.onnx")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
