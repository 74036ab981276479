# Omnes: the usual commands. `make help` lists them; their implementations are in xtask/ and tools/.

CARGO ?= cargo
# Passed to the scripts of `bench`, `bench-peers`, `bench-simulators`, and to `cargo xtask fuzz` and
# `sanitize`.
ARGS ?=
# The prefix of `install`.
PREFIX ?= /usr/local

# The profile of this machine, if `make profiled` has run.
PROFILE := $(wildcard target/profiled/omnes.profdata)
ifneq ($(PROFILE),)
build mpi python bench: export RUSTFLAGS := $(RUSTFLAGS) -Cprofile-use=$(CURDIR)/$(PROFILE)
endif

.DEFAULT_GOAL := build
.PHONY: build profiled mpi python install uninstall setup setup-mpi setup-fuzz run test bench collbench \
	bench-peers bench-simulators fuzz sanitize clean help

build: ## build everything in release mode (the default)
	$(CARGO) build --release --workspace
	crates/omnes-mpi/build.sh --optional --quiet

profiled: ## build with a profile of this machine: faster if ranks share cores
	tools/profiled.sh
	$(MAKE) build

mpi: ## build only the preload libraries, for each MPI found (MPICC names others)
	$(CARGO) build --release -p omnes-capi
	crates/omnes-mpi/build.sh

python: ## build the Python package in target/python, a folder for PYTHONPATH
	$(CARGO) build --release -p omnes-py
	crates/omnes-py/build.sh

install: ## install commands, libraries and header (PREFIX=/usr/local, DESTDIR)
	crates/omnes-capi/install.sh "$(PREFIX)"

uninstall: ## remove the installed files
	crates/omnes-capi/install.sh --remove "$(PREFIX)"

setup: ## install the dependencies of build and tests (without root, print the commands)
	tools/setup.sh build mpi

setup-mpi: ## install only the MPIs and a Fortran compiler
	tools/setup.sh mpi

setup-fuzz: ## install the nightly compiler, cargo-fuzz and Miri
	tools/setup.sh fuzz

run: build ## measure broadcast and barrier over 8 ranks, copy a file to 8 places
	tools/demo.sh

test: ## run all checks and tests; as root, also those that require a lab
	tools/test.sh

bench: ## run the benchmarks of this library
	$(CARGO) xtask bench $(ARGS)

collbench: build ## build the benchmark programs that share their loop with other libraries
	tools/collbench.sh

bench-peers: build ## benchmark Omnes against the MPI libraries
	tools/bench-peers.sh $(ARGS)

bench-simulators: ## benchmark the simulator against LogGOPSim and SimGrid, if present
	tools/bench-simulators.py $(ARGS)

fuzz: ## fuzz the parsers and machines (ARGS="--seconds 60 header")
	$(CARGO) xtask fuzz $(ARGS)

sanitize: ## look for data races and missing memory orderings (ARGS="miri --seeds 256", ARGS=thread)
	$(CARGO) xtask sanitize $(ARGS)

clean: ## remove what was built
	$(CARGO) clean
	rm -rf fuzz/target fuzz/artifacts

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
