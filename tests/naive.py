"""The slow, obvious twin of the compiled cost kernel: whoever doubts `npusim.cost.batch.evaluation` reads
this.

Products are searched over all counts of blocks (`naive_products`), not over candidates. No equation is the
package's: those of the units are in `naive_dpu`, `naive_dsp`, `naive_dma` and `naive_hosts`.
"""

import math
from types import SimpleNamespace
from typing import Any

import naive_dma as dma
import naive_dpu
import naive_dsp
import naive_hosts
import naive_products
import naive_triangle
from naive_records import record

from npusim.cost.lowering.tables import DpuOperation, Split, Unit

PRODUCTS = (DpuOperation.MATMUL, DpuOperation.CONVOLUTION)
NOTHING = {
    name: 0.0
    for name in (
        "latency_s",
        "dpu_s",
        "dsp_s",
        "dma_s",
        "host_s",
        "dram_bytes",
        "sram_peak_bytes",
        "energy_j",
        "streamed_bytes",
        "copied_bytes",
        "edges_s",
        "refilling_s",
        "waits_s",
    )
}


def product_choices(arch: Any, op: Any) -> list[Any]:
    """Return every way to do a product, costed."""
    dense = naive_products.choices(arch, op)
    return dense + naive_triangle.choices_once(arch, op) if op.triangle else dense


def chosen(choices: list[Any]) -> list[Any]:
    """Return what may be chosen: near the fastest, of these coarse pieces, of these least bytes."""
    least_s = min(c.latency_s - c.common_s for c in choices)
    near = [c for c in choices if c.latency_s - c.common_s <= least_s * (1.005 + 1e-9)]
    near = [c for c in near if c.fine == min(c.fine for c in near)]
    least_bytes = min(c.dram_bytes for c in near)
    return [c for c in near if c.dram_bytes <= least_bytes * (1 + 1e-9)]


def device_of(row: Any, op: Any) -> Any:
    """Return the device of an operator, as an object with its numbers."""
    archs = row.archs
    return record((archs.hosts if op.unit == Unit.HOST else archs.arrays)[op.device])


def operator(row: Any, op_row: Any) -> Any:
    """Return the cost of one operator: an object with the fields of RESULT_DTYPE that the twin knows."""
    op = record(op_row)
    if op.unit == Unit.VIEW:
        return SimpleNamespace(**NOTHING)
    arch = device_of(row, op)
    if op.unit == Unit.HOST:
        return _host(arch, op, record(row.shared))
    if op.unit == Unit.DPU and op.dpu_operation in PRODUCTS:
        found = product_choices(arch, op)
        best = SimpleNamespace(**(NOTHING | vars(chosen(found)[0]))) if found else None
    else:
        best = _stream(arch, op)
    if best is None:
        return SimpleNamespace(**(NOTHING | {"latency_s": math.inf}))
    best.energy_j = energy_j(arch, op, best)
    return best


def _host(host: Any, op: Any, shared: Any) -> Any:
    time, moved, streamed = naive_hosts.cost(host, op, shared.dram_latency_s)
    beyond_idle_w = naive_hosts.beyond_idle_w(host, shared)
    fields = {"latency_s": time, "dram_bytes": moved, "energy_j": time * beyond_idle_w}
    fields["streamed_bytes"] = streamed
    fields["host_s"] = time
    return SimpleNamespace(**(NOTHING | fields))


