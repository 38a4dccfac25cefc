# Everything a newcomer needs: `make demo` to see it run, `make test` to check it. `make help` lists the rest.

PYTHON ?= python3
# Extra arguments for the one pip call that installs torch, such as the index of CPU-only wheels.
TORCH_ARGS ?=
TORCH := torch==2.13.0

# All paths are relative, so that a checkout below a folder with a space in its name works too.
VENV := .venv
ifeq ($(OS),Windows_NT)
BIN := $(VENV)/Scripts
VENV_PYTHON := $(BIN)/python.exe
else
BIN := $(VENV)/bin
VENV_PYTHON := $(BIN)/python
endif
PIP := $(VENV_PYTHON) -m pip --disable-pip-version-check --quiet
INSTALL := $(PIP) install --constraint constraints.txt
PIN_FILES := pyproject.toml constraints.txt

# The stamps of an environment whose interpreter has gone, as after an upgrade of Python, mean nothing any more.
$(shell test -x $(VENV_PYTHON) || rm -f $(VENV)/.created $(VENV)/.core-installed $(VENV)/.dev-installed)

.DEFAULT_GOAL := help
.PHONY: help demo test laws golden lint format kernels bench site fit slow calm clean check-python

# Two processes; a file stays with one as long as the other has work, so that it shares what its tests make.
PYTEST := $(VENV_PYTHON) -m pytest -q -n 2 --dist worksteal --by-file

help:  ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' Makefile

demo: $(VENV)/.core-installed  ## install what the main job needs and run it
	$(BIN)/npusim whatif gcn-cora --soc core-ultra-series2

test: lint  ## run all checks, a few cases of each; some six minutes on two cores
	$(PYTEST)

# Tests of the kernels, which run with every index checked.
KERNEL_TESTS := $(addprefix tests/test_,candidate_table.py cost_kernel.py cost_laws.py arrays.py shared_search.py levels.py)
LAWS := -m "(laws or hypothesis) and not slow and not calm" --hypothesis-profile=laws

laws: $(VENV)/.dev-installed  ## run property tests with all examples and every case, those of kernels with bounds checked
	NPUSIM_KERNELS=checked $(PYTEST) $(LAWS) $(KERNEL_TESTS)
	$(PYTEST) $(LAWS) $(addprefix --ignore=,$(KERNEL_TESTS))

lint: $(VENV)/.dev-installed  ## ruff, mypy and the floors of the design
	$(VENV_PYTHON) -m ruff check .
	$(VENV_PYTHON) -m ruff format --check .
	$(VENV_PYTHON) -m mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev-installed  ## let ruff lay out the code
	$(VENV_PYTHON) -m ruff check --fix .
	$(VENV_PYTHON) -m ruff format .

kernels: $(VENV)/.dev-installed  ## compile the kernels that npusim brings, after a change of one
	$(VENV_PYTHON) scripts/ship_kernels.py

bench: $(VENV)/.dev-installed  ## measure speed and memory before and after, write docs/performance.md; ROWS="sram pareto" for some
	$(VENV_PYTHON) -m benchmarks.harness $(ROWS) $(if $(BASE),--base $(BASE))

site: $(VENV)/.dev-installed  ## build the documentation site into site/, lessons as static pages into site/learn/
	$(VENV_PYTHON) -m mkdocs build --strict
	$(BIN)/npusim learn --export site/learn

fit: $(VENV)/.dev-installed  ## fit the units' numbers again and write them into configs/
	for unit in dma dpu dsp; do $(VENV_PYTHON) -m npusim.calibration $$unit --write || exit 1; done

golden: $(VENV)/.dev-installed  ## print which errors of the validation suites moved since tests/golden.json was written
	$(VENV_PYTHON) scripts/golden.py

slow: $(VENV)/.dev-installed  ## run what takes minutes: browsers, installations, soaks, the rest of the cases
	$(VENV_PYTHON) -m pytest -q --by-file -m slow --hypothesis-profile=laws

calm: $(VENV)/.dev-installed  ## run the tests that need a machine with nothing else to do
	$(VENV_PYTHON) -m pytest -m calm

clean:  ## remove the environment and every cache
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .benchmarks dist
	find npusim tests -name __pycache__ -type d -prune -exec rm -rf {} +

check-python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "npusim needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>/dev/null || echo missing)." >&2; \
	  echo "Name another one: make PYTHON=python3.12 ..." >&2; exit 1; }

# An interrupted installation can leave an environment without a working pip: such a one is made again.
$(VENV)/.created: | check-python
	@$(VENV_PYTHON) -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@touch $@

# The build backend comes first and the build is not isolated, so that pip asks no index for what is there already.
$(VENV)/.core-installed: $(VENV)/.created $(PIN_FILES)
	$(INSTALL) hatchling
	$(INSTALL) --no-build-isolation --editable .
	@touch $@

# torch goes first and by itself: any other order lets pip consider its builds for graphics cards.
$(VENV)/.dev-installed: $(VENV)/.created $(PIN_FILES)
	$(INSTALL) hatchling
	$(INSTALL) $(TORCH_ARGS) $(TORCH)
	$(INSTALL) --no-build-isolation --editable ".[all,dev]"
	@touch $(VENV)/.core-installed $@
