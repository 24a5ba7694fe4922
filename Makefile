# The commands of this repository. Each one installs what it needs first (scripts/setup) and can be repeated.
.PHONY: help run test compare torture soak format clean

help:
	@echo 'make run       build muster, start its server, let four processes meet through it'
	@echo 'make test      build and run all tests, plain and under the sanitizers'
	@echo 'make compare   measure the server beside those of PyTorch and Redis'
	@echo 'make torture   kill, pause, cut off and starve real processes; TORTURE_MINUTES, TORTURE_SEED (needs root)'
	@echo 'make soak      10,000 nodes that come and go for SOAK_MINUTES; memory and descriptors stay'
	@echo 'make format    format the C++ files'
	@echo 'make clean     remove everything that was built'

run:
	@scripts/run

test:
	@scripts/test

compare:
	@scripts/setup compare
	@scripts/compare

torture:
	@scripts/torture

soak:
	@scripts/soak

format:
	@tools/format.sh

clean:
	rm -rf build
