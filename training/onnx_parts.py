"""The two ONNX files of a checkpoint, written node by node from trained weights."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from antiphon.training.data.phones import PHONES
from antiphon.training.stages.tokenizer import LEVELS, MELS, Recogniser
from antiphon.training.stages.xvector import SpeakerEncoder

OPSET = 17


class _Graph:
    """Collects nodes and weights; every method returns the name of its output."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def constant(self, value: np.ndarray) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def weight(self, value: Tensor) -> str:
        return self.constant(value.detach().float().numpy())

    def add(self, kind: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        name = output or f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def conv(self, layer: nn.Module, x: str) -> str:
        assert isinstance(layer, nn.Conv1d)
        assert layer.bias is not None
        pad = int(layer.padding[0])
        return self.add(
            "Conv",
            x,
            self.weight(layer.weight),
            self.weight(layer.bias),
            strides=list(layer.stride),
            dilations=list(layer.dilation),
            group=layer.groups,
            pads=[pad, pad],
        )

    def norm(self, layer: nn.Module, x: str) -> str:
        assert isinstance(layer, nn.BatchNorm1d)
        assert layer.running_mean is not None
        assert layer.running_var is not None
        parts = (layer.weight, layer.bias, layer.running_mean, layer.running_var)
        names = [self.weight(part) for part in parts]
        return self.add("BatchNormalization", x, *names, epsilon=layer.eps)

    def save(
        self,
        path: Path,
        inputs: list[onnx.ValueInfoProto],
        output: onnx.ValueInfoProto,
        metadata: dict[str, str],
    ) -> None:
        graph = helper.make_graph(self.nodes, path.stem, inputs, [output], self.weights)
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8
        )
        helper.set_model_props(model, metadata)
        onnx.checker.check_model(model)
        onnx.save(model, str(path))


def write_tokenizer(model: Recogniser, path: Path, metadata: dict[str, str]) -> None:
    """`speech_tokenizer_v3.onnx`: feats [1, 128, T] and their length to indices [1, ceil(T/4)]."""
    g = _Graph()
    hidden = g.add("Sub", "feats", g.add("ReduceMean", "feats", axes=[2], keepdims=1))
    for layer in (model.first, model.second):
        hidden = g.add("Relu", g.conv(layer, hidden))
    for depth, norm, widen, narrow in zip(
        model.depthwise, model.norms, model.widen, model.narrow, strict=True
    ):
        inner = g.add("Relu", g.conv(widen, g.norm(norm, g.conv(depth, hidden))))
        hidden = g.add("Add", hidden, g.conv(narrow, inner))
    logits = g.conv(model.head, hidden)
    sizes = g.constant(np.array([len(PHONES), LEVELS], np.int64))
    g.nodes.append(helper.make_node("Split", [logits, sizes], ["phones", "levels"], axis=1))
    phone = g.add("ArgMax", "phones", axis=1, keepdims=0)
    level = g.add("ArgMax", "levels", axis=1, keepdims=0)
    outside = g.constant(np.array([[-1]], np.int64))
    one, forty, many = (g.constant(np.array([n], np.int64)) for n in (1, 40, 120))
    zero, minus_one = (g.constant(np.array([n], np.int64)) for n in (0, -1))
    earlier = g.add("Slice", phone, zero, minus_one, one)
    before = g.add("Concat", outside, earlier, axis=1)
    changed = g.add("Not", g.add("Equal", phone, before))
    start = g.add("Mul", g.add("Cast", changed, to=TensorProto.INT64), many)
    code = g.add("Add", phone, g.add("Mul", level, forty))
    g.add("Add", code, start, output="indices")
    feats = helper.make_tensor_value_info("feats", TensorProto.FLOAT, [1, MELS, "frames"])
    length = helper.make_tensor_value_info("feats_length", TensorProto.INT32, [1])
    indices = helper.make_tensor_value_info("indices", TensorProto.INT64, [1, "tokens"])
    g.save(path, [feats, length], indices, metadata)


def write_speaker_encoder(model: SpeakerEncoder, path: Path, metadata: dict[str, str]) -> None:
    """`campplus.onnx`: input [B, T, 80] (filterbank, mean removed) to output [B, 192]."""
    g = _Graph()
    quarter = g.constant(np.array(0.25, np.float32))
    hidden = g.add("Mul", g.add("Transpose", "input", perm=[0, 2, 1]), quarter)
    for layer, norm in zip(model.layers, model.norms, strict=True):
        hidden = g.norm(norm, g.add("Relu", g.conv(layer, hidden)))
    mean = g.add("ReduceMean", hidden, axes=[2], keepdims=0)
    power = g.add("ReduceMean", g.add("Mul", hidden, hidden), axes=[2], keepdims=0)
    spread = g.add("Sub", power, g.add("Mul", mean, mean))
    spread = g.add("Sqrt", g.add("Max", spread, g.constant(np.array(1e-5, np.float32))))
    both = g.add("Concat", mean, spread, axis=1)
    head = model.head
    g.add("Gemm", both, g.weight(head.weight), g.weight(head.bias), output="output", transB=1)
    source = helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", "frames", 80])
    target = helper.make_tensor_value_info("output", TensorProto.FLOAT, ["batch", 192])
    g.save(path, [source], target, metadata)
