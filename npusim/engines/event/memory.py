"""DMA transfers and host traffic on shared DRAM: how fast each moves alone, and how fast together.

Bandwidth is divided by max-min fairness: when a transfer begins or ends, all rates are worked out again and
one timer is set for the next to end. Rates come from the equations of `npusim.cost.dma`, evaluated once for
one engine and once for all.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ulp
from typing import Any

from npusim.cost import CMX2DDR, DDR2CMX, ArchRow, bytes_per_s
from npusim.engines.event.clock import Clock, Timer
from npusim.engines.timeline import TaskKind


@dataclass(frozen=True, slots=True)
class TransferRates:
    """Rates of transfers."""

    dram_bytes_per_s: float
    """What DRAM sustains for NPU, CPU and GPU together."""
    speed: tuple[dict[int, tuple[float, bool]], ...]
    """Of each array device by kind of task: how much faster one engine moves alone than as one of all, and
    whether it moves over DRAM.
    """


def transfer_rates(row: ArchRow) -> TransferRates:
    """Return the rates of a machine.

    Notes
    -----
    What DRAM sustains for several devices is not in a data sheet: at least what the greediest of them draws
    alone, and no more is assumed.
    """

    def alone(arch: Any, direction: int) -> float:
        engines = float(arch["dma_engines"])
        return bytes_per_s(arch, direction, 1.0) * engines / bytes_per_s(arch, direction, engines)

    hosts = (float(row[name]["bytes_per_s"]) for name in row.hosts)
    total = max(float(row.shared["dram_bytes_per_s"]), *hosts, 0.0)
    return TransferRates(
        total,
        tuple(
            {
                int(TaskKind.DMA_IN): (alone(row[name], DDR2CMX), True),
                int(TaskKind.DMA_OUT): (alone(row[name], CMX2DDR), True),
                int(TaskKind.TRANSFER): (1.0, False),
            }
            for name in row.arrays
        ),
    )


class SharedMemory:
    """DRAM bandwidth under max-min fairness.

    Flows are counted in seconds: what is left of a flow is the time it would take with all DMA engines at
    work and nobody else.

    Parameters
    ----------
    homes : sequence of int
        Device of each DMA engine, whose flows are the first ones; those of a device share DRAM evenly.
    hosts : int
        Further flows.
    done : callable
        Called with the number of a flow when it has ended.
    """

    def __init__(
        self, clock: Clock, homes: Sequence[int], hosts: int, bytes_per_s: float, done: Callable[[int], None]
    ) -> None:
        engines = len(homes)
        count = engines + hosts
        self._homes = [*homes]
        self._engines_of = [homes.count(d) for d in range(max(homes, default=-1) + 1)]
        self._clock, self._engines, self._total, self._done = clock, engines, bytes_per_s, done
        self._left_s = [0.0] * count
        self._speed = [0.0] * count
        self._top = [0.0] * count
        self._rate = [0.0] * count
        self._active: list[int] = []
        self._hosts_active = 0
        self._since = 0.0
        self._timer = Timer(clock, self._end_flows)
        self.changed_at = array("d")
        """When the traffic on DRAM changed (s) ..."""
        self.bytes_per_s = array("d")
        """... and to what, over all flows."""

    def begin(self, flow: int, seconds: float, top_speed: float, bytes_per_s: float) -> None:
        """Start a flow.

        Parameters
        ----------
        seconds : float
            Time it takes at speed 1: for an engine, with all engines at work.
        top_speed : float
            How much faster it may be where the others leave room.
        bytes_per_s : float
            Bytes of DRAM it moves at speed 1; 0 where it does not touch DRAM.
        """
        self._advance()
        self._left_s[flow], self._top[flow], self._rate[flow] = seconds, top_speed, bytes_per_s
        self._active.append(flow)
        if flow >= self._engines:
            self._hosts_active += 1
        self._share()

    def _advance(self) -> None:
        now = self._clock.now
        passed = now - self._since
        if passed > 0.0:
            left, speed = self._left_s, self._speed
            for flow in self._active:
                left[flow] -= speed[flow] * passed
        self._since = now

    def _share(self) -> None:
        """Divide the bandwidth again and set the timer for the next flow to end."""
        engines, rate, speed = self._engines, self._rate, self._speed
        homes, on_dram = self._homes, [0] * len(self._engines_of)
        for flow in self._active:
            if flow < engines and rate[flow] > 0.0:
                on_dram[homes[flow]] += 1
        limits = [own / using if using else 0.0 for own, using in zip(self._engines_of, on_dram, strict=True)]
        for flow in self._active:
            top = self._top[flow]
            moves = flow < engines and rate[flow] > 0.0
            speed[flow] = limits[homes[flow]] if moves and limits[homes[flow]] < top else top
        if self._hosts_active or len(on_dram) - on_dram.count(0) > 1:
            self._fill()
        self._note(sum([speed[flow] * rate[flow] for flow in self._active]))
        if self._active:
            left = self._left_s
            soonest = min([left[flow] / speed[flow] for flow in self._active])
            self._timer.set(self._clock.now + max(soonest, 0.0))

    def _note(self, bytes_per_s: float) -> None:
        """Note the traffic from now on; what came and went at one time never was."""
        now, times = self._clock.now, self.changed_at
        if times and times[-1] == now:
            self.bytes_per_s[-1] = bytes_per_s
        elif not times or self.bytes_per_s[-1] != bytes_per_s:
            times.append(now)
            self.bytes_per_s.append(bytes_per_s)

    def _fill(self) -> None:
        """Limit flows to DRAM's bandwidth by max-min fairness: an equal share each, or the demand."""
        speed, rate = self._speed, self._rate
        asking = sorted((speed[flow] * rate[flow], flow) for flow in self._active if rate[flow] > 0.0)
        left, count = self._total, len(asking)
        for wanted, flow in asking:
            given = min(wanted, left / count)
            speed[flow] = given / rate[flow]
            left -= given
            count -= 1

    def _end_flows(self) -> None:
        self._advance()
        left = self._left_s
        # Rounding must not leave a sliver: what ends within a few units in the last place ends now.
        sliver = 8.0 * ulp(self._clock.now)
        ended = [flow for flow in self._active if left[flow] <= sliver * self._speed[flow]]
        if not ended:
            self._share()
            return
        for flow in ended:
            self._active.remove(flow)
            if flow >= self._engines:
                self._hosts_active -= 1
        self._share()
        for flow in sorted(ended):
            self._done(flow)
