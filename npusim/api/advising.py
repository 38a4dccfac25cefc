"""Advice on a network of a user's own, with its numbers and its data where they are at hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from npusim.api.estimating import How, without_techniques
from npusim.arch import Soc
from npusim.errors import ConfigError, NpusimError
from npusim.scenario import Network, Scenario, split_settings
from npusim.studies.uncertainty import SAMPLES

if TYPE_CHECKING:
    from npusim.studies.advice import Advice


def advise(
    network: Network | Scenario,
    soc: Soc | str | Path | None = None,
    *,
    values: str | Path | None = None,
    export: str | Path | None = None,
    data: str | Path | None = None,
    keep_answers: float | None = None,
    samples: int = SAMPLES,
    seed: int = 0,
    **how: Unpack[How],
) -> Advice:
    """Say which techniques pay on a network, what to rewrite for the others, and which stack to try.

    Parameters
    ----------
    network, soc, **how
        As for `estimate`, without techniques: the call finds them. A module with `inputs`, or a file's as
        `model.py:net`, is rewritten with its own numbers, and its answers are compared.
    values : str or Path, optional
        An `.npz` file with values of a model file's inputs.
    export : str or Path, optional
        Write the network under the stack to try to this .xml file.
    data : str or Path, optional
        Folder with the raw data sets: a named GNN is trained, and the stacks to try judged on its test nodes.
    keep_answers : float, optional
        Least share of rows whose answer the stack to try keeps, where numbers are known; None: 0.95.
    samples, seed : int
        Machines drawn for the 90 % intervals (0: none), and the seed of the draws.

    Examples
    --------
    >>> import npusim
    >>> npusim.advise("gcn-cora", samples=0).today.techniques
    'stagr+quantgr'
    """
    from npusim.frontends.openvino_run import refuse_target
    from npusim.studies.advice import KEEP_ANSWERS
    from npusim.studies.advice import advise as advice_on
    from npusim.studies.rewritten import NumericalRewriting

    scenario = without_techniques(network, soc, how, "no techniques: this call finds those that pay")
    numbers = NumericalRewriting.of(scenario, values, required=export is not None)
    least = KEEP_ANSWERS if keep_answers is None else keep_answers
    judge = None if numbers is None else numbers.judge
    file = None if export is None else Path(export)
    if file is not None:
        refuse_target(file)
    found = advice_on(scenario, judge=judge, keep_answers=least, samples=samples, seed=seed)
    if data is not None:
        found = found.model_copy(update=_judged(scenario, found, Path(data)))
    if numbers is None or file is None:
        return found
    if not found.agreement:
        numbers.judge(found.today.techniques)  # raises the reason why no file can hold the network
    kept = found.agreement[-1].same_answers
    if kept < least:
        raise NpusimError(
            f"{found.workload}: no stack keeps {least:.0%} of the answers, not even `none` as a file with "
            f"weights in fp16 ({kept:.0%}); nothing was exported; a smaller --keep-answers would allow it"
        )
    numbers.save(found.today.techniques, file)
    return found.model_copy(update={"file": str(file)})


def _judged(scenario: Scenario, advice: Advice, data: Path) -> dict[str, Any]:
    """Return the stacks of advice with the accuracy of the trained network under each."""
    from npusim.accuracy.judging import judge

    if not isinstance(scenario.network, str | Path):
        raise ConfigError(f"`{data}`", file="--data", allowed="only for a workload of kind gnn")
    rows = {name: getattr(advice, name) for name in ("as_it_is", "today", "with_compiler")}
    of_workload, _ = split_settings(scenario.settings)
    stacks = [row.techniques for row in rows.values()]
    report = judge([str(scenario.network)], stacks, data, overrides=of_workload)
    accuracy = {one.techniques: one.accuracy for one in report.results}
    return {
        name: row.model_copy(update={"accuracy": accuracy.get(row.techniques)}) for name, row in rows.items()
    }
