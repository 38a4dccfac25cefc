from npusim.course.drawings import ceilings
from npusim.course.machine import estimate, machine, product


def _cost(features, *settings):
    return estimate(product(2708, 2708, features), machine("core-ultra-series2", *settings))


_peaks, _bandwidth = ceilings(_cost(64))
ridge = _peaks["fp16"] / _bandwidth
# 2 N N F operations, 2 N N + 4 N F bytes: F = ridge / (1 - 2 ridge / N), about 220; the search is a little better.
features = next(f for f in range(16, 512, 16) if _cost(f).operators[0].bound == "compute")
_limit = 1.05 * _cost(64).latency_s
clock_ghz = next(
    c / 100 for c in range(30, 195, 5) if _cost(64, f"npu.dpu.clock={c / 100:g}GHz").latency_s <= _limit
)
