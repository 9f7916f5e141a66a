# SPDX-License-Identifier: MIT
# A short front to CMake; `make help` lists the targets. PREFIX, DESTDIR, JOBS and BUILD may be set.

BUILD ?= build
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
PREFIX ?= /usr/local
TORCH ?= torch

# CMake's own make, where there is no Ninja, must not inherit this one's flags.
CMAKE_BUILD = env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL cmake --build
CACHE = $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/loch
CHECKED = unit|parts|embedder|contract|fault|stress|environment|fuzz|adapters|cpp|cli|examples|apps|fake

.DEFAULT_GOAL := all
.NOTPARALLEL:
# Every target is a command, none is a file.
.PHONY: $(shell sed -n 's/^\([a-z0-9-]*\):.*/\1/p' $(firstword $(MAKEFILE_LIST)))

all: ## the library, the program, the examples and the applications, into build/lib, build/bin, build/examples, build/apps
	@scripts/configure $(BUILD)
	@$(CMAKE_BUILD) $(BUILD) -j $(JOBS)

demo: ## sets up what is missing, builds, and shows in one screen what Loch does
	@scripts/setup build
	@scripts/configure $(BUILD)
	@$(CMAKE_BUILD) $(BUILD) -j $(JOBS)
	@scripts/demo $(BUILD)

examples: ## builds and runs the examples, one after the other
	@scripts/setup build
	@scripts/configure $(BUILD)
	@$(CMAKE_BUILD) $(BUILD) -j $(JOBS)
	@scripts/examples $(BUILD)

test: ## sets up what is missing, builds, runs every test that needs no GPU
	@scripts/setup build test opencl mpi models python
	@scripts/configure $(BUILD) -DLOCH_WERROR=ON
	@$(CMAKE_BUILD) $(BUILD) -j $(JOBS) --target all tests
	@scripts/run-tests $(BUILD) -j $(JOBS)

check: check-address check-thread ## the tests under ASan and UBSan, then under TSan

check-address:
	@scripts/setup build test
	@scripts/configure $(BUILD)/asan -DLOCH_SANITIZE=address,undefined
	@$(CMAKE_BUILD) $(BUILD)/asan -j $(JOBS) --target all tests
	@scripts/run-tests $(BUILD)/asan -j $(JOBS) -L '$(CHECKED)'

check-thread:
	@scripts/setup build test
	@scripts/configure $(BUILD)/tsan -DLOCH_SANITIZE=thread
	@$(CMAKE_BUILD) $(BUILD)/tsan -j $(JOBS) --target all tests
	@scripts/run-tests $(BUILD)/tsan -j $(JOBS) -L '$(CHECKED)'

check-memory: ## the tests under MemorySanitizer, with clang
	@scripts/setup build memory
	@scripts/configure $(BUILD)/msan -DCMAKE_C_COMPILER=clang -DLOCH_SANITIZE=memory -DLOCH_CMOCKA_DIR=$(CACHE)/memory
	@$(CMAKE_BUILD) $(BUILD)/msan -j $(JOBS) --target all tests
	@scripts/run-tests $(BUILD)/msan -j $(JOBS) -L 'unit|contract|stress|fuzz|adapters|cli|examples|apps'

arm64-test: ## the unit, contract, stress and fuzz tests built for arm64, under an emulator
	@scripts/setup build arm64
	@scripts/configure $(BUILD)/arm64 -DCMAKE_TOOLCHAIN_FILE=cmake/arm64.cmake -DLOCH_WERROR=ON -DLOCH_CMOCKA_DIR=$(CACHE)/arm64
	@$(CMAKE_BUILD) $(BUILD)/arm64 -j $(JOBS) --target all tests
	@scripts/run-tests $(BUILD)/arm64 -j $(JOBS) -L 'unit|contract|stress|fuzz|examples|apps'

coverage: ## which lines the tests reach: a table for each file, failures that no test provokes, and build/coverage/html
	@scripts/setup build test coverage
	@scripts/configure $(BUILD)/coverage -DLOCH_COVERAGE=ON
	@$(CMAKE_BUILD) $(BUILD)/coverage -j $(JOBS) --target all tests
	@scripts/coverage $(BUILD)/coverage $(JOBS)

fuzz: ## each fuzz target for TIME seconds (20), or TARGET alone; SEED makes runs alike; inputs that end one are kept in build/fuzz/crashes
	@scripts/setup build test fuzz
	@scripts/configure $(BUILD)/fuzz -DCMAKE_C_COMPILER=clang -DLOCH_FUZZ=ON \
	    -DLOCH_SANITIZE=address,undefined,float-cast-overflow
	@$(CMAKE_BUILD) $(BUILD)/fuzz -j $(JOBS) --target fuzz_targets
	@JOBS=$(JOBS) SEED=$(or $(SEED),0) scripts/fuzz $(BUILD)/fuzz $(or $(TIME),20) $(TARGET)

models: ## the protocols between threads in every order of their steps, with spin: tests/models
	@scripts/setup models
	@tests/models/run