def _stream(arch: Any, op: Any) -> Any:
    read = op.a_dram_bytes + op.b_dram_bytes + op.extra_dram_bytes
    cost = SimpleNamespace(**NOTHING)
    cost.dram_bytes = read + op.c_dram_bytes
    cost.dma_s = dma.stream_s(arch, read, op.c_dram_bytes)
    if op.unit == Unit.DPU:
        cost.dpu_s = op.batch * grid_stream_cycles(arch, op) / arch.dpu_clock_hz
    elif op.unit == Unit.DSP:
        crew = arch.tiles * arch.dsps_per_tile
        cycles = naive_dsp.operator_cycles(op.dsp, op.elements, op.rows, crew, arch.dsp_lanes)
        cost.dsp_s = cycles / arch.vpu_clock_hz
    else:
        cost.copied_bytes = max(0.0, op.copy_bytes - max(read, op.c_dram_bytes))
        cost.dma_s += dma.copy_s(arch, cost.copied_bytes)
    kept = arch.tiles * op.live_copied_bytes + op.live_spread_bytes
    free = arch.tiles * arch.sram_tile_bytes - kept
    if free < 0 or (free == 0 and cost.dram_bytes > 0):
        return None
    first, last = (size / max(arch.stream_pieces, op.bands) for size in (read, op.c_dram_bytes))
    cost.sram_peak_bytes = kept + min(2 * (first + last), free)
    first = 0.0 if op.a_prefetch else first
    cost.edges_s = dma.stream_s(arch, first, last)
    cost.waits_s = float(dma.waits_s(arch, first, read > 0, op.c_dram_bytes > 0))
    cost.waits_s += op.dispatches * arch.dispatch_s
    cost.refilling_s = read / free * dma.first_byte_s(arch) if read > 0 else 0.0
    work = max(cost.dpu_s, cost.dsp_s)
    cost.latency_s = float(dma.overlapped_s(work, cost.dma_s, cost.edges_s, cost.refilling_s) + cost.waits_s)
    cost.split, cost.tiles, cost.mode = Split.ROWS, arch.tiles, 0
    return cost


def grid_stream_cycles(arch: Any, op: Any) -> float:
    """Cycles of a tile's share of a depthwise convolution, a pooling or an elementwise operator."""
    rows = math.ceil(op.out_h / arch.tiles)
    if op.dpu_operation == DpuOperation.ELTWISE:
        pixels = math.ceil(op.out_w * op.out_h / arch.tiles)
        return naive_dpu.eltwise_cycles(arch, pixels, 1.0, op.out_c, op.a_item, 1.0)
    image, kernel = (op.out_w, rows, op.out_c), (op.kernel_w, op.kernel_h)
    if op.dpu_operation == DpuOperation.MAXPOOL:
        pool = naive_dpu.maxpool_cycles
        return min(pool(arch, *image, kernel, op.a_item, mode, 1.0) for mode in range(3))
    return naive_dpu.depthwise_cycles(arch, *image, kernel, op.stride_w, (0.0, 0.0), op.a_item, 1.0)


def energy_j(arch: Any, op: Any, cost: Any) -> float:
    """Dynamic energy of an operator on the NPU: DRAM, SRAM, MACs, DSP lanes."""
    energy = cost.dram_bytes * (arch.dram_j_per_byte + arch.sram_j_per_byte)
    energy += 2 * getattr(cost, "copied_bytes", 0.0) * arch.sram_j_per_byte
    if op.unit == Unit.DPU:
        form = naive_dpu.FORMATS.index(op.a_item)
        mac_j = arch.mac_j[form]
        pixels = op.out_w * op.out_h
        out_bytes = (op.bands or op.batch) * pixels * op.out_c * op.c_item
        if op.dpu_operation in PRODUCTS:
            wide, area = cost.register_tile_channels, cost.register_tile_pixels
            reduced = op.in_c * op.kernel_w * op.kernel_h
            a_reads = pixels * reduced * op.a_item * math.ceil(op.out_c / wide)
            b_reads = op.out_c * reduced * op.b_item * math.ceil(pixels / area)
            performed = op.macs * min(op.a_density, op.b_density) * op.mac_energy
            energy += performed * mac_j * arch.energy_convolution
            return energy + (op.batch * (a_reads + b_reads) + out_bytes) * arch.sram_j_per_byte
        factor = {
            DpuOperation.DEPTHWISE: arch.energy_depthwise,
            DpuOperation.MAXPOOL: arch.energy_maxpool,
            DpuOperation.AVGPOOL: arch.energy_avgpool,
        }.get(op.dpu_operation, arch.energy_eltwise)
        energy += max(op.macs, op.elements) * op.mac_energy * mac_j * factor
        return energy + (op.elements * op.a_item + out_bytes) * arch.sram_j_per_byte
    if op.unit == Unit.DSP:
        lanes = arch.dsp_lanes if op.dsp.vector_share > 0.5 else 1.0
        working = 1 if op.dsp.serial else arch.tiles * arch.dsps_per_tile
        lane_cycles = cost.dsp_s * arch.vpu_clock_hz * working * lanes
        energy += lane_cycles * arch.dsp_j_per_lane_op
        energy += op.elements * (op.a_item + op.c_item) * arch.sram_j_per_byte
    return energy


