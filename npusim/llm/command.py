"""``npusim llm``, `npusim.language_models`: which language model fits a machine, and how fast."""

from npusim.cli.options import WRITTEN, Command, argument, option

COMMAND = Command(
    "npusim.llm.study:language_models",
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