soak: ## the tests that wait or race, over and over under load, for TIME seconds (600); TESTS is a pattern of names
	@scripts/setup build test
	@scripts/configure $(BUILD) -DLOCH_WERROR=ON
	@$(CMAKE_BUILD) $(BUILD) -j $(JOBS) --target all tests
	@scripts/soak $(BUILD) --time $(or $(TIME),600) --tests '$(or $(TESTS),.)'

life: ## one pool on DEVICE (cpu) under changing load for TIME seconds (600): build/life-DEVICE.log, and whether its figures stay flat
	@scripts/setup build
	@scripts/configure $(BUILD)
	@$(CMAKE_BUILD) $(BUILD) -j $(JOBS) --target bench_life
	@$(BUILD)/bench/life $(or $(DEVICE),cpu) --time $(or $(TIME),600) --log $(BUILD)/life-$(firstword $(subst :, ,$(or $(DEVICE),cpu))).log --check

lint: ## clang-format, clang-tidy, cppcheck, the rules of the source tree, generated docs
	@scripts/setup build test lint
	@scripts/configure $(BUILD) -DLOCH_WERROR=ON
	@$(CMAKE_BUILD) $(BUILD) -j $(JOBS)
	@scripts/lint $(BUILD) $(JOBS)

format: ## applies .clang-format to every C file
	@scripts/setup lint
	@scripts/lint --format

gpu-test: ## the tests that need a GPU; a skip is a failure
	@scripts/gpu-test $(BUILD) $(JOBS)

ptx: ## writes the texts of the kernels again, parts/kernel/ptx and those of apps, with NVIDIA's compiler from PyPI
	@scripts/setup ptx
	@scripts/ptx

ptx-check: ## checks that these texts are what the compiler makes
	@scripts/setup ptx
	@scripts/ptx --check

torch-test: ## the shim and the exchange with a real PyTorch, without a GPU; installs 5 GB into the cache the first time
	@scripts/setup build $(TORCH)
	@scripts/configure $(BUILD)
	@$(CMAKE_BUILD) $(BUILD) -j $(JOBS)
	@LOCH_WERROR=1 JOBS=$(JOBS) scripts/build-torch-shim $(CACHE)/$(TORCH)/bin/python $(BUILD)/lib
	@tests/torch/run $(BUILD) $(CACHE)/$(TORCH)/bin/python
	@for file in tests/python/test_torch*.py; do LOCH_PYTHON=$(CACHE)/$(TORCH)/bin/python tests/python/run $(BUILD) $$file || exit 1; done
	@LOCH_PYTHON=$(CACHE)/$(TORCH)/bin/python tests/exchange/run $(abspath $(BUILD))/lib/libloch.so tests/exchange/test_torch_viz.py

torch-newest: ## what torch-test does, with the newest PyTorch of PyPI instead of the oldest one that has a shim
	@$(MAKE) torch-test TORCH=torch-newest

torch-shims: ## the shims for all versions of PyTorch, into build/lib; downloads 2 GB the first time
	@scripts/setup build torch torch-headers
	@scripts/configure $(BUILD)
	@$(CMAKE_BUILD) $(BUILD) -j $(JOBS) --target loch_shared
	@for headers in $(CACHE)/torch/bin/python $(CACHE)/torch-headers/*/torch/include; do \
	    LOCH_WERROR=1 JOBS=$(JOBS) CUDA_HOME=$$(echo $(CACHE)/torch/lib/python3*/site-packages/nvidia/cu1*) \
	        scripts/build-torch-shim $$headers $(BUILD)/lib || exit 1; done

comm-test: ## communicators over Open MPI and MPICH, with 2 and 4 ranks and two machines made of namespaces; installs both
	@scripts/setup build test mpi
	@scripts/configure $(BUILD) -DLOCH_WERROR=ON
	@$(CMAKE_BUILD) $(BUILD) -j $(JOBS) --target parts.comm.ranks parts.comm.ranks_handover
	@tests/parts/comm/run $(BUILD)/tests/parts/comm/ranks
	@tests/parts/comm/run-hosts $(BUILD)/tests/parts/comm/ranks || [ $$? = 77 ]
	@tests/parts/comm/run-handover $(BUILD)/tests/parts/comm/ranks_handover
	@tests/parts/comm/run-hosts $(BUILD)/tests/parts/comm/ranks_handover sent || [ $$? = 77 ]

adapters-test: ## the adapters under the programs that they are made for; installs those into the cache the first time
	@scripts/setup build opencl adapters
	@scripts/configure $(BUILD)
	@$(CMAKE_BUILD) $(BUILD) -j $(JOBS)
	@scripts/adapters-test $(BUILD)

demo-embedder: ## brings the model of apps/embedder into the cache (80 MB) and ranks sentences of the docs by meaning
	@scripts/setup build embedder
	@scripts/configure $(BUILD)
	@$(CMAKE_BUILD) $(BUILD) -j $(JOBS) --target apps_embedder
	@scripts/demo-embedder $(BUILD)

