"""``npusim llm``, `npusim.language_models`: which language model fits a machine, and how fast."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from npusim.api import as_numbers
from npusim.cli.options import WRITTEN, Command, argument, option
from npusim.errors import ConfigError, UnknownNameError, as_list
from npusim.locate import DEFAULT_SOC

if TYPE_CHECKING:
    from npusim.arch import Soc
    from npusim.config.overrides import Settings
    from npusim.llm.study import LanguageModels

_FORMATS = ("fp16", "int8", "int4")
_MODELS = ("llama3.2-1b", "llama3.2-3b", "llama3-8b")


def language_models(
    models: str | Sequence[str] = (),
    soc: Soc | str | Path | None = None,
    *,
    weights: str | Sequence[str] = "fp16,int8,int4",
    devices: str | Sequence[str] | None = None,
    draft: str | None = None,
    draft_device: str = "npu",
    guesses: int = 4,
    acceptance: float = 0.7,
    growth: str | Sequence[int] | None = None,
    settings: Settings = (),
) -> LanguageModels:
    """Compare language models on a machine: time of a token, time to the first one, memory, energy.

    Parameters
    ----------
    models : sequence of str, or str with commas
        Workloads of kind llm; none: the shipped ones.
    soc : Soc, str or Path, optional
        Machine: a name from `npusim list socs` or a SoC YAML.
    weights : sequence of str, or str with commas
        Formats of weights: fp16, int8, int4.
    devices : sequence of str, or str with commas, optional
        Devices; none: all of the SoC.
    draft : str, optional
        A smaller model that guesses tokens.
    draft_device : str
        Where it runs.
    guesses : int
        Tokens that it guesses in a round.
    acceptance : float
        Guesses that are accepted.
    growth : pair of int, or str with a comma, optional
        Also each pass over a cache of so many places, short and long.
    settings : settings
        Of the workloads and the SoC, as for `npusim.Scenario`.

    Examples
    --------
    >>> import npusim
    >>> compared = npusim.language_models("llama3.2-1b", "core-ultra-nitro", weights="int8", devices="npu")
    >>> len(compared.rows)
    1

    Command lines
    -------------
        npusim llm --soc core-ultra-nitro
        npusim llm llama3.2-1b --weights int8,int4 --devices gpu --set workload.max_sequence=2048
        npusim llm llama3-8b --soc core-ultra-nitro --weights fp16 --growth 128,2048
        npusim llm --soc core-ultra-nitro -o models.html
        npusim llm llama3-8b --devices gpu --draft llama3.2-1b --draft-device npu --acceptance 0.7
    """
    from npusim.llm.study import OnMachine, speculation
    from npusim.llm.study import language_models as compared
    from npusim.scenario import Scenario, split_settings

    names, formats = as_list(models) or list(_MODELS), as_list(weights)
    scenario = Scenario(names[0], DEFAULT_SOC if soc is None else soc, settings=settings)
    machine = OnMachine(scenario.machine, split_settings(settings)[0])
    known_devices = tuple(machine.soc.devices)
    chosen = list(known_devices) if devices is None else as_list(devices)
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"`{name}` a second time", file="MODELS", allowed="each model once")
    used = chosen if draft is None else [*chosen, draft_device]
    for noun, given, known in (("format of weights", formats, _FORMATS), ("device", used, known_devices)):
        for name in given:
            if name not in known:
                raise UnknownNameError(noun, name, known)
    lengths = None if growth is None else _lengths(growth)
    if draft is None:
        from npusim.api.asking import changed, refuse_ignored

        of_draft = {"draft_device": (draft_device, "npu"), "guesses": (guesses, 4)}
        refuse_ignored(changed(of_draft | {"acceptance": (acceptance, 0.7)}), "only with `--draft`")
        return compared(names, machine, formats, chosen, lengths)
    drafts = [
        speculation((draft, draft_device), target, machine, guesses, acceptance)
        for target in product(names, chosen)
    ]
    return compared(names, machine, formats, chosen, lengths).model_copy(update={"speculation": drafts})


def _lengths(growth: str | Sequence[int]) -> tuple[int, int]:
    """Return two lengths of the cache, the shorter one first."""
    allowed = "two different numbers of places, such as 128,2048"
    lengths = sorted(as_numbers(growth, int, "--growth", allowed, 1e9))
    if len(lengths) != 2 or lengths[0] == lengths[1]:
        raise ConfigError(f"`{growth}`", file="--growth", allowed=allowed)
    return lengths[0], lengths[1]


COMMAND = Command(
    "npusim.llm.command:language_models",
    {
        "models": argument("[MODEL]...", many=True),
        "weights": option("LIST"),
        "devices": option("LIST"),
        "draft": option("MODEL"),
        "draft_device": option("NAME"),
        "guesses": option("N", min=1, max=64),
        "acceptance": option("SHARE", min=0.0, max=0.99),
        "growth": option("SHORT,LONG"),
        **WRITTEN,
    },
    fields=("soc", "settings"),
    page="npusim.llm.page:language_page",
)
