"""Predicted times of all rows as functions of a device's numbers: values and sensitivities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npusim.arch import Soc
from npusim.calibrate.device.parameters import Parameter
from npusim.calibrate.device.rows import DeviceRow
from npusim.calibrate.least_squares import Floats
from npusim.cost import arch_row
from npusim.studies.perturbation import evaluated, lowered_on, moved

INFLUENCE = 0.01
"""A number affects a row whose time changes by more than this share when it moves by its uncertainty."""
_STEP = 0.02
"""Step of the logarithms for slopes: small beside most widths, and wide enough to span the kinks where
one bound of an operator takes over from another."""


class DeviceTimes:
    """Predicts rows on machines that differ in some numbers."""

    def __init__(
        self,
        soc: Soc,
        rows: Sequence[DeviceRow],
        parameters: Sequence[Parameter],
    ) -> None:
        self.soc, self.rows = soc, list(rows)
        self.parameters = list(parameters)
        self.start = np.log([p.number.value for p in self.parameters])
        self.widths = np.array([p.number.sigma for p in self.parameters])
        self.low = np.log([p.low for p in self.parameters])
        self.high = np.log([p.high for p in self.parameters])
        self.affects = np.ones((len(self.rows), len(self.parameters)), bool)
        self.tables: list[Any] = [None] * len(self.rows)
        self._memory: dict[bytes, Floats] = {}

    def machine(self, logs: Floats) -> Soc:
        """Return the SoC with parameters at given logarithms."""
        values = {p.number.path: v for p, v in zip(self.parameters, np.exp(logs).tolist(), strict=True)}
        return moved(self.soc, values)

    def predicted(self, logs: Floats, only: Sequence[int] | None = None) -> Floats:
        """Return the logarithms of predicted times, shape (rows,), or of some of them."""
        if only is not None:
            return self._evaluate(logs, only)
        key = logs.tobytes()
        if key not in self._memory:
            self._memory[key] = self._evaluate(logs, range(len(self.rows)))
        return self._memory[key]

    def _evaluate(self, logs: Floats, which: Sequence[int]) -> Floats:
        machine = self.machine(logs)
        archs: dict[tuple[int, int, str], object] = {}
        found = np.empty(len(which))
        for place, i in enumerate(which):
            row = self.rows[i]
            run = row.mapped.run
            key = (run.tiles, run.requests, run.hint)
            if key not in archs:
                archs[key] = arch_row(machine, *key)
            found[place] = np.log(row.seconds(evaluated(row.mapped, machine, archs[key], self.tables[i])))
        return found

    def find_influence(self, logs: Floats) -> Floats:
        """Find which parameters affect which rows; return by how much.

        Returns
        -------
        array, shape (rows, parameters)
            Largest change of a row's logarithm when the parameter moves by its uncertainty, up or down.
        """
        here = self.predicted(logs)
        influence = np.zeros((len(self.rows), len(self.parameters)))
        for j, parameter in enumerate(self.parameters):
            for sign in (1.0, -1.0):
                there = logs.copy()
                there[j] = np.clip(
                    logs[j] + sign * self.widths[j], np.log(parameter.low), np.log(parameter.high)
                )
                influence[:, j] = np.maximum(influence[:, j], np.abs(self.predicted(there) - here))
        self.affects = influence > 1e-9
        self._keep_tables(logs)
        self._memory.clear()
        return influence

    def _keep_tables(self, logs: Floats) -> None:
        """Keep the operator tables that no parameter changes, so that they are made once."""
        tables = [lowered_on(row.mapped, self.machine(logs)) for row in self.rows]
        for j in range(len(self.parameters)):
            there = logs.copy()
            there[j] -= self.widths[j]
            machine = self.machine(there)
            for i in np.flatnonzero(self.affects[:, j]):
                table = tables[i]
                if (
                    table is not None
                    and lowered_on(self.rows[i].mapped, machine).tobytes() != table.tobytes()
                ):
                    tables[i] = None
        self.tables = tables

    def slopes(self, logs: Floats, which: NDArray[np.bool_]) -> Floats:
        """Return d log(time) / d log(parameter), shape (rows, parameters); 0 for those not asked for."""
        here = self.predicted(logs)
        found = np.zeros((len(self.rows), len(self.parameters)))
        for j in np.flatnonzero(which):
            rows = np.flatnonzero(self.affects[:, j])
            there = logs.copy()
            # At a bound the difference is taken inwards.
            step = -_STEP if logs[j] + _STEP > np.log(self.parameters[j].high) else _STEP
            there[j] += step
            found[rows, j] = (self.predicted(there, rows.tolist()) - here[rows]) / step
        return found
