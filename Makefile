# The commands of this repository. Each one first installs what it needs (scripts/setup), and can be repeated.
.PHONY: help run meeting test test-torch-latest test-all compare sim format clean fuzz coverage histories torture soak

help:
	@echo 'make run       build muster, run an elastic job of three nodes, kill one of them'
	@echo 'make meeting   build muster, start its server; four processes meet through it'
	@echo 'make test      build and run all tests, plainly, under the sanitizers, or both'
	@echo 'make test-torch-latest  run the tests that use PyTorch with its newest version'
	@echo 'make test-all  the long suite, for nights: all tests in all builds, long simulations, fuzzers, campaigns'
	@echo 'make fuzz      run every fuzzer for ten million executions (FUZZ_RUNS, FUZZ_SECONDS)'
	@echo 'make coverage  report which lines the tests reach'
	@echo 'make compare   compare server, rendezvous and launcher with those of PyTorch and Redis'
	@echo 'make sim       a million simulated runs, planted bugs, 100,000 nodes (SIM_RUNS, SIM_SEED)'
	@echo 'make histories  check 10,000 histories of the store for linearizability, and some of PyTorch'"'"'s'
	@echo 'make torture   kill, pause, cut off and starve real processes; TORTURE_MINUTES, TORTURE_SEED (needs root)'
	@echo 'make soak      10,000 nodes that come and go for SOAK_MINUTES; memory and descriptors must stay flat'
	@echo 'make format    format the C++ files'
	@echo 'make clean     remove everything that was built'

run:
	@scripts/run

meeting:
	@scripts/meeting

test:
	@scripts/test

test-torch-latest:
	@scripts/setup test
	@scripts/setup torch-latest
	@scripts/test_torch_latest

test-all:
	@scripts/test_all

fuzz:
	@scripts/fuzz

coverage:
	@scripts/coverage

compare:
	@scripts/setup compare
	@scripts/compare

sim:
	@scripts/setup run
	@scripts/sim

histories:
	@scripts/setup test
	@scripts/histories

torture:
	@scripts/torture

soak:
	@scripts/soak

format:
	@tools/format.sh

clean:
	rm -rf build
