from npusim.course.machine import estimate, machine

_clocks = [step / 10 for step in range(4, 27)]
_costs = {
    clock: estimate("resnet-50", machine("core-ultra-series2", f"npu.dpu.clock={clock:g}GHz"))
    for clock in [*_clocks, 1.95]
}
_sheet = _costs[1.95]
waiting_percent = 100 * (_sheet.energy.static_j + _sheet.energy.idle_j) / _sheet.energy_j
best_clock_ghz = min(_clocks, key=lambda clock: _costs[clock].energy_j)
best_clock_without_idle_ghz = min(
    _clocks, key=lambda clock: _costs[clock].energy_j - _costs[clock].energy.idle_j
)
