WHAT = "estimate of a chain of so many operators, start included"
WANTED = "1.2, 1.4, 4, 40 s; memory in proportion"
_CODE = """
import npusim
from npusim import DType, Editor
editor = Editor("chain")
widths = [32 + 16 * (i * 7 % 5) for i in range({n} + 1)]
value = editor.input("x", (64, widths[0]), DType.FP16)
for i in range({n}):
    weights = editor.constant(f"w{{i}}", (widths[i], widths[i + 1]), DType.FP16)
    value = editor.matmul(value, weights, f"product{{i}}")
editor.outputs.append(value)
npusim.{call}(editor.finish(), npusim.load_soc("core-ultra-series2"){more})
"""
COMMANDS = {
    f"{n:,}": ["-c", _CODE.format(n=n, call="estimate", more="")] for n in (100, 1_000, 10_000, 100_000)
}
LIMIT_S, PROFILE = 120, "10,000"
