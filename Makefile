# Two commands for newcomers: `make demo` and `make test`. `make check` is the inner loop; `make test-servers` needs a
# Kubernetes control plane and PostgreSQL, and gets them itself.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Stories wait for processes, git and probes more than they compute: two of them for every core. Laws only compute.
CORES ?= 2
WORKERS ?= 4
# Each worker has a control plane of its own, of 700 MB.
SERVER_WORKERS ?= 2
# Compiled tests are kept, whatever the environment says: to compile them is two thirds of what collecting them costs.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-servers cluster check campaign pressure chaos bench bench-kubernetes format clean

$(READY): pyproject.toml constraints.txt
	@echo "==> setting up $(VENV): packages are downloaded and installed, which takes a minute or two" >&2
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(READY)
	@echo "==> $(VENV) is ready" >&2

demo: $(READY)  ## the main job on local processes, in under a minute once set up
	@$(BIN)/gitops-agent demo

test: $(READY) tmux  ## everything that needs only Python, git and tmux; static checks beside the tests
	@$(MAKE) --no-print-directory -j 2 check-static check-all

.PHONY: check-all
check-all: $(READY)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m 'not servers' || \
		{ echo "==> once more, alone: what failed beside others on these cores, named above"; \
		$(BIN)/python -m pytest --last-failed --last-failed-no-failures none -m 'not servers'; }

test-servers: $(READY) postgresql  ## against real servers: Kubernetes (built on first use, ten minutes) and PostgreSQL; what cannot run fails
	@test -n "$$GITOPS_AGENT_TEST_KUBECONFIG" || $(BIN)/python -m tests.servers.build >/dev/null
	SERVERS_REQUIRED=1 $(BIN)/python -m pytest -n $(SERVER_WORKERS) --dist worksteal -m servers || \
		{ echo "==> once more, alone: what failed beside two control planes on these cores"; \
		SERVERS_REQUIRED=1 $(BIN)/python -m pytest --last-failed --last-failed-no-failures none -m servers; }

cluster: $(READY)  ## the control plane of the tests, for work by hand: its last line is the path of a kubeconfig, Ctrl-C ends it
	@exec $(BIN)/python -m tests.servers

check: $(READY)  ## the inner loop: format, lint, types, contracts, unit tests; both halves at once
	@$(MAKE) --no-print-directory -j 2 check-static check-unit

.PHONY: check-unit
check-unit: $(READY)
	$(BIN)/python -m pytest -q -n $(CORES) --dist worksteal -m 'unit and not servers'

campaign: $(READY)  ## proof at depth: every law, the machine in memory, kill -9 at every point and in rollouts of real processes
	HYPOTHESIS_PROFILE=campaign $(BIN)/python -m pytest -q -n $(CORES) -m 'law and not servers' -o timeout=1200 --deselect tests/pipeline/test_machine.py
	MACHINE_EXAMPLES=200 MACHINE_STEPS=35 $(BIN)/python -m pytest -q tests/pipeline/test_machine.py
	KILL_POINTS=all $(BIN)/python -m pytest -q -n $(CORES) tests/crash/test_kill.py
	$(BIN)/python -m tests.crash.rollouts --kills $(or $(KILLS),500) $(if $(SEED),--seed $(SEED))

pressure: $(READY)  ## commits as fast as they can be pushed while all goes wrong at random: nothing twice, no report untrue
	$(BIN)/python -m tests.pressure --commits $(or $(COMMITS),60) --seconds $(or $(SECONDS),120) $(if $(SEED),--seed $(SEED))

chaos: $(READY) postgresql  ## two gitops-agents and a real cluster while all goes wrong at random: nothing twice, nothing lost, live as Git
	@$(BIN)/python -m tests.servers.build >/dev/null
	$(BIN)/python -m tests.kubernetes.chaos --commits $(or $(COMMITS),40) --seconds $(or $(SECONDS),120) $(if $(SEED),--seed $(SEED))

.PHONY: tmux
tmux:  # the tests of the tmux driver run a real one
	@command -v tmux >/dev/null || { test "$$(id -u)" = 0 && apt-get update -qq && apt-get install -qq -y tmux >/dev/null; } || \
		{ echo "the tests need tmux 3.2 or later: install it (apt-get install tmux), then run make test again"; exit 1; }

.PHONY: postgresql
postgresql:  # the tests of a shared journal run a real one; Debian keeps initdb off PATH
	@command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || \
		{ test "$$(id -u)" = 0 && echo "==> installing postgresql" && apt-get update -qq && apt-get install -qq -y postgresql >/dev/null; } || \
		{ echo "the tests need PostgreSQL's server, its initdb: install it (apt-get install postgresql), then run make test-servers again"; exit 1; }

.PHONY: check-static
check-static: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)  ## speed as ratios within one run
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	$(BIN)/python -m benchmarks

bench-kubernetes: $(READY)  ## speed on a real API server, beside bare requests to it: half an hour
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	@$(BIN)/python -m tests.servers.build >/dev/null
	$(BIN)/python -m benchmarks.kubernetes

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
