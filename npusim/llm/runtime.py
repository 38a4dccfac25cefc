"""A decoder as OpenVINO GenAI runs it: NPUW on an NPU, OpenVINO's own plugins on CPU and GPU.

The cache is updated in place. Keys and values are read where they lie, once for all heads that share them
(grouped-query attention; PagedAttention and SDPA of the CPU and GPU plugins). Normalisation and rotary
embeddings are one operator each. Prompts are processed in chunks, and only their last token reaches the last
layer (NPUW: options PREFILL_CHUNK_SIZE and SLICE_OUT). Source: openvinotoolkit/openvino,
src/plugins/intel_npu/src/plugin/npuw and src/common/transformations.
"""

from __future__ import annotations

from npusim.arch.device import RowKind
from npusim.cost import Execution
from npusim.llm.decoder import Decoder
from npusim.ops import DType, Family, Int8Use, Operator, OpType, RowUse, Settings, Work
from npusim.ops.catalogue import row_work, unchanged
from npusim.ops.operator import Tensors, WorkRule

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
