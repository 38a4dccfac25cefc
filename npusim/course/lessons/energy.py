r"""19. Where the joules go.

An inference should last a battery long. Does a slower clock save energy, and what costs more: computing or moving?

Switching a capacitance $C$ at voltage $V$ takes $C\,V^2$, however slow the clock is. A slower clock allows a lower voltage, down to a floor. Meanwhile the NPU leaks (*static*)
and the rest of the package is awake (*idle*): both pay for every microsecond. So one clock needs the least energy. The network is ResNet-50 in int8.

Question
--------
Half the clock, at a lower voltage: what does an inference take on this machine?

- [ ] half of the energy or less
- [x] a little less energy
- [ ] as much: the work is the same

Switching takes much less, but DRAM takes as much as before, and what is paid for time grows with the time.

Exercise
--------
The voltage falls from 1.0 to 0.8 V. What share of the switching energy is left?

Answer: 64 %

It goes with the square of the voltage. 0.8 x 0.8 is 64 %.

- 80: the square of the voltage counts.
- 36: that is what is saved.
"""

from functools import cache

from npusim.course.drawings import stacked
from npusim.course.lesson import Lesson, Shown, Slider, picture
from npusim.course.machine import estimate, machine
from npusim.engines import Estimate
from npusim.locate import DEFAULT_SOC
from npusim.reporting.engineering import engineering, percent

CLOCKS = [0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.6, 1.95, 2.2, 2.6]
SHEET_GHZ = 1.95


@cache
def cost(clock: float, dram: float) -> Estimate:
    """Return what an inference costs with a clock of the grid in GHz and DRAM in GB/s."""
    soc = machine(DEFAULT_SOC, f"npu.dpu.clock={clock}GHz", f"dram.bandwidth={dram}GB/s")
    return estimate("resnet-50", soc)


@picture(
    clock=Slider("clock of the grid (GHz)", CLOCKS, 1.0), dram=Slider("DRAM (GB/s)", [20, 40, 80, 120], 80)
)
def _energy(clock: float, dram: float) -> Shown:
    costs = {"this clock": cost(clock, dram), "the sheet's clock": cost(SHEET_GHZ, dram)}
    bars = {
        f"{name}: {engineering(each.latency_s, 's')}": {
            part: getattr(each.energy, f"{part}_j") for part in ("mac", "sram", "dram", "static", "idle")
        }
        for name, each in costs.items()
    }
    now, sheet = costs.values()
    least = min(CLOCKS, key=lambda each: cost(each, dram).energy_j)
    waiting = now.energy.static_j + now.energy.idle_j
    saved = 1 - now.energy_j / sheet.energy_j
    text = rf"""
        $$E = \underbrace{{E_{{\text{{switching}}}}}}_{{{1e3 * (now.energy_j - waiting):.2f}\;\text{{mJ}}}} + \underbrace{{P_{{\text{{static, idle}}}} \cdot t}}_{{{1e3 * waiting:.2f}\;\text{{mJ}}}}
        = \mathbf{{{1e3 * now.energy_j:.2f}\;\text{{mJ}}}}$$

        {percent(waiting / now.energy_j)} of the energy is paid for time. Compared with {SHEET_GHZ} GHz this clock **{"saves" if saved >= 0 else "costs"} {percent(abs(saved))}**.
        Of the slider's clocks **{least:g} GHz** needs the least. A byte from DRAM takes {1e12 * now.energy.dram_j / now.dram_bytes:.0f} pJ,
        a multiply-accumulate {1e12 * now.energy.mac_j / now.macs:.2f} pJ.
        """
    return stacked(bars, "energy of an inference", "J"), text


LESSON = Lesson(__doc__, _energy)
