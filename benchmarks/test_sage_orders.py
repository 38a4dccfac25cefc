"""GraphSAGE's two orders on OpenVINO's CPU device: the measured ratio of their times beside the predicted.

Everything runs by turns on one thread, and the least processor time of many turns counts. Two rates tell the
data sheet of this machine: a product's and a copy's. Other work on the machine costs some of the margin.
"""

import time

import numpy as np
import pytest

torch = pytest.importorskip("torch")
ov = pytest.importorskip("openvino")

from npusim.gnn_models.networks import SAGE  # noqa: E402
from npusim.gnn_models.views import (  # noqa: E402
    EdgeView,
    Rows,
    sample_neighbours,
    sampled_edge_index,
)
from npusim.scenario import Scenario  # noqa: E402

NODES, FEATURES, HIDDEN, CLASSES, NEIGHBOURS = 2708, 1433, 64, 7, 10
ORDERS = ("aggregate_first", "transform_first")
TURNS = 15
MARGIN = 0.2
ONE_THREAD = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1}


def request_of(module, inputs):
    with torch.no_grad():
        model = ov.convert_model(module.eval(), example_input=inputs, input=[list(i.shape) for i in inputs])
    request = ov.Core().compile_model(model, "CPU", ONE_THREAD).create_infer_request()
    for port, value in enumerate(inputs):
        request.set_input_tensor(port, ov.Tensor(value.numpy().copy()))
    return request.infer


def sage(form, order, maximum):
    random = np.random.default_rng(0)
    edges = random.integers(0, NODES, (2, 10556))
    neighbours, mask = sample_neighbours(edges, NODES, NEIGHBOURS, 0)
    sampled = sampled_edge_index(neighbours, mask)
    view = EdgeView(sampled, NODES, False) if form == "edges" else Rows(neighbours, mask)
    widths = [(FEATURES, HIDDEN), (HIDDEN, CLASSES)]
    module = SAGE(widths, view, maximum, order == "aggregate_first")
    return request_of(module, (torch.rand(NODES, FEATURES), *view.example.values()))


def least_processor_time(runs):
    least = dict.fromkeys(runs, np.inf)
    for _ in range(TURNS):
        for name, run in runs.items():
            start = time.process_time()
            run()
            least[name] = min(least[name], time.process_time() - start)
    return least


@pytest.mark.parametrize("maximum", [False, True], ids=["mean", "max"])
@pytest.mark.parametrize("form", ["edges", "gathered"])
def test_the_predicted_ratio_of_the_orders_is_the_measured_one(benchmark, form, maximum):
    source = np.random.default_rng(0).random((NODES * NEIGHBOURS, FEATURES), dtype=np.float32)
    target = np.zeros_like(source)
    runs = {order: sage(form, order, maximum) for order in ORDERS}
    runs["product"] = request_of(
        torch.nn.Linear(FEATURES, HIDDEN, bias=False), (torch.rand(NODES, FEATURES),)
    )
    runs["copy"] = lambda: np.copyto(target, source)
    least = benchmark.pedantic(least_processor_time, (runs,), rounds=1)
    macs_per_s, bytes_per_s = (
        NODES * FEATURES * HIDDEN / least["product"],
        2 * source.nbytes / least["copy"],
    )
    machine = [
        "cpu.cores=1",
        f"cpu.core_bandwidth={bytes_per_s / 1e9:.3g} GB/s",
        f"cpu.macs_per_cycle.fp32={macs_per_s / 0.9 / 3e9:.3g} MAC/cycle",  # its clock and share of the peak
    ]
    predicted = {}
    for order in ORDERS:
        network = [f"workload.form={form}", f"workload.order={order}", "workload.precision=fp32"]
        scenario = Scenario(
            f"sage-{'max' if maximum else 'mean'}-cora", "generic-cpu", settings=[*network, *machine]
        )
        predicted[order] = float(scenario.mapped.total["latency_s"])
    measured, expected = (times[ORDERS[0]] / times[ORDERS[1]] for times in (least, predicted))
    benchmark.extra_info.update(measured=measured, predicted=expected)
    print(f"{form}, {'max' if maximum else 'mean'}: measured {measured:.2f}, predicted {expected:.2f}")
    assert expected == pytest.approx(measured, rel=MARGIN)
