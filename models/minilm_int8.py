"""Rewrites a sentence embedding model whose int8 weights are unpacked to f32, so that it multiplies in int8.

    python minilm_int8.py SOURCE_DIR OUTPUT_DIR

reads `model.onnx` from SOURCE_DIR, whose weights are Cast(int8 numbers) * scales, one scale per output channel,
and writes `model.onnx` with the same inputs and outputs to OUTPUT_DIR:

    matrix products   multiply the int8 weights with activations that are quantised as they come. A few channels
                      of these are far larger than the others and would take their precision: they are multiplied
                      apart, in f32. See OUTLIER.
    embedding tables  are looked up in int8, so that no f32 copy of them is kept.
"""

import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

# A channel is multiplied apart if its largest value exceeds the median channel's by this factor. With 4, `check.py`
# finds a cosine of more than 0.99 with f32 products for every sentence; with none apart the vectors are farther away.
OUTLIER = 4
# Which channels are large hardly depends on the words: random ones show them.
SENTENCES, WORDS = 16, range(1000, 29000)
START, WORDS_EACH, END = 101, 14, 102


def unpacked(model):
    """The weights by the name they have once they are unpacked: the names of their int8 numbers and their scales."""
    constants = {constant.name for constant in model.graph.initializer}
    numbers = {node.output[0]: node.input[0] for node in model.graph.node if node.op_type == "Cast"}
    return {
        node.output[0]: (numbers[node.input[0]], node.input[1])
        for node in model.graph.node
        if node.op_type == "Mul" and numbers.get(node.input[0]) in constants and node.input[1] in constants
    }


def words_at_random(random):
    ids = np.array([[START, *random.choice(WORDS, WORDS_EACH), END]])
    return {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}


def largest_values(model, activations):
    """The largest absolute value of each channel, by the name of the activation."""
    watched = onnx.ModelProto()
    watched.CopyFrom(model)
    watched.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in activations)
    session = ort.InferenceSession(watched.SerializeToString(), providers=["CPUExecutionProvider"])
    random = np.random.default_rng(0)
    runs = []
    for _ in range(SENTENCES):
        values = session.run(activations, words_at_random(random))
        runs.append([np.abs(each).max(axis=(0, 1)) for each in values])
    return {name: np.max(values, axis=0) for name, *values in zip(activations, *runs)}


class Rewrite:
    """The nodes of the new graph. Methods add some and return the name of the result."""

    def __init__(self, model):
        self.constants = {constant.name: constant for constant in model.graph.initializer}
        self.weights = unpacked(model)
        self.nodes = []
        self.quantised = {}
        products = [node for node in model.graph.node if node.op_type == "MatMul" and node.input[1] in self.weights]
        self.largest = largest_values(model, list(dict.fromkeys(node.input[0] for node in products)))

    def op(self, kind, *inputs, output, **attributes):
        self.nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def constant(self, name, array):
        self.constants[name] = numpy_helper.from_array(np.ascontiguousarray(array), name)
        return name

    def array(self, name):
        return numpy_helper.to_array(self.constants[name])

    def look_up(self, table, index, output):
        numbers, scales = self.weights[table]
        rows = self.op("Gather", numbers, index, output=f"{output}_int8")
        rows = self.op("Cast", rows, output=f"{output}_f32", to=TensorProto.FLOAT)
        scale = self.op("Gather", scales, index, output=f"{output}_scale")
        return self.op("Mul", rows, scale, output=output)

    def multiply(self, x, weight, output):
        numbers, scales = self.weights[weight]
        scales = self.array(scales)[0]
        int8, scale, zero, outliers = self.quantise(x)
        product = self.op("MatMulInteger", int8, numbers, zero, output=f"{output}_i32")
        product = self.op("Cast", product, output=f"{output}_f32", to=TensorProto.FLOAT)
        scale = self.op("Mul", scale, self.constant(f"{output}_scales", scales), output=f"{output}_scale")
        if not outliers.size:
            return self.op("Mul", product, scale, output=output)
        product = self.op("Mul", product, scale, output=f"{output}_most")
        rows = self.constant(f"{output}_rows", self.array(numbers)[outliers] * scales)
        apart = self.op("MatMul", f"{x}_apart", rows, output=f"{output}_apart")
        return self.op("Add", product, apart, output=output)

    def quantise(self, x):
        """The names of int8 numbers, scale and zero point of an activation without its outliers, and these."""
        if x not in self.quantised:
            largest = self.largest[x]
            outliers = np.flatnonzero(largest > OUTLIER * np.median(largest))
            most = x
            if outliers.size:
                others = np.ones_like(largest)
                others[outliers] = 0
                most = self.op("Mul", x, self.constant(f"{x}_others", others), output=f"{x}_most")
                self.op("Gather", x, self.constant(f"{x}_outliers", outliers), output=f"{x}_apart", axis=-1)
            parts = [f"{x}_int8", f"{x}_scale", f"{x}_zero"]
            self.nodes.append(helper.make_node("DynamicQuantizeLinear", [most], parts))
            self.quantised[x] = (*parts, outliers)
        return self.quantised[x]

    def run(self, nodes):
        # What unpacks the weights has no user left: `tidy` removes it.
        for node in nodes:
            if node.op_type == "MatMul" and node.input[1] in self.weights:
                self.multiply(*node.input, node.output[0])
            elif node.op_type == "Gather" and node.input[0] in self.weights:
                self.look_up(*node.input, node.output[0])
            else:
                self.nodes.append(node)

    def tidy(self, outputs):
        """The nodes and constants that the outputs need."""
        needed, nodes = set(outputs), []
        for node in reversed(self.nodes):
            if needed.intersection(node.output):
                needed.update(node.input)
                nodes.insert(0, node)
        return nodes, [constant for name, constant in self.constants.items() if name in needed]


def main(source_dir, output_dir):
    model = onnx.load(source_dir / "model.onnx")
    graph = model.graph
    rewrite = Rewrite(model)
    rewrite.run(graph.node)
    nodes, constants = rewrite.tidy(output.name for output in graph.output)
    graph = helper.make_graph(nodes, graph.name, graph.input, graph.output, constants)
    model.graph.CopyFrom(graph)
    onnx.checker.check_model(model)
    onnx.save(model, output_dir / "model.onnx")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