def chain_s(costs: list[Any], pieces: float) -> float:
    """Return the time of operators that hand rows on in stripes: one stripe goes through all of them alone,
    the others as through one long operator with the parts of all.
    """
    part = {
        name: sum(getattr(c, name) for c in costs)
        for name in ("dpu_s", "dsp_s", "dma_s", "edges_s", "refilling_s", "waits_s")
    }
    work = max(part["dpu_s"], part["dsp_s"])
    together = float(dma.overlapped_s(work, part["dma_s"], part["edges_s"], part["refilling_s"]))
    alone = sum(c.latency_s - c.waits_s for c in costs)
    return alone / pieces + together * (1 - 1 / pieces) + part["waits_s"]


def contention_interval_s(contexts: float, npu_s: float, dma_s: float) -> float:
    """Return the interval of contexts that share DMA engines, by Buzen's normalisation constants.

    The states of the closed network of a delay station and a shared one weigh as the product of their
    demands; throughput is the ratio of the sums over states with one customer less and with all.
    """
    apart_s, count = max(0.0, npu_s - dma_s), int(contexts)

    def weight(customers: int) -> float:
        return sum(
            dma_s**k * apart_s ** (customers - k) / math.factorial(customers - k)
            for k in range(customers + 1)
        )

    return weight(count) / weight(count - 1)


def total(row: Any, op_rows: Any, costs: list[Any]) -> Any:
    """Return the cost of one inference: an object with the fields of TOTAL_DTYPE."""
    shared = record(row.shared)
    pairs = [(record(op), cost) for op, cost in zip(op_rows, costs, strict=True)]
    working = [(op, cost, device_of(row, op)) for op, cost in pairs if op.unit != Unit.VIEW]
    # Of views alone the runtime of the first NPU is called all the same.
    launches = sum(op.launches * device_of(row, op).launch_s for op, _ in pairs)
    busy_s, paces, power_w, static_j = 0.0, [], shared.idle_w, []
    for d, arch in enumerate(row.archs.arrays):
        arch = record(arch)
        mine = [(op, c) for op, c, _ in working if op.unit != Unit.HOST and op.device == d]
        chains = {op.fused_chain for op, _ in mine if op.fused_chain}
        links = [[c for op, c in mine if op.fused_chain == chain] for chain in chains]
        work_s = sum(c.latency_s for op, c in mine if not op.fused_chain)
        work_s += sum(chain_s(linked, arch.stream_pieces) for linked in links)
        dma_s = sum(c.dma_s for _, c in mine)
        busy_s += work_s
        paces.append(contention_interval_s(arch.contexts, work_s, dma_s) if work_s else 0.0)
        static_j.append((arch.static_w, work_s / arch.contexts))
    hosts = {name: 0.0 for name in ("cpu_s", "gpu_s")}
    for h, host in enumerate(row.archs.hosts):
        work_s = sum(c.host_s for op, c, _ in working if op.unit == Unit.HOST and op.device == h)
        hosts["gpu_s" if host["is_gpu"] else "cpu_s"] += work_s
        busy_s += work_s
        paces.append(work_s)
    sums = {k: sum(getattr(c, k) for c in costs) for k in ("dpu_s", "dsp_s", "dma_s", "dram_bytes")}
    streamed = sum(c.streamed_bytes if op.unit == Unit.HOST else c.dram_bytes for op, c, _ in working)
    latency = interval = busy_s + launches
    if shared.requests > 1:
        interval = max(*paces, streamed / shared.dram_bytes_per_s, latency / shared.requests)
        latency = max(latency, shared.requests * interval)
    # Of the package, beside the work: each device as long as it works.
    energy = power_w * interval + sum(static_w * min(at_work_s, interval) for static_w, at_work_s in static_j)
    return SimpleNamespace(
        latency_s=latency,
        throughput_per_s=1 / interval,
        energy_j=energy + sum(c.energy_j for c in costs),
        sram_peak_bytes=max(c.sram_peak_bytes for c in costs),
        area_mm2=shared.area_mm2,
        **sums,
        **hosts,
    )


def halo_of_part(
    sources: list[int], targets: list[int], part_of: list[int], part: int, hops: int
) -> tuple[set[int], set[int]]:
    """Return the nodes and the numbers of the edges that a part's answers need, hop by hop."""
    nodes = {node for node, own in enumerate(part_of) if own == part}
    read: set[int] = set()
    for _ in range(hops):
        edges = {i for i, target in enumerate(targets) if target in nodes}
        read |= edges
        nodes |= {sources[i] for i in edges}
    return nodes, read
