# A plain front for CMake and Ninja: `make help` lists what there is.  Each target installs what it lacks
# (tools/setup.sh) and builds what it needs, so each can come first.  Everything is made in build/ and build-*/.
.DEFAULT_GOAL := all
MAKEFLAGS += --no-print-directory
FUZZ_SECONDS ?= 60
SOAK_OPERATIONS ?= 100000000
SOAK_SEEDS ?= 100
PREFIX ?= /usr/local

.NOTPARALLEL: # each target builds with all processors, in folders that it shares with others
.PHONY: all demo test test-asan test-tsan test-python test-web bench fuzz soak coverage format lint install clean help

all: ## the command (build/gapless) and the library (build/libgapless.so), optimised
	@tools/setup.sh build
	@tools/build.sh release products

demo: all ## the main job on real histories, on one screen
	@build/gapless demo

test: ## every test: optimised command, assertions, address, undefined behaviour and thread sanitizers
	@tools/setup.sh test
	@tools/run_tests.sh release debug asan tsan

test-asan: ## the tests under the address and undefined behaviour sanitizers only
	@tools/setup.sh test
	@tools/run_tests.sh asan

test-tsan: ## the threaded tests under the thread sanitizer only
	@tools/setup.sh test
	@tools/run_tests.sh tsan

test-python: ## the Python package, with every Python from 3.10 on that is found
	@tools/setup.sh python
	@tools/build.sh release products fakecuda
	@tools/test_python.sh

test-web: ## the report page: a rebuild gives the committed one, and Chromium draws it
	@tools/setup.sh web || :
	@tools/test_web.sh

bench: ## the benchmarks, with mimalloc and glibc beside them
	@tools/setup.sh bench || tools/setup.sh build
	@tools/build.sh release bench/all
	@tools/run_bench.sh build/bench

fuzz: ## each fuzz target for FUZZ_SECONDS (60), starting from the kept corpus
	@tools/setup.sh fuzz
	@tools/build.sh fuzz
	@tools/run_fuzz.sh build-fuzz/tests/fuzz $(FUZZ_SECONDS)

soak: ## long runs, faults and fuzzing, summed up: SOAK_OPERATIONS, SOAK_SEEDS, FUZZ_SECONDS; SOAK_OUT=FILE keeps the figures
	@tools/setup.sh test fuzz
	@tools/build.sh release soak
	@tools/build.sh debug
	@[ $(FUZZ_SECONDS) = 0 ] || tools/build.sh fuzz
	@tools/soak.py --operations $(SOAK_OPERATIONS) --seeds $(SOAK_SEEDS) --seconds $(FUZZ_SECONDS) \
	  $(if $(SOAK_OUT),--out $(SOAK_OUT))

coverage: ## which lines the tests reach: build-coverage/coverage.html
	@tools/setup.sh coverage
	@tools/run_tests.sh coverage
	@gcovr --root . --object-directory build-coverage --filter src/ --filter cli/ --exclude-throw-branches \
	  --print-summary --html-details build-coverage/coverage.html >build-coverage/coverage.txt
	@tail -n 3 build-coverage/coverage.txt

format: ## formats the C sources in place
	@tools/setup.sh lint
	@find bench cli examples include plugin src tests -name '*.[ch]' -print0 | xargs -0 clang-format -i

lint: ## clang-format, clang-tidy and the rules of the tree
	@tools/setup.sh lint
	@tools/build.sh release products
	@tools/run_lint.sh build

install: all ## installs under PREFIX (/usr/local); DESTDIR is honoured
	@cmake --install build --prefix $(PREFIX)

clean: ## removes every build folder
	@rm -rf build build-debug build-asan build-tsan build-fuzz build-coverage

help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1|\2/p' Makefile | while IFS='|' read -r name text; do \
	  printf '%-18s %s\n' "$$name" "$$text"; done
