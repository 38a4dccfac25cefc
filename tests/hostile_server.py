"""Runs command lines, each in a process of its own with ceilings, so that a death is one failed case.

    python tests/hostile_server.py

Each line of standard input is a request (`Request` as JSON), each line of standard output its answer
(`Answer`). The server itself only imports npusim and forks, so a case inherits no memory, signal, thread or
processor time that another one left.
"""

import json
import os
import resource
import signal
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass
from io import StringIO
from pathlib import Path
from tempfile import TemporaryFile
from types import FrameType

MOST_S = 20.0
"""Processor time of any refusal; nearly all take a hundredth."""
MOST_MEMORY = 6 << 30
"""Memory beyond what the process has when it begins."""
KILLED_S = 60
"""Further processor time after which the system ends what hears no signal."""
DIED = 99
"""Exit status of a process that an exception left."""
QUERY_S = 2.0
"""Time limit of a query here: endless ones need not run for as long as a user's may."""


@dataclass(frozen=True)
class Request:
    """A command line, the folder where it runs, the kind of kernels and its ceilings."""

    words: list[str]
    folder: str
    kernels: str = "auto"
    most_s: float = MOST_S
    killed_s: int = KILLED_S
    most_memory: int = MOST_MEMORY
    runs_code: bool = False
    """The first word is Python code: how tests of the ceilings misbehave."""


@dataclass(frozen=True)
class Answer:
    """Exit status (minus the signal that ended the process), standard output and error, processor time."""

    status: int
    output: str
    error: str
    processor_s: float


class Server:
    """The process that forks one for each request; it is started again after its end."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def ask(self, request: Request) -> Answer:
        """Run one command line."""
        if self._process is None or self._process.poll() is not None:
            line = [sys.executable, str(Path(__file__))]
            self._process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(asdict(request)) + "\n")
        self._process.stdin.flush()
        return Answer(**json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.communicate()


def ceilings(request: Request) -> None:
    """Let the system end this process beyond some further processor time, and give it no more memory."""

    def late(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"more than {request.most_s} s of processor time")

    used_s = sum(os.times()[:2])
    used_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    for limit, most in (
        (resource.RLIMIT_CPU, int(used_s) + request.killed_s),
        (resource.RLIMIT_AS, used_bytes + request.most_memory),
    ):
        resource.setrlimit(limit, (most, resource.getrlimit(limit)[1]))
    signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, request.most_s)


def _run(request: Request, output: int, error: int) -> None:
    """Run a command line and end this process with its status."""
    from npusim.cli.program import run
    from npusim.compiling.kernels import VARIABLE
    from npusim.explore import query

    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(error, 2)
    os.chdir(request.folder)
    os.environ[VARIABLE] = request.kernels
    query._MOST_SECONDS = QUERY_S
    ceilings(request)
    if request.runs_code:
        exec(request.words[0])
    status = run(request.words)
    signal.setitimer(signal.ITIMER_PROF, 0.0)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _answer(request: Request) -> Answer:
    """Run one command line in a child."""
    with TemporaryFile() as output, TemporaryFile() as error:
        child = os.fork()
        if child == 0:
            try:
                _run(request, output.fileno(), error.fileno())
            except BaseException as problem:  # nothing may go on as a second server
                os.write(2, f"Traceback: {problem!r}\n".encode())
            finally:
                os._exit(DIED)
        _, status, usage = os.wait4(child, 0)
        texts = []
        for file in (output, error):
            file.seek(0)
            texts.append(file.read().decode("utf-8", errors="backslashreplace"))
    return Answer(os.waitstatus_to_exitcode(status), texts[0], texts[1], usage.ru_utime + usage.ru_stime)


def main() -> None:
    """Answer requests until standard input ends."""
    from npusim.cli import output, program

    output._EVERY_S = float("inf")
    program._say_that_it_compiles = lambda: None
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        program.run(["estimate", "nonsense"])  # imports what most commands need
    for line in sys.stdin:
        print(json.dumps(asdict(_answer(Request(**json.loads(line))))), flush=True)


if __name__ == "__main__":
    main()
