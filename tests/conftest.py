"""What all tests share: where the real datasets are, and how hypothesis runs."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from npusim.locate import DATA_VARIABLE, dataset_root

REPOSITORY = Path(__file__).resolve().parents[1]

# OpenVINO reports imports and conversions, by processes forked in threads, unless this is set.
os.environ.setdefault("TF_BUILD", "npusim")

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

LOOK_FURTHER = "NPUSIM_RANDOM_EXAMPLES"

# No clock decides: the first call of a compiled kernel takes seconds, and other programs run. Examples are
# the same in every run, so that a red one can be repeated; with the variable set they differ and are more.
LAWS = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
    max_examples=100 if os.environ.get(LOOK_FURTHER) else 50,
    derandomize=not os.environ.get(LOOK_FURTHER),
)
"""How `make laws` runs property tests: as often as each of them says, or 50 times."""
QUICK = settings(LAWS, max_examples=6)
"""How `make test` runs them: at most so often, whatever they say."""
settings.register_profile("laws", LAWS)
settings.register_profile("quick", QUICK)
settings.load_profile("quick")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Bound the examples of a property test by the profile: its own `max_examples` stands above a profile."""
    test = getattr(item, "function", None)
    own = getattr(test, "_hypothesis_internal_use_settings", None)
    if own is not None and item.config.getoption("--hypothesis-profile") in (None, "quick"):
        test._hypothesis_internal_use_settings = settings(
            own, max_examples=min(own.max_examples, QUICK.max_examples)
        )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave pages in a browser to `make slow`, and all but some cases of a `few` test to `make laws`.

    The cases that stay are evenly spaced.
    """
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if "chromium" in getattr(item, "fixturenames", ()):
            item.add_marker("slow")
        if item.get_closest_marker("few") and not item.get_closest_marker("slow"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for every in cases.values():
        mark = every[0].get_closest_marker("few")
        wanted = min(mark.args[0], len(every)) if mark else 0
        kept = {i * len(every) // wanted for i in range(wanted)}
        for i, item in enumerate(every):
            if i not in kept:
                item.add_marker("laws")


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return REPOSITORY


@pytest.fixture(scope="session")
def planetoid_root() -> Path:
    """The folder that holds ``cora/raw/ind.cora.*`` and ``citeseer/raw/ind.citeseer.*``.

    Where CI is set a missing folder fails the test that asks for it; elsewhere the test is skipped.
    """
    root = dataset_root() or REPOSITORY.parent / "shared" / "data" / "planetoid"
    missing = [
        name for name in ("cora", "citeseer") if not (root / name / "raw" / f"ind.{name}.graph").is_file()
    ]
    if not missing:
        return root
    reason = f"no raw files of {' and '.join(missing)} in {root}; set {DATA_VARIABLE} to where they are"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def own_main() -> Iterator[None]:
    """Put the main module of the process back: marimo sets one that no process can start from."""
    main = sys.modules["__main__"]
    yield
    sys.modules["__main__"] = main


@pytest.fixture(scope="session")
def chromium() -> Iterator[Callable[..., Any]]:
    """Start a Chromium of the system with some arguments; tests that ask are skipped where there is none.

    Playwright can run once in a process, so all tests of pages share it.
    """
    api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    path = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if path is None:
        pytest.skip(f"no browser: none of {', '.join(_BROWSERS)} is installed")
    with api.sync_playwright() as playwright:
        started: list[Any] = []

        def start(*arguments: str) -> Any:
            started.append(playwright.chromium.launch(executable_path=path, args=list(arguments)))
            return started[-1]

        yield start
        for browser in started:
            browser.close()


@pytest.fixture(scope="session")
def inaccessible() -> Callable[[Any], list[str]]:
    """Return what axe-core finds on a page that is open: rule, impact and element of each violation.

    The script of axe-core stands in the package `axe-playwright-python`, so nothing is downloaded.
    """
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe-core is not installed"
    ).Axe()

    def run(page: Any) -> list[str]:
        violations = axe.run(page, options={"resultTypes": ["violations"]}).response["violations"]
        return [
            f"{one['impact']}: {one['id']} {node['html'][:200]}"
            for one in violations
            for node in one["nodes"]
        ]

    return run


@pytest.fixture(scope="session", autouse=True)
def no_words_about_time() -> None:
    """Let no command in this process say how far it is, or that it compiles: that depends on the machine."""
    from npusim.cli import output, program

    output._EVERY_S = float("inf")
    program._say_that_it_compiles = lambda: None


@pytest.fixture(scope="session", autouse=True)
def compiled_kernels() -> None:
    """Compile the cost kernels before the first test, so that no command has to say that it does.

    Tests are about compiled code, as long calculations run it; `test_plain_kernels.py` compares. Where two
    processes run tests, the second one begins with what sweeps run, so that neither compiles all.
    """
    if os.environ.get("NPUSIM_KERNELS") != "checked":
        os.environ["NPUSIM_KERNELS"] = "compiled"
    import npusim

    if os.environ.get("PYTEST_XDIST_WORKER", "gw0") != "gw0":
        from npusim.explore.campaign import campaign_of
        from npusim.explore.spaces import load_space

        campaign_of(load_space("gcn-cora")).totals(0, 2)
    npusim.estimate(npusim.load_workload("gcn-cora"), npusim.load_soc("core-ultra-series2"))
