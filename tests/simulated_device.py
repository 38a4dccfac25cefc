"""A device whose inferences take simulated time, beside programs that take simulated cores."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from npusim.measuring import timing

CORES = 4


class SimulatedDevice:
    """A compiled network, as `npusim.measuring.timing` drives it, on a clock of its own.

    Parameters
    ----------
    inference_s : float
        Time of an inference by the device's own account (s).
    call_s : float
        Time that Python needs around each (s), all of it processor time of this program.
    others : callable
        From a time (s) to the cores that other programs take then.
    """

    def __init__(
        self, inference_s: float, call_s: float = 0.0, others: Callable[[float], float] = lambda now: 0.0
    ) -> None:
        self.inference_s, self.call_s, self.others = inference_s, call_s, others
        self.now = self.own_s = self.busy_s = 0.0
        self.inferences = 0

    def replace_clocks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let `npusim.measuring.timing` read this device's clocks."""
        clocks = SimpleNamespace(perf_counter=lambda: self.now, process_time=lambda: self.own_s)
        processors = SimpleNamespace(
            cpu_times=lambda: SimpleNamespace(user=self.busy_s), cpu_count=lambda: CORES
        )
        monkeypatch.setattr(timing, "time", clocks)
        monkeypatch.setattr(timing, "psutil", processors)

    def create_infer_request(self) -> Any:
        """Return a request that takes inputs, infers, and tells its latency in ms."""
        return SimpleNamespace(
            set_input_tensor=lambda at, tensor: None, infer=self._infer, latency=self.inference_s * 1e3
        )

    def _infer(self, *, share_outputs: bool) -> None:
        passed = self.inference_s + self.call_s
        self.busy_s += passed * self.others(self.now) + self.call_s
        self.own_s += self.call_s
        self.now += passed
        self.inferences += 1
