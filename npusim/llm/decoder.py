"""Decoders of language as graphs: Llama as NITRO rewrites it, and in the form of today's runtimes.

Llama (Touvron et al., 2023; Dubey et al., 2024) by NITRO: keys and values of `max_sequence` tokens are kept;
each inference drops the oldest, appends the new ones, repeats them for the heads that share them, and runs
attention over all places, masked where they are unused (arXiv 2412.11053, section 3.3). `form: paper` writes
new ones to the first free places instead. Operators and their order of operands are those that OpenVINO's
converter makes of the same network in PyTorch; a test holds the two together. Exports are written from this
graph (`npusim.llm.converting`).

`form: runtime` is OpenVINO GenAI: NPUW on an NPU, OpenVINO's own plugins on CPU and GPU. The cache is updated
in place. Keys and values are read where they lie, once for all heads that share them (grouped-query
attention; PagedAttention and SDPA of the CPU and GPU plugins). Normalisation and rotary embeddings are one
operator each. Prompts are processed in chunks, and only their last token reaches the last layer (NPUW:
options PREFILL_CHUNK_SIZE and SLICE_OUT). Source: openvinotoolkit/openvino,
src/plugins/intel_npu/src/plugin/npuw and src/common/transformations.
"""

from __future__ import annotations

from typing import Any

from npusim.arch.device import RowKind
from npusim.cost import Execution
from npusim.graph import Editor, Graph, GraphMeta
from npusim.llm.spec import EMBEDDING, HOST_AFTER, HOST_BEFORE, OUTPUT, LlmSpec
from npusim.ops import DType, Family, Int8Use, Operator, OpType, Role, RowUse, Settings, Work
from npusim.ops.catalogue import row_work, unchanged
from npusim.ops.operator import Tensors, WorkRule

_LAST = -1


