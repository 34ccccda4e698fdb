# make demo    set up, cache MiniLM on the built-in tasks, probe every layer, draw the figures
# make test    set up, run the tests
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# each module is compiled when it is first imported, and not again by each of the many processes that the tests start
export PYTHONDONTWRITEBYTECODE =
# options for pip: make PIP_FLAGS="--extra-index-url ADDRESS" demo
PIP_FLAGS ?=
# most installed modules are never imported, and compiling all of them takes half of the time
PIP := $(BIN)/python -m pip install --quiet --no-compile $(PIP_FLAGS) -c constraints.txt
# two plug-ins that other targets or packages need take three seconds in each process, most of it to build a parser of addresses
PYTEST := $(BIN)/python -m pytest -p no:nbmake -p no:zarr

.PHONY: setup demo test coverage test-slow lint docs notebooks notebooks-write calibration bench bench-probes bench-edge bench-mi bench-training bench-elmo bench-domains attacks clean

$(VENV)/.demo: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch
	$(PIP) -e ".[demo]"
	touch $@

$(VENV)/.dev: $(VENV)/.demo
	$(PIP) -e ".[dev]"
	touch $@

# both are there before several targets run at once
setup: $(VENV)/.dev

demo: $(VENV)/.demo
	HF_HUB_OFFLINE=1 $(BIN)/probekit demo

test: $(VENV)/.dev
	HF_HUB_OFFLINE=1 $(PYTEST) -m "not slow" -n logical --dist loadfile
	NUMBA_DISABLE_JIT=1 $(PYTEST) -m "not slow" -n logical tests/information/test_null.py tests/information/test_edge.py

coverage: $(VENV)/.dev
	HF_HUB_OFFLINE=1 $(PYTEST) -m "not slow" -n logical --dist loadfile --cov --cov-report=term

test-slow: $(VENV)/.dev
	HF_HUB_OFFLINE=1 $(PYTEST) -m slow -n logical --dist loadfile

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/numpydoc lint $$(git ls-files 'probekit/*.py' | grep -v ^probekit/cli/)
	$(BIN)/mypy
	@if [ -x $(BIN)/pip-audit ]; then $(BIN)/pip-audit --progress-spinner off --skip-editable; \
	else echo "pip-audit is not installed (pip install -e .[audit]): the check for known vulnerabilities is skipped"; fi

# the site, docs/_build/html/index.html: every warning, such as a broken link, is an error
docs: $(VENV)/.dev
	HF_HUB_OFFLINE=1 $(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html

figures/demo/layers.parquet: | $(VENV)/.demo
	$(MAKE) demo

# two processes, the longest notebooks first; CI runs only 01
NOTEBOOKS ?= 03 09 07 05 04 08 02 06 01
notebooks: figures/demo/layers.parquet $(VENV)/.dev
	HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest --nbmake --nbmake-timeout=600 -n 2 \
		$(foreach n,$(NOTEBOOKS),$(wildcard notebooks/$(n)_*.ipynb))

# the same, with the outputs written into the notebooks: after a change of their code, or of what it shows
notebooks-write: figures/demo/layers.parquet $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python notebooks/write.py $(wildcard notebooks/*.ipynb)

# the rates of docs/tables/calibration.csv: an hour or two at the small size
calibration: $(VENV)/.dev
	$(BIN)/python benchmarks/calibration.py --write

bench: $(VENV)/.dev
	HF_HUB_OFFLINE=1 $(BIN)/python benchmarks/cache.py

bench-probes: $(VENV)/.dev
	$(BIN)/python benchmarks/probes.py

bench-edge: $(VENV)/.dev
	$(BIN)/python benchmarks/edge.py
	$(BIN)/python benchmarks/mi_layers.py

bench-mi: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/mi_accuracy.py

bench-training: $(VENV)/.dev
	HF_HUB_OFFLINE=1 $(BIN)/python benchmarks/feature_extraction.py
	HF_HUB_OFFLINE=1 $(BIN)/python benchmarks/fine_tuning.py
	HF_HUB_OFFLINE=1 $(BIN)/python benchmarks/token_memory.py

bench-elmo: $(VENV)/.dev
	HF_HUB_OFFLINE=1 $(BIN)/python benchmarks/elmo.py

bench-domains: $(VENV)/.dev
	$(BIN)/python benchmarks/divergence.py

# an hour: kills inside writes, flipped bits, damaged files, bad arguments; each must end in the same numbers or in a sentence
attacks: $(VENV)/.dev
	$(BIN)/python benchmarks/kills.py --kills 330
	$(BIN)/python benchmarks/damages.py --damages 540
	HF_HUB_OFFLINE=1 $(BIN)/python benchmarks/flips.py --flips 1000
	HF_HUB_OFFLINE=1 $(PYTEST) -m slow tests/test_fuzz_readers.py tests/test_fuzz_structure.py tests/test_fuzz_arguments.py tests/cli/test_hostile_arguments.py

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache .coverage* docs/_build docs/api docs/api.md docs/commands docs/gallery docs/jupyter_execute
