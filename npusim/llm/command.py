"""``npusim llm``: which language model fits a machine, and how fast it is on each device."""

from __future__ import annotations

from typing import Annotated

import typer

from npusim.cli.options import Format, Output, Settings, SocName, argument, option
from npusim.errors import ConfigError, UnknownNameError
from npusim.locate import DEFAULT_SOC

app = typer.Typer(rich_markup_mode="rich", add_completion=False)

_EXAMPLES = """
[dim]Examples[/dim]
  npusim llm --soc core-ultra-nitro
  npusim llm llama3.2-1b --weights int8,int4 --devices gpu --set workload.max_sequence=2048
  npusim llm llama3-8b --soc core-ultra-nitro --weights fp16 --growth 128,2048
  npusim llm --soc core-ultra-nitro -o models.html
  npusim llm llama3-8b --devices gpu --draft llama3.2-1b --draft-device npu --acceptance 0.7
"""
_FORMATS = ("fp16", "int8", "int4")
_MODELS = ("llama3.2-1b", "llama3.2-3b", "llama3-8b")


@app.command(epilog=_EXAMPLES)
def llm(
    models: Annotated[
        list[str] | None, argument("[MODEL]...", "Workloads of kind llm; none: the shipped ones.")
    ] = None,
    soc: SocName = DEFAULT_SOC,
    weights: Annotated[
        str, option("--weights LIST", "Formats of weights: fp16, int8, int4.")
    ] = "fp16,int8,int4",
    devices: Annotated[str | None, option("--devices LIST", "Devices; none: all of the SoC.")] = None,
    draft: Annotated[str | None, option("--draft MODEL", "A smaller model that guesses tokens.")] = None,
    draft_device: Annotated[str, option("--draft-device NAME", "Where it runs.")] = "npu",
    guesses: Annotated[int, option("--guesses N", "Tokens that it guesses in a round.", min=1, max=64)] = 4,
    acceptance: Annotated[
        float, option("--acceptance SHARE", "Guesses that are accepted.", min=0.0, max=0.99)
    ] = 0.7,
    growth: Annotated[
        str | None,
        option("--growth SHORT,LONG", "Also each pass over a cache of so many places, short and long."),
    ] = None,
    settings: Settings = None,
    form: Format = None,
    output: Output = None,
) -> None:
    """Compare language models on a machine: time of a token, time to the first one, memory, energy."""
    from npusim.arch import load_soc
    from npusim.cli.output import Destination
    from npusim.llm.study import language_models, speculation
    from npusim.scenario import split_settings

    destination = Destination(output, form)
    of_workload, of_soc = split_settings(settings or ())
    machine = load_soc(soc, of_soc)
    formats, wanted = weights.split(","), devices.split(",") if devices is not None else list(machine.devices)
    for given, known, what in (
        (formats, ("fp16", "int8", "int4"), "format of weights"),
        (wanted, machine.devices, "device"),
    ):
        for name in given:
            if name not in known:
                raise UnknownNameError(what, name, known)
    lengths = _lengths(growth) if growth is not None else None
    found = language_models(models or _MODELS, machine, formats, wanted, of_workload, lengths)
    if draft is not None:
        pairs = [(model, device) for model in models or _MODELS for device in wanted]
        guessed = [
            speculation((draft, draft_device), pair, machine, guesses, acceptance, of_workload)
            for pair in pairs
        ]
        found = found.model_copy(update={"speculation": guessed})

    from npusim.llm.page import language_page

    destination.write(lambda: language_page(found), found)


def _lengths(text: str) -> tuple[int, int]:
    """Return two lengths of the cache, the shorter one first."""
    parts = text.split(",")
    if len(parts) != 2 or not all(part.strip().isdecimal() and len(part) < 10 for part in parts):
        raise ConfigError(f"`{text}`", file="--growth", allowed="two numbers of places, such as 128,2048")
    short, long = sorted(int(part) for part in parts)
    if short == long:
        raise ConfigError(f"`{text}`", file="--growth", allowed="two different numbers of places")
    return short, long
