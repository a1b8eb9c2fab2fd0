"""Writes Whisper in the layout that exporters of many frameworks share, to test that it is read.

    python whisper_layout.py SOURCE_DIR OUTPUT_DIR

reads `model.bin` from SOURCE_DIR and writes, with H heads of D elements and P tokens decoded so far:

encoder_model.onnx
    input_features f32[1,80,3000]  ->  last_hidden_state f32[1,1500,width]

decoder_model_merged.onnx, one branch for the first tokens and one for each further token
    input_ids i64[1,S], encoder_hidden_states f32[1,1500,width], use_cache_branch bool[1],
    past_key_values.{i}.decoder.key f32[1,H,P,D], .decoder.value, .encoder.key f32[1,H,1500,D], .encoder.value
        ->  logits f32[1,S,vocabulary], present.{i}.decoder.key f32[1,H,P+S,D], and so on
    The first branch makes the encoder's keys and values; the second one passes on what it was given.

config.json with the sizes.
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ct2_reader import WhisperWeights
from whisper_onnx import IR_VERSION, OPSET, VALUES, Graph, add_positions, convolve, float_tensor

PARTS = ["decoder.key", "decoder.value", "encoder.key", "encoder.value"]


class Branch(Graph):
    """One branch of the decoder. It shares the constants of the model around it."""

    def __init__(self, weights, name, constants, known):
        self.name, self.known = name, {}
        super().__init__(weights, weights.decoder_heads)
        self.constants, self.known = constants, known
        self.per_head = self.constant(np.array([1, -1, weights.decoder_heads, self.head_width]))
        self.merged = self.constant(np.array([1, -1, self.width]))

    def constant(self, array):
        # That would give a scalar a dimension.
        array = np.ascontiguousarray(array) if array.ndim else array
        same = (array.dtype.str, array.shape, hash(array.tobytes()))
        if same not in self.known:
            self.known[same] = f"constant_{len(self.constants)}"
            self.constants.append(numpy_helper.from_array(array, self.known[same]))
        return self.known[same]

    def op(self, kind, *inputs, name=None, **attributes):
        name = name or f"{self.name}_{kind.lower()}_{len(self.nodes)}"
        return super().op(kind, *inputs, name=name, **attributes)

    def attend(self, query, keys, values, mask=None):
        scores = self.op("MatMul", query, self.op("Transpose", keys, perm=[0, 1, 3, 2]))
        if mask is not None:
            scores = self.op("Add", scores, mask)
        mixed = self.op("Transpose", self.op("MatMul", self.op("Softmax", scores, axis=-1), values), perm=VALUES)
        return self.op("Reshape", mixed, self.merged)

    def result(self, layer, part, value):
        return self.op("Identity", value, name=f"{self.name}.present.{layer}.{part}")


def decoder_branch(weights, name, constants, known, cached):
    graph = Branch(weights, name, constants, known)
    tables = {key: graph.constant(weights[f"decoder/{key}"]) for key in ("embeddings/weight", "position_encodings/encodings")}
    zero, one, two, three = (graph.constant(np.array([n])) for n in range(4))
    length = graph.op("Slice", graph.op("Shape", "input_ids"), one, two)
    past = graph.op("Slice", graph.op("Shape", "past_key_values.0.decoder.key"), two, three) if cached else zero
    first, last = graph.op("Squeeze", past), graph.op("Squeeze", graph.op("Add", past, length))
    places = graph.op("Range", first, last, graph.constant(np.array(1)))
    token = graph.op("Cast", graph.op("Gather", tables["embeddings/weight"], "input_ids"), to=TensorProto.FLOAT)
    place = graph.op("Cast", graph.op("Gather", tables["position_encodings/encodings"], places), to=TensorProto.FLOAT)
    x = graph.op("Add", token, place)
    mask = None
    if not cached:
        shape = graph.op("Concat", length, length, axis=0)
        never = numpy_helper.from_array(np.array([-1e9], dtype=np.float32))
        mask = graph.op("Trilu", graph.op("ConstantOfShape", shape, value=never), graph.constant(np.array(1)), upper=1)
    for layer in range(weights.decoder_layers):
        prefix = f"decoder/layer_{layer}"
        # The rows of linear_0 are query, key and value; Whisper's keys have no bias.
        own = f"{prefix}/self_attention"
        normed = graph.layer_norm(x, f"{own}/layer_norm")
        query_w, key_w, value_w = np.split(graph.weight(f"{own}/linear_0/weight"), 3)
        query_b, _, value_b = np.split(graph.weight(f"{own}/linear_0/bias"), 3)
        query = graph.query(normed, query_w, query_b)
        keys = graph.split_heads(graph.affine(normed, key_w), VALUES)
        values = graph.split_heads(graph.affine(normed, value_w, value_b), VALUES)
        if cached:
            keys = graph.op("Concat", f"past_key_values.{layer}.decoder.key", keys, axis=2)
            values = graph.op("Concat", f"past_key_values.{layer}.decoder.value", values, axis=2)
        graph.result(layer, "decoder.key", keys)
        graph.result(layer, "decoder.value", values)
        x = graph.op("Add", x, graph.linear(graph.attend(query, keys, values, mask), f"{own}/linear_1"))
        cross = f"{prefix}/attention"
        normed = graph.layer_norm(x, f"{cross}/layer_norm")
        query = graph.query(normed, graph.weight(f"{cross}/linear_0/weight"), graph.weight(f"{cross}/linear_0/bias"))
        if cached:
            keys, values = (f"past_key_values.{layer}.encoder.{part}" for part in ("key", "value"))
        else:
            key_w, value_w = np.split(graph.weight(f"{cross}/linear_1/weight"), 2)
            _, value_b = np.split(graph.weight(f"{cross}/linear_1/bias"), 2)
            keys = graph.split_heads(graph.affine("encoder_hidden_states", key_w), VALUES)
            values = graph.split_heads(graph.affine("encoder_hidden_states", value_w, value_b), VALUES)
        graph.result(layer, "encoder.key", keys)
        graph.result(layer, "encoder.value", values)
        x = graph.op("Add", x, graph.linear(graph.attend(query, keys, values), f"{cross}/linear_2"))
        x = graph.feed_forward(x, f"{prefix}/ffn")
    x = graph.layer_norm(x, "decoder/layer_norm")
    graph.op("MatMul", x, graph.constant(graph.weight("decoder/embeddings/weight").T), name=f"{name}.logits")
    outputs = [f"{name}.{output}" for output in ["logits", *results(weights)]]
    outputs = [helper.make_tensor_value_info(output, TensorProto.FLOAT, None) for output in outputs]
    return helper.make_graph(graph.nodes, name, [], outputs)


def results(weights):
    return [f"present.{layer}.{part}" for layer in range(weights.decoder_layers) for part in PARTS]


def build_decoder(weights):
    constants, known = [], {}
    first = decoder_branch(weights, "first", constants, known, cached=False)
    further = decoder_branch(weights, "further", constants, known, cached=True)
    heads, width = weights.decoder_heads, weights.width // weights.decoder_heads
    outputs = ["logits", *results(weights)]
    choice = helper.make_node("If", ["use_cache_branch"], outputs, then_branch=further, else_branch=first)
    inputs = [
        helper.make_tensor_value_info("input_ids", TensorProto.INT64, [1, "S"]),
        float_tensor("encoder_hidden_states", 1, "T", weights.width),
    ]
    for layer in range(weights.decoder_layers):
        for part in PARTS:
            length = "P" if part.startswith("decoder") else "E"
            inputs.append(float_tensor(f"past_key_values.{layer}.{part}", 1, heads, length, width))
    inputs.append(helper.make_tensor_value_info("use_cache_branch", TensorProto.BOOL, [1]))
    logits = float_tensor("logits", 1, "S", weights.vocabulary)
    present = [float_tensor(name, 1, heads, f"{name}.length", width) for name in outputs[1:]]
    graph = helper.make_graph([choice], "whisper_decoder_merged", inputs, [logits, *present], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="undertone")
    model.ir_version = IR_VERSION
    onnx.checker.check_model(model)
    return model


def build_encoder(weights):
    graph = Graph(weights, weights.encoder_heads)
    x = convolve(graph, "input_features", "encoder/conv1", stride=1)
    x = convolve(graph, x, "encoder/conv2", stride=2)
    x = add_positions(graph, graph.op("Transpose", x, perm=[0, 2, 1]))
    for layer in range(weights.encoder_layers):
        x = graph.self_attention(x, f"encoder/layer_{layer}/self_attention")
        x = graph.feed_forward(x, f"encoder/layer_{layer}/ffn")
    x = graph.layer_norm(x, "encoder/layer_norm")
    graph.op("Identity", x, name="last_hidden_state")
    inputs = [float_tensor("input_features", 1, weights.mel_bands, 3000)]
    return graph.model("whisper_encoder", inputs, [float_tensor("last_hidden_state", 1, 1500, weights.width)])


def main(source_dir, output_dir):
    weights = WhisperWeights.read(source_dir / "model.bin")
    output_dir.mkdir(parents=True, exist_ok=True)
    onnx.save(build_encoder(weights), output_dir / "encoder_model.onnx")
    onnx.save(build_decoder(weights), output_dir / "decoder_model_merged.onnx")
    sizes = {
        "model_type": "whisper",
        "d_model": weights.width,
        "decoder_layers": weights.decoder_layers,
        "decoder_attention_heads": weights.decoder_heads,
        "num_mel_bins": weights.mel_bands,
        "vocab_size": weights.vocabulary,
    }
    (output_dir / "config.json").write_text(json.dumps(sizes, indent=2))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
