"""What a run of the tests prints: a line per file, processor time of the slowest, why tests are skipped."""

import os
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

SLOWEST = 20
"""Tests named with their processor time at the end."""


def spent_s() -> float:
    """Return the processor time of this process and of the children that have ended."""
    return sum(os.times()[:4])


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--by-file` and `--processor-times`."""
    parser.addoption("--by-file", action="store_true", help="print a line for each file in place of dots")
    parser.addoption("--processor-times", metavar="FILE", help="write the processor time of each test here")


def pytest_configure(config: pytest.Config) -> None:
    """Follow the tests from here on."""
    config.pluginmanager.register(Progress(config), "npusim-progress")


class Progress:
    """Counts outcomes and processor time, by test and by file.

    Each worker measures its tests; the process that shows results adds them up. `processor_s` of a report is
    the processor time since the report before: a fixture counts with the first test that asks for it.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.config, self.by_file = config, config.getoption("--by-file")
        self.last_s, self.began_s = spent_s(), spent_s()
        self.wanted: Counter[str] = Counter()
        self.done: Counter[str] = Counter()
        self.outcomes: dict[str, Counter[str]] = {}
        self.spent: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: object) -> Generator[None, Any, Any]:
        """Note the processor time of a step of a test in its report."""
        report = yield
        now_s = spent_s()
        report.processor_s, self.last_s = now_s - self.last_s, now_s
        return report

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Count the tests of each file, where one process runs all."""
        self._want([item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Count the tests of each file, where workers run them."""
        self._want(ids)

    def _want(self, ids: list[str]) -> None:
        self.wanted = Counter(one.partition("::")[0] for one in ids)

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Print no dot for a test that passed or was skipped, where lines stand for files."""
        if self.by_file and report.outcome != "failed" and not hasattr(report, "wasxfail"):
            is_counted = report.when == "call" or report.skipped
            return (report.outcome if is_counted else "", "", "")
        return None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add up a step of a test; after the last one of a file print its line."""
        file = report.nodeid.partition("::")[0]
        outcomes = self.outcomes.setdefault(file, Counter())
        self.spent[report.nodeid] += getattr(report, "processor_s", 0.0)
        if report.when == "call" or report.outcome != "passed":
            outcomes[report.outcome] += 1
        if report.skipped and isinstance(report.longrepr, tuple):
            self.skipped[report.longrepr[2].removeprefix("Skipped: ")] += 1
        if report.failed and self.by_file:
            self._print(f"FAILED {report.nodeid} ({report.when})")
        if report.when == "teardown":
            self.done[file] += 1
            if self.by_file and self.done[file] == self.wanted[file]:
                self._print_file(file)

    def _print_file(self, file: str) -> None:
        spent_s = sum(seconds for test, seconds in self.spent.items() if test.partition("::")[0] == file)
        complete = sum(self.done[one] == count for one, count in self.wanted.items())
        parts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(self.outcomes[file].items()))
        self._print(f"[{complete:3}/{len(self.wanted)}] {file}: {parts} ({spent_s:.1f} s of processor time)")

    def _print(self, line: str) -> None:
        reporter: Any = self.config.pluginmanager.get_plugin("terminalreporter")
        if reporter and not hasattr(self.config, "workerinput"):
            reporter.ensure_newline()
            reporter.write_line(line, flush=True)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Name the tests that took most processor time."""
        total_s = sum(self.spent.values())
        if total_s < 1.0:
            return
        terminalreporter.section(f"processor time: {total_s:.0f} s in {len(self.spent)} tests; the slowest")
        for test, seconds in self.spent.most_common(SLOWEST):
            terminalreporter.write_line(f"{seconds:7.1f} s  {test}")
        path = self.config.getoption("--processor-times")
        if path:
            lines = (f"{seconds:.2f}\t{test}\n" for test, seconds in self.spent.most_common())
            Path(path).write_text("".join(lines), encoding="utf-8")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self) -> Generator[None, Any, Any]:
        """Say in the last line what was skipped and why."""
        yield
        if self.wanted:
            self._print(skipped_line(self.skipped))


def skipped_line(reasons: Counter[str]) -> str:
    """Return one line: how many tests were skipped, by reason, the most frequent first.

    >>> skipped_line(Counter({"no browser: none is installed": 30, "no torch": 5}))
    'skipped: 35 tests: no browser: none is installed (30), no torch (5)'
    """
    if not reasons:
        return "skipped: no test"
    parts = (f"{' '.join(reason.split())} ({count})" for reason, count in reasons.most_common())
    total = sum(reasons.values())
    return f"skipped: {total} test{'' if total == 1 else 's'}: {', '.join(parts)}"
