"""npusim: what would this network cost on that NPU, and what if?

The public interface. Each name is imported from its package on first use, so that `import npusim` is fast.
`__init__.pyi` lists the names of the core; packages announce further calls as `npusim.calls`.
"""

import _signal as signal  # at once, unlike `signal`
import sys

_as_module = sys.argv[:1] == ["-m"] and "npusim" in sys.orig_argv
_as_program = _as_module or "".join(sys.argv[:1]).endswith(("/npusim", "\\npusim.exe"))
if _as_program and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # Until `npusim.cli.main` catches Ctrl-C, it ends the process without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from npusim.lazy import lazy_names  # noqa: E402

__version__ = "0.1.0"

_get, _names, _public = lazy_names(__name__)

__all__ = ["__version__", *_public]


def __getattr__(name: str) -> object:
    if name in _public or name.startswith("__"):
        return _get(name)
    from npusim.plugins import announced, load

    calls = announced("npusim.calls")
    return load(calls[name], "call") if name in calls else _get(name)


def __dir__() -> list[str]:
    from npusim.plugins import announced

    return sorted({*_names(), *announced("npusim.calls")})
