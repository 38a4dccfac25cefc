from pathlib import Path
from runpy import run_path

WHAT = "event engine on a chain of so many operators, start included"
WANTED = "1.5, 3, 15 s"
_CODE = run_path(str(Path(__file__).with_name("20_chains.py")))["_CODE"]
COMMANDS = {
    f"{n:,}": ["-c", _CODE.format(n=n, call="estimate", more=', engine="event"')]
    for n in (100, 1_000, 10_000)
}
LIMIT_S = 100
