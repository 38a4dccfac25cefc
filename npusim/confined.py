"""Runs a function in a child process under limits that the operating system holds.

Foreign expressions and the parsers of foreign files run so: where one takes all memory, never ends or ends
its process, npusim says so in one message. Windows has no such limits: there time alone is limited.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from npusim.errors import NpusimError

_END_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl(2)
_START_S = 60.0
"""Time to start the child, on a busy machine."""
_NOT_ENOUGH_MEMORY, _BUG, _DONE = 3, 70, 71
"""Ends of the child; its 0 is that of foreign code, which may call `os._exit`."""
Work = Callable[..., None]
"""Writes its result to a binary stream, its first argument; further arguments are values of JSON."""


def confined(work: str, *arguments: Any, seconds: float, most_bytes: int, what: str, remedy: str) -> bytes:
    """Return what a function writes in a child process.

    Parameters
    ----------
    work : str
        The function as `module:name`; see `Work`.
    seconds : float
        Time for the work, once its module is loaded.
    most_bytes : int
        Memory for the work beside what its module takes.
    what, remedy : str
        The work in a message, such as "the query", and what to do where it exceeds a limit.

    Raises
    ------
    NpusimError
        As the function raises it; where a limit is exceeded; where the child dies.
    """
    request = json.dumps([work, arguments, seconds, most_bytes]).encode()
    path = os.pathsep.join(folder or str(Path.cwd()) for folder in sys.path)
    environment = os.environ | {"PYTHONPATH": path, "MALLOC_ARENA_MAX": "2"}
    start = "from npusim.confined import serve; serve()"
    late = f"{what} takes more than {seconds:g} seconds; {remedy}"
    try:
        child = subprocess.run(
            [sys.executable, "-P", "-c", start],
            input=request,
            capture_output=True,
            env=environment,
            timeout=seconds + _START_S,
            check=False,
            start_new_session=True,  # Ctrl-C reaches this process alone, which ends the child
        )
    except subprocess.TimeoutExpired:
        raise NpusimError(late) from None
    except OSError as problem:  # too few files or processes
        raise NpusimError(f"{what} cannot run in a process of its own: {problem.strerror}") from None
    if child.returncode == _DONE:
        return child.stdout
    error = child.stderr.decode(errors="replace")
    if child.returncode == NpusimError.exit_status:
        raise NpusimError(error)
    if child.returncode == _BUG:
        raise RuntimeError(error)
    if child.returncode == _NOT_ENOUGH_MEMORY:
        raise NpusimError(f"{what} takes more than {most_bytes >> 20} MiB of memory; {remedy}")
    if -child.returncode == getattr(signal, "SIGALRM", None):
        raise NpusimError(late)
    how = signal.Signals(-child.returncode).name if child.returncode < 0 else f"status {child.returncode}"
    raise NpusimError(f"{what} ended its process ({how}); {remedy}")


def serve() -> None:
    """Run what the request on standard input asks for; libraries cannot write into the answer."""
    answer, complaint = (os.fdopen(os.dup(number), "wb") for number in (1, 2))
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    name, arguments, seconds, most_bytes = json.load(sys.stdin)
    work: Work = resolve_name(name)
    import traceback

    text = ""
    try:
        limit(seconds, most_bytes)
        work(answer, *arguments)
        answer.flush()
        status = _DONE
    except MemoryError:
        status = _NOT_ENOUGH_MEMORY
    except NpusimError as error:
        status, text = NpusimError.exit_status, str(error)
    except KeyboardInterrupt:  # not the user's, whose Ctrl-C does not come here
        status = 1
    except BaseException:
        status, text = _BUG, traceback.format_exc()
    complaint.write(text.encode(errors="replace"))
    complaint.flush()
    os._exit(status)  # libraries that are out of memory do not end well


def limit(seconds: float, most_bytes: int) -> None:
    """Let the system end this process after some time, and give it no more than so much further memory."""
    try:
        import resource
    except ImportError:  # on Windows
        return
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    in_use = Path("/proc/self/statm")
    if in_use.exists():  # on Linux
        ctypes.CDLL(None).prctl(_END_WITH_PARENT, signal.SIGKILL)
        # Files that a reader maps do not count: the weights of a model may be larger than memory.
        most = int(in_use.read_text().split()[5]) * resource.getpagesize() + most_bytes
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