embedder-test: ## apps/embedder with its real model: tokens, vectors, the program under ASan
	@scripts/setup build test embedder
	@scripts/configure $(BUILD) -DLOCH_WERROR=ON
	@$(CMAKE_BUILD) $(BUILD) -j $(JOBS) --target apps_embedder embedder_tests
	@tests/embedder/run $(BUILD)

bench-embedder: ## apps/embedder and ONNX Runtime on the CPU, in turns; installs ONNX Runtime into the cache the first time
	@scripts/setup build embedder-bench
	@scripts/configure $(BUILD)
	@$(CMAKE_BUILD) $(BUILD) -j $(JOBS) --target bench_embedder
	@$(CACHE)/embedder-bench/bin/python bench/embedder/cpu.py $(BUILD)/bench/embedder $(CACHE)/embedder

deb: ## the Debian packages, into dist/
	@$(if $(filter deb,$(MAKECMDGOALS)),LOCH_SETUP_ASK=1) scripts/setup build deb
	@scripts/deb $(BUILD) dist $(JOBS)

deb-test: deb ## the Debian packages: lintian, their contents, and programs that are built with them
	@tests/install/check-deb dist

wheel: ## the Python package as dist/*.whl, checked, and tried in an empty environment
	@scripts/setup build wheel
	@scripts/wheel dist

python-test: wheel ## the wheel, type hints of the package, and its tests on the installed wheel
	@scripts/python-test dist

cmake-test: ## builds, installs and uses Loch with the oldest CMake that it accepts
	@scripts/setup build test cmake
	@PATH=$(CACHE)/cmake/bin:$$PATH scripts/cmake-test $(BUILD)/cmake $(JOBS)

browser-test: ## reports in a headless Chromium: what they draw, mouse, keyboard, screen readers
	@scripts/setup build test browser
	@scripts/configure $(BUILD) -DLOCH_WERROR=ON
	@$(CMAKE_BUILD) $(BUILD) -j $(JOBS) --target loch_program apps_decoder browser.make_report
	@tests/browser/run $(BUILD)

bench: ## builds and runs the benchmarks
	@scripts/setup build
	@scripts/configure $(BUILD)
	@$(CMAKE_BUILD) $(BUILD) -j $(JOBS)
	@scripts/bench $(BUILD)

gate: ## counts instructions and fails where there are more than in bench/gate/baseline.txt; WRITE=1 writes that file, ONLY=text,... takes some rows
	@scripts/setup build test python
	@scripts/configure $(BUILD) -DLOCH_WERROR=ON
	@$(CMAKE_BUILD) $(BUILD) -j $(JOBS)
	@scripts/gate $(BUILD) --jobs $(JOBS) $(if $(WRITE),--write) $(if $(ONLY),--only '$(ONLY)')

bench-report: ## every benchmark beside the peers that are installed, on one page: build/bench-report.md; ONLY=part,..., QUICK=1
	@scripts/setup build bench
	@scripts/configure $(BUILD)
	@$(CMAKE_BUILD) $(BUILD) -j $(JOBS)
	@scripts/bench-report $(BUILD) $(if $(ONLY),--only $(ONLY)) $(if $(QUICK),--quick)

bench-check: ## which figures of docs/benchmarks.md no longer hold; QUICK=1, WITH=quiet,gpu,..., TRACES=folder
	@scripts/setup build test
	@scripts/configure $(BUILD)
	@$(CMAKE_BUILD) $(BUILD) -j $(JOBS)
	@scripts/bench-report $(BUILD) --check $(if $(QUICK),--quick) $(if $(WITH),--with $(WITH)) $(if $(TRACES),--traces $(TRACES))

bench-gpu: ## Loch beside PyTorch's allocators, cudaMallocAsync and RMM on a GPU: build/bench-gpu.md, README.md, docs/benchmarks.md; ONLY=program,..., ROUNDS=3, QUICK=1, UNTIL=seconds, RESUME=1
	@scripts/setup build
	@scripts/bench-gpu $(BUILD) $(if $(ONLY),--only $(ONLY)) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(QUICK),--quick) \
	    $(if $(UNTIL),--until $(UNTIL)) $(if $(RESUME),--resume) $(if $(ONLY)$(QUICK),,--readme README.md)

docs: ## the documentation as a site, guides and reference with one search, into build/docs/html
	@scripts/setup docs
	@$(CACHE)/docs/bin/python scripts/docs $(BUILD)/docs

docs-test: docs ## the site in a headless Chromium: pages, search, no network
	@scripts/setup browser
	@python3 tests/docs/test_site.py $(BUILD)/docs/html

install: all ## headers, libraries, program, manual pages, completion, docs, pkg-config files and CMake package, into PREFIX
	@cmake --install $(BUILD) --prefix $(PREFIX)

uninstall: ## removes what the last `make install` installed
	@scripts/uninstall $(BUILD) $(if $(filter file,$(origin PREFIX)),,$(PREFIX))

clean: ## removes what was built
	@rm -rf $(BUILD)

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1: /p' $(firstword $(MAKEFILE_LIST)) | \
	    while IFS=: read -r name text; do printf '  make %-10s %s\n' "$$name" "$$text"; done