class Decoder:
    """A decoder under construction."""

    def __init__(self, spec: LlmSpec, name: str) -> None:
        dynamic = spec.shapes == "dynamic"
        tokens: dict[str, Any] = {"prompt_tokens": spec.prompt, "new_tokens": spec.new_tokens}
        form, precision = spec.phase, spec.dtype
        meta = GraphMeta(spec.model, form=form, precision=precision, dynamic_shapes=dynamic, **tokens)
        self.spec, self.editor = spec, Editor(name, meta=meta)
        self.kept: list[tuple[str, str, str]] = []
        """State or input, what is kept of it for the next inference, and a name for that."""

    def weight(self, name: str, rows: int, columns: int) -> str:
        """Return the weight of a product [rows, columns], one of a name."""
        if name not in self.editor.tensors:
            dtype, scales = self.spec.packing(rows, columns, inner=name.startswith("layer"))
            self.editor.constant(name, (rows, columns), dtype, role=Role.WEIGHT, scales_bytes=scales)
        return name

    def linear(self, x: str, width: int, name: str, weight: str = "") -> str:
        """Add `x W^T`; the weight has a name of its own where parts share it."""
        held = self.weight(weight or f"{name}/weight", width, self.editor.tensors[x].shape[_LAST])
        return self.editor.matmul(x, held, name, transpose_b=True)

    def norm(self, x: str, name: str) -> str:
        """Add a root mean square normalisation over the last axis."""
        editor, shape = self.editor, self.editor.tensors[x].shape
        ones = (1,) * len(shape)
        square = editor.eltwise("Multiply", x, x, f"{name}/square")
        mean = editor.reduce("ReduceMean", square, (_LAST,), f"{name}/mean", keep_dims=True)
        floor = editor.constant(f"{name}/epsilon", ones, self.spec.dtype)
        root = editor.unary("Sqrt", editor.eltwise("Add", mean, floor, f"{name}/add"), f"{name}/sqrt")
        scaled = editor.eltwise("Divide", x, root, f"{name}/divide")
        weight = editor.constant(f"{name}/weight", (*ones[1:], shape[_LAST]), self.spec.dtype)
        return editor.eltwise("Multiply", scaled, weight, f"{name}/multiply")

    def pick(self, x: str, place: int, name: str) -> str:
        """Take one element along the last axis."""
        index = self.editor.constant(f"{name}/index", (), DType.INT64)
        return self.editor.gather(x, index, name, len(self.editor.tensors[x].shape) - 1)

    def angles(self, place: str) -> tuple[str, str]:
        """Return cosines and sines of the positions, once for a part: [1, tokens, 1, pairs] each."""
        spec, editor = self.spec, self.editor
        pairs = spec.head_width // 2
        if spec.rope == "graph":
            table = editor.constant(f"{place}/angles/table", (2 * spec.max_sequence, pairs, 2), spec.dtype)
            index = editor.op(
                "Convert", ("position",), (spec.new_tokens,), DType.INT32, f"{place}/angles/convert"
            )
            turns = editor.gather(table, index, f"{place}/angles/gather")
        else:
            turns = "freqs_cis"
        picked = (self.pick(turns, i, f"{place}/angles/{what}") for i, what in enumerate(("cos", "sin")))
        cos, sin = (editor.reshape(one, (1, spec.new_tokens, 1, pairs), f"{one}/reshape") for one in picked)
        return cos, sin

    def turned(self, x: str, angles: tuple[str, str], name: str) -> str:
        """Turn pairs of neighbouring features by the angles of their positions: rotary embeddings."""
        editor, (cos, sin) = self.editor, angles
        shape = editor.tensors[x].shape
        pairs = editor.reshape(x, (*shape[:_LAST], shape[_LAST] // 2, 2), f"{name}/pairs")
        real, imaginary = self.pick(pairs, 0, f"{name}/real"), self.pick(pairs, 1, f"{name}/imaginary")

        def times(a: str, b: str, what: str) -> str:
            return editor.eltwise("Multiply", a, b, f"{name}/{what}")

        cosines = times(real, cos, "real_cos"), times(imaginary, sin, "imaginary_sin")
        first = editor.eltwise("Subtract", *cosines, f"{name}/subtract")
        sines = times(real, sin, "real_sin"), times(imaginary, cos, "imaginary_cos")
        second = editor.eltwise("Add", *sines, f"{name}/add")
        halves = [
            editor.reshape(half, (*editor.tensors[half].shape, 1), f"{half}/unsqueeze", "Unsqueeze")
            for half in (first, second)
        ]
        joined = editor.concat(halves, len(shape), f"{name}/concat")
        return editor.reshape(joined, shape, f"{name}/flatten")

    def cached(self, new: str, layer: int, what: str, name: str) -> str:
        """Return keys or values of all places, the new ones last; what is kept is written back.

        [1, places, kv_heads, head_width]
        """
        spec, editor = self.spec, self.editor
        sizes = editor.tensors[new].shape[2:]
        before = spec.attended if spec.shapes == "static" else spec.attended - spec.new_tokens
        if not before:
            self.kept.append(("", new, f"{name}/keep"))
            return new
        held = self._held(f"cache_{what}_{layer}", (1, before, *sizes), name)
        if spec.form == "paper":
            written = editor.op(
                "ScatterUpdate", (held, "position", new), (1, before, *sizes), spec.dtype, f"{name}/write"
            )
            self.kept.append((f"cache_{what}_{layer}", written, f"{name}/keep"))
            return written
        if spec.shapes == "static":
            rest = (1, before - spec.new_tokens, *sizes)
            held = editor.op("Slice", (held,), rest, spec.dtype, f"{name}/slice")
        joined = editor.concat((held, new), 1, f"{name}/concat")
        self.kept.append((f"cache_{what}_{layer}", joined, f"{name}/keep"))
        return joined

    def _held(self, cache: str, shape: tuple[int, ...], name: str) -> str:
        """Return the cache as an inference finds it."""
        if self.spec.cache == "input":
            return self.editor.input(cache, shape, self.spec.dtype)
        # A converted model keeps states in fp32: only constants are stored narrower.
        self.editor.state(cache, shape, DType.FP32)
        return self.editor.op("ReadValue", (cache,), shape, self.spec.dtype, f"{name}/read")

    def spread(self, x: str, name: str, turn: bool = False) -> str:
        """Repeat keys or values for the heads that share them: [1, heads, places, head_width].

        Parameters
        ----------
        turn : bool
            Whether the last two axes change places.
        """
        spec, editor = self.spec, self.editor
        _, places, _, width = editor.tensors[x].shape
        shared = spec.heads // spec.kv_heads
        if shared > 1:
            single = (1, places, spec.kv_heads, 1, width)
            x = editor.reshape(x, single, f"{name}/unsqueeze", "Unsqueeze")
            each = (1, places, spec.kv_heads, shared, width)
            x = editor.op("Broadcast", (x,), each, spec.dtype, f"{name}/broadcast")
            x = editor.reshape(x, (1, places, spec.heads, width), f"{name}/reshape")
        return editor.transpose(x, (0, 2, 3, 1) if turn else (0, 2, 1, 3), f"{name}/transpose")

    def heads(self, x: str, count: int, name: str) -> str:
        """Add a product that gives the new tokens of each head, [1, tokens, count, head_width]."""
        tokens, width = self.spec.new_tokens, self.spec.head_width
        return self.editor.reshape(
            self.linear(x, count * width, name), (1, tokens, count, width), f"{name}/heads"
        )

    def attention(self, x: str, layer: int, angles: tuple[str, str], name: str) -> str:
        """Add attention of the new tokens to all places, [1, tokens, hidden]."""
        spec, editor = self.spec, self.editor
        tokens, width = spec.new_tokens, spec.head_width
        query = self.turned(self.heads(x, spec.heads, f"{name}/query"), angles, f"{name}/query/rotary")
        key = self.turned(self.heads(x, spec.kv_heads, f"{name}/key"), angles, f"{name}/key/rotary")
        value = self.heads(x, spec.kv_heads, f"{name}/value")
        turn = spec.attention == "separate"
        keys = self.spread(self.cached(key, layer, "k", f"{name}/cache_k"), f"{name}/keys", turn)
        values = self.spread(self.cached(value, layer, "v", f"{name}/cache_v"), f"{name}/values")
        query = editor.transpose(query, (0, 2, 1, 3), f"{name}/query/transpose")
        scores = editor.matmul(query, keys, f"{name}/scores", transpose_b=not turn)
        scale = editor.constant(f"{name}/scale/value", (1, 1, 1, 1) if turn else (1,), spec.dtype)
        scores = editor.eltwise("Multiply", scores, scale, f"{name}/scale")
        if self._is_masked:
            scores = editor.eltwise("Add", scores, "mask", f"{name}/mask")
        shares = editor.unary("Softmax", scores, f"{name}/softmax", axes=(3,))
        attended = editor.matmul(shares, values, f"{name}/attended")
        attended = editor.transpose(attended, (0, 2, 1, 3), f"{name}/tokens_first")
        attended = editor.reshape(attended, (1, tokens, spec.heads * width), f"{name}/join_heads")
        return self.linear(attended, spec.hidden, f"{name}/output")

    def layer(self, x: str, layer: int, angles: tuple[str, str]) -> str:
        """Add a decoder layer."""
        editor, name = self.editor, f"layer{layer}"
        editor.region = f"{name}/attention"
        y = self.attention(self.norm(x, f"{name}/attention/norm"), layer, angles, f"{name}/attention")
        x = editor.eltwise("Add", x, y, f"{name}/attention/add")
        editor.region = f"{name}/feed"
        y, place = self.norm(x, f"{name}/feed/norm"), f"{name}/feed"
        gate = editor.unary(
            "Swish", self.linear(y, self.spec.intermediate, f"{place}/gate"), f"{place}/swish"
        )
        up = self.linear(y, self.spec.intermediate, f"{place}/up")
        gated = editor.eltwise("Multiply", gate, up, f"{place}/multiply")
        y = self.linear(gated, self.spec.hidden, f"{place}/down")
        return editor.eltwise("Add", x, y, f"{name}/feed/add")

    def run(self) -> Graph:
        """Add everything and return the graph."""
        spec, editor = self.spec, self.editor
        self._inputs()
        chunk = spec.layers // spec.chunks if spec.chunks else spec.layers
        self.begin(EMBEDDING)
        x = self.embedded()
        for first in range(0, spec.layers, chunk):
            self.begin(f"layers{first // chunk}")
            x = self.layers(x, range(first, first + chunk))
        self.begin(OUTPUT)
        logits = self.logits(x)
        if spec.host_work:
            editor.part_name = editor.region = HOST_AFTER
            logits = editor.op(
                "TopK", (logits,), (*editor.tensors[logits].shape[:2], 1), DType.INT32, "choice", axes=(2,)
            )
            self._by_host(logits)
        editor.outputs = [logits]
        self.write_back()
        for name, op in list(editor.operators.items()):
            if op.part in spec.devices:
                editor.change_operator(name, device=spec.devices[op.part])
        return editor.finish()

    def layers(self, x: str, numbers: range) -> str:
        """Add the decoder layers of a part."""
        self.editor.region = "positions"
        angles = self.angles(f"positions{numbers.start // len(numbers)}")
        for layer in numbers:
            x = self.layer(x, layer, angles)
        return x

    def logits(self, x: str) -> str:
        """Add the scores of the tokens that may follow."""
        x = self.norm(self.last_token(x), "output/norm")
        tied = "embedding/table" if self.spec.tied else ""
        return self.linear(x, self.spec.vocabulary, "output/logits", tied)

    def embedded(self) -> str:
        """Look the tokens up in the table of embeddings, [1, tokens, hidden]."""
        spec, editor = self.spec, self.editor
        table = self.weight("embedding/table", spec.vocabulary, spec.hidden)
        token = editor.op("Convert", ("token",), (1, spec.new_tokens), DType.INT32, "embedding/convert")
        x = editor.gather(table, token, "embedding/gather")
        editor.change_tensor(x, dtype=spec.dtype)
        return x

    def last_token(self, x: str) -> str:
        """Return the features whose scores are computed: those of all new tokens."""
        return x

    def begin(self, part: str) -> None:
        """Let what follows belong to a part."""
        self.editor.part_name = part if self.spec.chunks else ""
        self.editor.region = part

    def _inputs(self) -> None:
        spec, editor = self.spec, self.editor
        editor.input("token", (1, spec.new_tokens), DType.INT64)
        if not spec.host_work:
            self.layer_inputs()
            return
        editor.input("position", (spec.new_tokens,), DType.INT64)
        editor.part_name = editor.region = HOST_BEFORE
        if self._is_masked:
            self._by_host(editor.op("Broadcast", ("position",), self._mask, spec.dtype, "mask"))
        if spec.rope == "input":
            pairs = spec.head_width // 2
            table = editor.constant("freqs_cis/table", (2 * spec.max_sequence, pairs, 2), spec.dtype)
            self._by_host(editor.gather(table, "position", "freqs_cis"))

    def layer_inputs(self) -> None:
        """Add what the host hands to decoder layers besides the features of the tokens."""
        spec, editor = self.spec, self.editor
        if spec.rope == "graph" or spec.form == "paper":
            editor.input("position", (spec.new_tokens,), DType.INT64)
        if self._is_masked:
            editor.input("mask", self._mask, spec.dtype)
        if spec.rope == "input":
            editor.input("freqs_cis", (spec.new_tokens, spec.head_width // 2, 2), spec.dtype)

    @property
    def _is_masked(self) -> bool:
        return self.spec.shapes == "static" or self.spec.new_tokens > 1

    @property
    def _mask(self) -> tuple[int, ...]:
        """Shape of the mask."""
        return 1, self.spec.heads, self.spec.new_tokens, self.spec.attended

    def _by_host(self, result: str) -> None:
        """Let the CPU make a tensor, whatever device runs the network."""
        self.editor.change_operator(result, device="cpu", pinned=True)

    def write_back(self) -> None:
        """Write what is kept to its state, or return it."""
        for cache, value, name in self.kept:
            if cache and self.spec.cache == "state":
                writer = next(op for op in self.editor.operators.values() if value in op.outputs)
                self.editor.part_name, self.editor.region = writer.part, writer.region
                self.editor.assign(cache, value, name)
            else:
                self.editor.outputs.append(value)


_ROPE_STEPS = 3
"""Work of a rotary embedding on an element: two products and a sum."""


def _rotation_work(op: Operator, inputs: Tensors, outputs: Tensors) -> Work:
    """Return the elementwise steps of a rotary embedding."""
    return Work(elements=float(_ROPE_STEPS * outputs[0].elements))


def _declared(
    name: str, family: Family, work: WorkRule, rows: RowUse, kernel: str, row: RowKind | None
) -> OpType:
    """Return the declaration of an operator that runtimes fuse: elementwise work, on DSPs of an NPU."""
    execution = Execution(
        dsp_kernel=kernel, dpu=None, dma=False, element="arithmetic", row=row, computes=True
    )
    return OpType(
        name=name,
        family=family,
        work=work,
        rows=rows,
        int8=Int8Use.NEEDS_FLOAT,
        settings=Settings(),
        shape=unchanged,
        is_identity=False,
        execution=execution,
    )


RMS = _declared("RMS", Family.REDUCE, row_work, RowUse.ALONG_AXES, "mvn", "reduction")
"""Root mean square normalisation with its weight, as OpenVINO's RMSFusion makes it."""
ROPE = _declared("RoPE", Family.COMPOSITE, _rotation_work, RowUse.WHOLE, "mul", None)
"""Rotary embedding, as OpenVINO's RoPEFusion makes it."""


class RuntimeDecoder(Decoder):
    """A decoder under construction, in the form of today's runtimes."""

    def norm(self, x: str, name: str) -> str:
        """Add a root mean square normalisation with its weight: one operator."""
        weight = self.editor.constant(f"{name}/weight", self.editor.tensors[x].shape[-1:], self.spec.dtype)
        return self.editor.add("RMS", (x, weight), name)

    def angles(self, place: str) -> tuple[str, str]:
        """Return cosines and sines of the positions, looked up in a table: [tokens, head_width], twice."""
        spec, editor = self.spec, self.editor
        shape = (2 * spec.max_sequence, spec.head_width)
        table = editor.constant(f"{place}/freqs_cis/table", shape, spec.dtype)
        turns = editor.gather(table, "position", f"{place}/angles")
        return turns, turns

    def attention(self, x: str, layer: int, angles: tuple[str, str], name: str) -> str:
        """Add grouped-query attention of the new tokens to the cache, [1, tokens, hidden]."""
        spec, editor = self.spec, self.editor
        tokens, width, shared = spec.new_tokens, spec.head_width, spec.heads // spec.kv_heads

        def rotated(count: int, what: str) -> str:
            rows = self.heads(x, count, f"{name}/{what}")
            return editor.add("RoPE", (rows, angles[0]), f"{name}/{what}/rotary")

        query = rotated(spec.heads, "query")
        keys = self._cache(rotated(spec.kv_heads, "key"), layer, "k", name)
        values = self._cache(self.heads(x, spec.kv_heads, f"{name}/value"), layer, "v", name)
        # Rows of all heads that share keys and values form one matrix.
        grouped = (1, tokens, spec.kv_heads, shared, width)
        query = editor.reshape(query, grouped, f"{name}/query/groups")
        if tokens > 1:
            query = editor.transpose(query, (0, 2, 3, 1, 4), f"{name}/query/transpose")
        query = editor.reshape(query, (1, spec.kv_heads, shared * tokens, width), f"{name}/query/rows")
        scores = editor.matmul(query, keys, f"{name}/scores", transpose_b=True)
        shares = editor.unary("Softmax", scores, f"{name}/softmax", axes=(3,))
        rows = editor.matmul(shares, values, f"{name}/attended")
        if tokens > 1:
            rows = editor.reshape(rows, (1, spec.kv_heads, shared, tokens, width), f"{name}/groups")
            rows = editor.transpose(rows, (0, 3, 1, 2, 4), f"{name}/tokens_first")
        rows = editor.reshape(rows, (1, tokens, spec.heads * width), f"{name}/join_heads")
        return self.linear(rows, spec.hidden, f"{name}/output")

    def _cache(self, new: str, layer: int, what: str, name: str) -> str:
        """Write new keys or values to the cache; return the cache, [1, kv_heads, places, head_width]."""
        spec, editor = self.spec, self.editor
        dtype, scale_bytes = spec.cache_storage
        places = (1, spec.kv_heads, spec.attended, spec.head_width)
        if dtype is not spec.dtype:
            new = editor.op("Convert", (new,), editor.tensors[new].shape, dtype, f"{name}/{what}/quantize")
        self.kept.append(("", new, f"{name}/cache_{what}/keep"))
        scales = scale_bytes * spec.kv_heads * spec.attended
        return editor.state(f"cache_{what}_{layer}", places, dtype, scales_bytes=scales)

    def embedded(self) -> str:
        """Return the features of the tokens; of a tied table, which the last layer reads, as an input.

        The host looks up the rows (NPUW: HOST_GATHER).
        """
        if not self.spec.tied:
            return super().embedded()
        return self.editor.input("features", (1, self.spec.new_tokens, self.spec.hidden), self.spec.dtype)

    def last_token(self, x: str) -> str:
        """Return the features of the last token, [1, 1, hidden]: no other needs scores in a prompt."""
        if self.spec.phase == "decode" or self.spec.new_tokens == 1:
            return x
        return self.editor.op("Slice", (x,), (1, 1, self.spec.hidden), self.spec.dtype, "output/last")

    def _inputs(self) -> None:
        self.editor.input("token", (1, self.spec.new_tokens), DType.INT64)
        self.editor.input("position", (self.spec.new_tokens,), DType.INT64)


def build_decoder(spec: LlmSpec, name: str) -> Graph:
    """Build one inference of a decoder."""
    return (RuntimeDecoder if spec.form == "runtime" else Decoder)(spec, name).run()
