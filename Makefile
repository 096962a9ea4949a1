# `make demo` and `make test` need Python 3.11 or later and make, nothing else; which Python,
# PYTHON=python3.13 VENV=.venv313 says.
PYTHON ?= python3
VENV ?= .venv
EXTRAS ?= test
# Installed uncompiled: what is imported is compiled once, and kept, whatever the environment says.
export PYTHONDONTWRITEBYTECODE =
RUN = $(VENV)/bin/python
ALGOS = erm padain sagnet
EIGHT = erm stylized_erm debiased infodrop sagnet padain
STUDY = $(EIGHT) mixup cutmix rand_conv mixstyle efdmix gaussian_noise
ATTACKED = 0.00392 0.00784 0.01569 0.03137
IMAGES = 160
TRIALS = 231
SEED = 0
TESTS =
CASES =
MINOR = 'import sys; print("%d.%d" % sys.version_info[:2])'
# Which must hold under the newest Python: what depends on jax and orbax most.
NEWEST_TESTS = tests/test_private.py tests/runs/test_checkpoints.py \
	tests/runtime/test_processes.py \
	$(addprefix tests/training/test_,$(addsuffix .py,convolutions chunked_gradients replaced_convolutions seed_axis seed_layout step))

.PHONY: same-python demo eight study chaos cases test test-newest smoke test-all docs notebook lint types format clean

# Stamps, so that an interrupted installation is taken up again. To train takes a third of
# the packages that all tests need.
$(VENV)/.train: EXTRAS = train
$(VENV)/.installed $(VENV)/.train: setup.cfg pyproject.toml | same-python
	$(PYTHON) -c 'import sys; sys.exit("make: Python 3.11 or later is needed, this is " + sys.version.split()[0] + "; name another with PYTHON=...") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check --no-compile --editable '.[$(EXTRAS)]'
	touch $@

# An environment of another Python than the one that is asked for is not used in its place.
same-python:
ifneq ($(origin PYTHON),file)
	@asked=$$($(PYTHON) -c $(MINOR)) || exit; found=$$(test ! -e $(RUN) || $(RUN) -c $(MINOR)); \
	test "$${found:-$$asked}" = "$$asked" || { echo "make: $(VENV) has Python $$found, PYTHON=$(PYTHON) is $$asked; name another environment with VENV=..., or run make clean" >&2; exit 1; }
endif

# Minutes on two cores.
demo: $(VENV)/.train
	.ci/demo $(RUN) $(ALGOS)

# The benchmark's eight, in an hour or more.
eight: $(VENV)/.train
	for net in cae edsr; do $(RUN) -m jbias.prepare deepaugment --net=$$net --data=shapes --split=train --out=prepared/$$net || exit $$?; done
	for net in cae edsr; do $(RUN) -m jbias.main --config=configs/deepaugment.py:nets=$$net,small --workdir=runs/eight/deepaugment_$$net || exit $$?; done
	for algo in $(EIGHT); do $(RUN) -m jbias.main --config=configs/$$algo.py:small --workdir=runs/eight/$$algo || exit $$?; done
	$(RUN) -m jbias.report --runs='runs/eight/*' --reference=erm --out=report-eight

# Which biases go with which generalisation, over sixteen networks trained here; the
# attacked ones within 1, 2, 4 and 8 of 255.
study: $(VENV)/.train
	for algo in $(STUDY); do $(RUN) -m jbias.main --config=configs/$$algo.py:small,seeds=1 --workdir=runs/study/$$algo || exit $$?; done
	for eps in $(ATTACKED); do $(RUN) -m jbias.main --config=configs/pgd.py:small,seeds=1 --config.algo.eps=$$eps --workdir=runs/study/pgd-$$eps || exit $$?; done
	$(RUN) -m jbias.evaluate --checkpoint='runs/study/*' --suite=configs/suites/biases.py:images=$(IMAGES) --out=measured/study
	$(RUN) -m jbias.report.biases --measured='measured/study/*' --out=report-study

# At least 200 faults of many kinds, each over a small real run; none may lose anything.
# What was stopped goes on, if the code is the same; `rm -rf runs/chaos` begins anew.
chaos: $(VENV)/.installed
	$(RUN) -m qa.chaos --trials=$(TRIALS) --seed=$(SEED)

# Every case of a folder, in turn: `make cases CASES=DIR`. A case is DIR/NAME/run.sh or DIR/GROUP/NAME.sh;
# it runs from here with PY=the environment's Python, and is right when it ends with exit code 0.
cases: $(if $(CASES),$(VENV)/.installed)
	@test -n "$(CASES)" || { echo "make: CASES is missing; name a folder of cases, as in make cases CASES=DIR" >&2; exit 2; }
	@$(RUN) -m qa.run_cases "$(CASES)"

# The pages open from the folder, without a network: build/site/index.html.
docs: $(VENV)/.installed
	$(RUN) -m mkdocs build --strict

# Runs the notebook in place.
notebook: $(VENV)/.installed
	$(RUN) notebooks/run.py notebooks/start.ipynb

lint: $(VENV)/.installed
	$(RUN) -m ruff format --check .
	$(RUN) -m ruff check .

# The types of docs/api.md's modules; half a minute on one core, too long for every test.
types: $(VENV)/.installed
	$(RUN) -m pip install --quiet --disable-pip-version-check --editable '.[types]'
	mkdir -p build/types/jbias
	ln -sfn ../../../configs ../../../launch ../../../jbias/__init__.py build/types/jbias/
	$(RUN) -m pyright --pythonpath $(RUN)

format: $(VENV)/.installed
	$(RUN) -m ruff format .
	$(RUN) -m ruff check --fix .

# Most of the time goes into compiling small programs that run once. Leaving out optimisations saves
# half of it, and the older of XLA's two emitters of fusions saves more. What was compiled is kept for
# the other worker and the next run. Newer versions of jaxlib do not know the older emitter and exit
# when its flag is set, so that jaxlib is started with it once to see.
FAST = --xla_backend_optimization_level=0
FASTER = $(FAST) --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1
PYTEST = JAX_COMPILATION_CACHE_DIR=$(CURDIR)/build/xla JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0 \
	JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES=-1 $(RUN) -m pytest -n 2 --dist loadfile
test: lint
	if (XLA_FLAGS="$(FASTER)" JAX_PLATFORMS=cpu $(RUN) -c 'import jax; jax.devices()') 2>/dev/null; \
	then fast="$(FASTER)"; else fast="$(FAST)"; fi; \
	XLA_FLAGS="$$XLA_FLAGS $$fast" $(PYTEST) -m 'not slow' $(TESTS)

# In an environment of its own, which takes the newest packages that a run and these tests
# need; the smoke run first.
test-newest:
	@newest=$$(.ci/newest $(PYTHON)) || exit; \
	if [ -z "$$newest" ]; then echo "make: no Python here is newer than $$($(PYTHON) -V), nothing more to test"; exit; fi; \
	set -ex; new="$(MAKE) PYTHON=$$newest VENV=.venv-newest EXTRAS=check,gcs,launch"; \
	rm -rf build/smoke; $$new smoke; $$new test TESTS="$(NEWEST_TESTS)"

smoke: $(VENV)/.installed
	$(RUN) -m jbias.main --config=configs/erm.py:smoke --workdir=build/smoke

# What compares bits compiles with all optimisations.
test-all: test
	$(PYTEST) -m slow

clean:
	rm -rf $(VENV) .venv-newest build dist *.egg-info .pytest_cache .ruff_cache
