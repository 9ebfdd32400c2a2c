#!/usr/bin/env bash
# Builds, tests and measures on a machine with a GPU: bench/gpu.sh [--out FOLDER] [--seconds N] [--part NAME]...   (--list: the parts)
#
# Such a machine may have little installed, so nothing but a C compiler is needed: no CMake, and libraries that are missing are
# taken from .carry (bench/gpu.sh --part carry fills it, on the machine that has them).  A part is a function part_NAME; each takes
# less than 8 minutes (threads, convert: as long as --seconds says) and ends with a line "NAME: N passed, N failed, N skipped".  Without --part: build abi driver streams life conform data.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2

build=build-gpu
carry=.carry
out=$build/results
cc=${CC:-cc}
cuda=${CUDA_HOME:-/usr/local/cuda}
flags=(-std=gnu17 -O2 -g1 -DNDEBUG -fno-omit-frame-pointer -fvisibility=hidden -Wall -Wextra -Wno-sign-conversion
  -D_GNU_SOURCE -DGAP_BUILD -Iinclude -Isrc -Itests "-DGAP_REPORT_PAGE=\"$PWD/web/dist/report.html\"")
libs=(-lpthread -ldl -lm)
passed=0 failed=0 skipped=0
seconds=20 # of the parts `threads` and `convert`

# Runs a command as one check; 77 says "skipped".
check() {
  local name=$1 rc
  shift
  "$@"
  rc=$?
  case $rc in
    0) passed=$((passed + 1)) ;;
    77) skipped=$((skipped + 1)) ;;
    *) failed=$((failed + 1)) && echo "FAILED ($rc): $name" ;;
  esac
  return "$rc"
}

# ---- Building ----

has_header() { printf '#include <%s>\n' "$1" | "$cc" "-I$carry/include" "-I$cuda/include" -E -x c - >/dev/null 2>&1; }

# Objects of the C files named on standard input, side by side.
compile() {
  compile_one() { mkdir -p "$(dirname "$build/obj/$1")" && "$cc" "${@:2}" -c "$1" -o "$build/obj/$1.o"; }
  export -f compile_one
  export build cc
  xargs -P "$(nproc)" -I{} bash -c 'compile_one "$@"' _ {} "${flags[@]}" -fPIC "-I$carry/include" "-I$cuda/include"
}

objects() { sed "s|.*|$build/obj/&.o|"; }

in_library="src/($(sed -n 's/^LIBRARY = {"\(.*\)"}$/\1/p' tools/check_layers.py | sed 's/", "/|/g'))/"
library_sources() { find src -name '*.c' | grep -E "$in_library"; }
tool_sources() { find src cli -name '*.c' | grep -vE "$in_library"; }

link_program() { # link_program NAME FILE...: with the library's objects
  local name=$1
  shift
  "$cc" "$@" "$build/libgapless.a" -o "$build/$name" "-L$carry/lib" "-Wl,-rpath,$PWD/$carry/lib" "${libs[@]}"
}

# A test program from its sources; test_program NAME FILE...
test_program() {
  local name=$1
  shift
  printf '%s\n' "$@" | compile && link_program "$name" $(printf '%s\n' "$@" | objects)
}

build_library() {
  library_sources | compile || return 1
  rm -f "$build/libgapless.a"
  ar rcs "$build/libgapless.a" $(library_sources | objects)
}

build_shared() {
  "$cc" -shared $(library_sources | objects) -Wl,--version-script=src/gapless.map -Wl,-soname,libgapless.so.0 \
    -o "$build/libgapless.so.0" "${libs[@]}" && ln -sf libgapless.so.0 "$build/libgapless.so"
}

build_command() {
  has_header jansson.h && has_header zstd.h && has_header lzma.h && has_header zlib.h || { echo "command skipped: libraries are missing"; return 77; }
  printf 'extern const char gap__tune_model[];\nconst char gap__tune_model[] = "%s";\n' "$(commit)" >"$build/model.c" # kept results' mark
  { tool_sources && echo "$build/model.c"; } | compile || return 1
  link_program gapless $(tool_sources | objects) "$build/obj/$build/model.c.o" -ljansson -lzstd -llzma -lz
}

# The copy of the tree that a GPU machine gets may carry no history, or an older one.
commit() { cat "$carry/commit" 2>/dev/null || git rev-parse --short HEAD 2>/dev/null || echo unknown; }

# The benchmarks use the toolkit's cuda.h and cuBLAS.
build_bench() {
  has_header cublas_v2.h || { echo "bench skipped: no cuBLAS headers"; return 77; }
  local blas program
  blas=$(dirname "$(find "$cuda/" /usr/lib /opt -name 'libcublas.so*' -not -path '*stubs*' 2>/dev/null | head -n 1)")
  ls "$blas"/libcublas.so >/dev/null 2>&1 || ln -sf "$(ls "$blas"/libcublas.so.* | head -n 1)" "$build/libcublas.so"
  local flags=("${flags[@]}" "-DGAP_COMMIT=\"$(commit)\"")
  printf 'bench/gpu/%s.c\n' gpu alloc beside prices | compile || return 1
  for program in alloc beside prices; do
    "$cc" $(printf 'bench/gpu/%s.c\n' gpu "$program" | objects) "$build/libgapless.a" -o "$build/bench-$program" \
      "-L$build" "-L$blas" "-Wl,-rpath,$blas" "-L$cuda/lib64/stubs" "-L$cuda/lib64" -lcublas -lcuda "${libs[@]}" || return 1
  done
}

# Programs of cmocka's, which run on the driver without a card too.
build_conform() {
  has_header cmocka.h || { echo "conformance and patterns skipped: no cmocka"; return 77; }
  local fake=$PWD/$build/libfakecuda.so program
  local pattern=(tests/support/{pattern,pattern_soft,pattern_driver,gapless_try}.c tests/gpu/kernels.c)
  echo tests/support/fake_cuda.c | compile || return 1
  "$cc" -shared $(library_sources | objects) "$build/obj/tests/support/fake_cuda.c.o" \
    -Wl,--version-script=tests/support/fake_cuda.map -o "$fake" "${libs[@]}" || return 1
  local flags=("${flags[@]}" "-DGAP_TEST_FAKE_CUDA=\"$fake\"") libs=("$fake" -lcmocka "${libs[@]}")
  for program in patterns graphs; do
    test_program "$program" "tests/stress/gapless_$program.c" "${pattern[@]}" || return 1
  done
  test_program conform tests/conform/backends.c tests/support/conform_backends.c tests/gpu/kernels.c
}

part_build() {
  mkdir -p "$build" "$out"
  check library build_library || return
  check shared build_shared
  check abi test_program abi tests/gpu/abi.c
  check driver test_program driver tests/gpu/driver.c tests/gpu/kernels.c
  check data test_program data tests/gpu/data.c tests/gpu/kernels.c
  check streams test_program streams tests/gpu/streams.c tests/gpu/kernels.c
  check convert test_program convert tests/gpu/convert.c tests/gpu/kernels.c
  check life test_program life tests/gpu/life.c tests/gpu/kernels.c
  check neighbours test_program neighbours tests/gpu/neighbours.c tests/gpu/kernels.c
  check tiers test_program tiers tests/gpu/tiers.c tests/gpu/kernels.c
  check overflow test_program overflow tests/gpu/overflow.c tests/gpu/kernels.c
  check command build_command
  check bench build_bench
  check conform build_conform
}

# Headers and libraries that a GPU machine lacks, copied from this one: $carry is not part of the tree.
part_carry() {
  local from=/usr/lib/$(uname -m)-linux-gnu
  mkdir -p "$carry/include" "$carry/lib"
  git describe --always --dirty >"$carry/commit"
  cp /usr/include/{cmocka,jansson,jansson_config,zstd,zstd_errors,lzma,zlib,zconf}.h "$carry/include/" 2>/dev/null
  cp "/usr/include/$(uname -m)-linux-gnu/"{jansson_config,zconf}.h "$carry/include/" 2>/dev/null
  cp -r /usr/include/lzma "$carry/include/"
  cp "$from"/lib{jansson,zstd,lzma,z}.a "$carry/lib/"
  check cmocka cp -L "$from/libcmocka.so.0" "$carry/lib/libcmocka.so.0"
  ln -sf libcmocka.so.0 "$carry/lib/libcmocka.so"
  [ -z "${SANITIZER:-}" ] || check sanitizer python3 -m pip download -q --no-deps --disable-pip-version-check -d "$carry" 'nvidia-cuda-sanitizer-api==13.0.*'
  [ -z "${TRACES:-}" ] || { mkdir -p "$carry/traces" && cp "$TRACES"/*.xz "$carry/traces/"; } # whole histories: TRACES=FOLDER
}

# ---- Testing ----

# What the machine is: results say where they come from.
part_machine() {
  check card nvidia-smi --query-gpu=name,driver_version,memory.total,memory.used --format=csv,noheader
  uname -r
  "$cc" --version | head -n 1
  ldd --version 2>&1 | head -n 1
}

part_abi() { check abi "$build/abi"; }

part_streams() { check streams timeout 60 "$build/streams"; }

# Exit, fork and signals of a process that uses the card.
part_life() { check life timeout 200 "$build/life"; }

# Two processes on one card; a third takes what they do not need.
part_neighbours() { check neighbours timeout 240 "$build/neighbours"; }

part_driver() { check driver timeout 120 "$build/driver"; }

part_conform() {
  [ -x "$build/conform" ] || { skipped=$((skipped + 1)) && return; }
  check conform timeout 240 "$build/conform" "cuda (fake driver)" cuda
}

# Half of the time at a cap that most blocks only just fit under, half with the small sizes that share pages.
part_data() {
  check data timeout 100 "$build/data" --seconds 20 --seed 1 --json
  check data-small timeout 100 "$build/data" --seconds 10 --seed 2 --cap 256M --largest 8M --json
  check data-wide timeout 100 "$build/data" --seconds 10 --seed 3 --cap 24G --largest 600M --threads 12 --json
  check data-careless timeout 100 "$build/data" --seconds 4 --seed 5 --cap 256M --largest 8M --careless --json
  check data-caching timeout 100 "$build/data" --seconds 5 --seed 4 --conf strategy:caching_allocator --json
}

# Allocation patterns from public reports at full size, the card made as small as theirs, contents compared whole; and graphs
# that the driver captures, beside a cache that fills the card (docs/reliability.md).
part_patterns() {
  [ -x "$build/patterns" ] || { skipped=$((skipped + 1)) && return; }
  check patterns timeout 300 "$build/patterns" '* on a GPU'
  check graphs timeout 100 "$build/graphs" '* on a GPU'
}

# Sixteen threads, six of them on two streams that they share, the others on their own; --seconds 600 makes it ten minutes.
part_threads() {
  check threads timeout $((seconds + 100)) "$build/data" --seconds "$seconds" --seed 7 --threads 16 --shared 6 --cap 16G \
    --largest 400M --json
  check threads-tight timeout $((seconds / 4 + 100)) "$build/data" --seconds $((seconds / 4)) --seed 8 --threads 16 --shared 6 --cap 1G \
    --largest 32M --json
}

# Memory exchanged under kernels: two threads that launch without pause (--seconds 600 makes it ten minutes), four, larger chunks,
# the legacy stream.  The last run uses streams that no gate holds, and that must show.
part_convert() {
  mkdir -p "$out"
  check convert timeout $((seconds + 60)) "$build/convert" --seconds "$seconds" --seed 1 --json >"$out/convert.json"
  cat "$out/convert.json"
  check convert-threads timeout 80 "$build/convert" --seconds 10 --seed 2 --threads 4 --streams 1 --cap 4G --json
  check convert-points timeout 80 "$build/convert" --seconds 10 --seed 3 --conf convert:gated,chunk_max:128MiB,page_maker:False --cap 8G --json
  check convert-legacy timeout 80 "$build/convert" --seconds 10 --seed 5 --legacy --json
  check convert-careless timeout 80 "$build/convert" --seconds 10 --seed 4 --careless --json
}

# DISK: a folder on a disk (a file in memory measures nothing).
part_tiers() {
  mkdir -p "$out"
  check tiers timeout 400 "$build/tiers" --bytes 16G --disk "${DISK:-$PWD/$build}" --disk-bytes 4G >"$out/tiers.json"
  cat "$out/tiers.json"
}

# Host memory at device addresses: what it costs, and PyTorch on three quarters of what it needs.
part_overflow() {
  mkdir -p "$out"
  check overflow timeout 60 "$build/overflow" --bytes 4G >"$out/overflow.json"
  cat "$out/overflow.json"
  has_torch || return
  check wheel install_wheel || return
  check overflow-torch timeout 230 python3 bench/torch/figures.py --part overflow --seconds 180 --commit "$(commit)" --out "$out/overflow"
}

part_examples() { check examples timeout 240 tests/gpu/examples.sh "$build" cuda; }

# compute-sanitizer of the machine, or of NVIDIA's wheel in .carry (SANITIZER=1 bench/gpu.sh --part carry).
find_sanitizer() {
  local wheel
  command -v compute-sanitizer && return
  wheel=$(ls "$carry"/nvidia_cuda_sanitizer_api-*.whl 2>/dev/null | tail -n 1)
  [ -n "$wheel" ] || return 1
  python3 -m pip install -q --no-index --no-deps --upgrade --disable-pip-version-check --root-user-action=ignore \
    --target "$build/sanitizer" "$wheel" >&2 && find "$PWD/$build/sanitizer" -name compute-sanitizer -type f | head -n 1
}

# Our kernels, and theirs over memory whose pages come and go.
part_sanitizer() {
  local tool program
  program=$(find_sanitizer) || { echo "no compute-sanitizer" && skipped=$((skipped + 1)) && return; }
  for tool in memcheck initcheck; do
    check "$tool" timeout 120 "$program" --tool "$tool" --error-exitcode 9 "$build/data" --seconds 8 --cap 192M --largest 16M \
      --threads 2 --json
  done
  has_torch || return
  check wheel install_wheel || return
  check memcheck-kv timeout 200 "$program" --tool memcheck --error-exitcode 9 python3 tests/gpu/kv/check.py \
    swap_compaction_and_copies_on_write empty_rows_give_zeros a_prefix_stands_behind_several_ranges
}

# What needs PyTorch on the machine, and in .carry the wheel that `pip wheel . --no-deps -w .carry` has made.
has_torch() { python3 -c 'import torch' 2>/dev/null || { echo "no PyTorch" && skipped=$((skipped + 1)) && return 1; }; }
install_wheel() {
  python3 -m pip install -q --no-index --no-deps --force-reinstall --disable-pip-version-check --root-user-action=ignore "$carry"/gapless-*.whl
}

# The shim, and the package as its users start it; an example in .carry is run unchanged.
part_dropin() {
  local example=$carry/article_example.py
  has_torch || return
  check shim timeout 300 python3 tests/gpu/torch/check.py
  check wheel install_wheel || return
  check package timeout 280 python3 tests/gpu/python/check.py $([ -e "$example" ] && echo --example "$example")
}

# PyTorch's own memory tests, natively and with gapless: .carry/pytorch has its test files, which are no part of this tree.
part_upstream() {
  has_torch || return
  [ -d "$carry/pytorch" ] || { echo "no $carry/pytorch" && skipped=$((skipped + 1)) && return; }
  check wheel install_wheel || return
  check upstream timeout 470 python3 tests/gpu/torch/upstream.py "$carry/pytorch" --minutes 6 --json "$out/upstream.json"
}

# ---- Measuring ----

# CuPy on gapless' memory beside its own pools.
part_cupy() {
  mkdir -p "$out"
  python3 -c 'import cupy' 2>/dev/null || { echo "no CuPy" && skipped=$((skipped + 1)) && return; }
  check wheel install_wheel || return
  GAP_COMMIT=$(commit) check cupy timeout 120 python3 bench/gpu/cupy_pools.py >"$out/cupy.jsonl"
  cat "$out/cupy.jsonl"
}

# The KV cache: kernels beside float64, then its figures, then requests served.  KV: names of what to run (check attention copies generate
# generate-mha serving); each takes less than five minutes.
kv_check() { check kv-check timeout 290 python3 tests/gpu/kv/check.py; }
kv_measure() { # kv_measure NAME PROGRAM WORD...
  GAP_COMMIT=$(commit) check "kv-$1" timeout 290 python3 "bench/gpu/${@:2}" >"$out/kv-$1.jsonl"
  cat "$out/kv-$1.jsonl"
}
kv_attention() { kv_measure attention kv_attention.py; }
kv_copies() { kv_measure copies kv_copies.py; }
kv_generate() { kv_measure generate kv_generate.py; }
kv_generate-mha() { kv_measure generate-mha kv_generate.py --shape llama-2-7b --batch 8; }
kv_serving() {
  check kv-serving timeout 200 python3 examples/serving.py --trace examples/serving_trace.jsonl --check
  check kv-serving-8b timeout 250 python3 examples/serving.py --shape llama-3.1-8b --dtype bfloat16 --requests 120 --cache 16384 --batch 128
}
part_kv() {
  local name
  has_torch || return
  mkdir -p "$out"
  check wheel install_wheel || return
  for name in ${KV:-check attention copies generate serving}; do "kv_$name"; done
}

# Pairs, churn and threads beside the driver's own pool; what a program feels of stealing; what the driver charges.
part_bench() {
  mkdir -p "$out"
  for program in alloc beside prices; do
    check "$program" timeout 200 "$build/bench-$program" >"$out/$program.jsonl"
    cat "$out/$program.jsonl"
  done
}

# PyTorch with gapless beside its own allocator; TORCH_FIGURES: more options (--part, --seconds, --append).
part_torch() {
  has_torch || return
  check wheel install_wheel || return
  check torch timeout 590 python3 bench/torch/figures.py --commit "$(commit)" --out "$out" ${TORCH_FIGURES:-}
}

# Activations and states of optimizers beyond the card, beside what the link gives.  DISK: a folder on a disk.
part_offload() {
  has_torch || return
  mkdir -p "$out"
  check wheel install_wheel || return
  GAP_COMMIT=$(commit) check offload timeout 280 python3 bench/torch/offload.py --disk "${DISK:-$PWD/$build}" ${OFFLOAD:-} >"$out/offload.jsonl"
  cat "$out/offload.jsonl"
}

# Two cards of one machine: NCCL, peers, sharing, FSDP, histories.
part_two() {
  has_torch || return
  check wheel install_wheel || return
  check two timeout 300 python3 bench/two/run.py --commit "$(commit)" --out "$out" --minutes 4.5 ${TWO:-}
}

# Recorded histories through the driver, beside the simulation; whole ones where .carry/traces has them.  PREDICT: other options
# instead of --least (--conf convert:gated, --only NAMES).
part_predict() {
  local folder=tests/data
  [ -d "$carry/traces" ] && folder=$carry/traces
  mkdir -p "$out"
  check predict timeout 460 python3 bench/predict.py "$folder" --gapless "$build/gapless" ${PREDICT:---least} --out "$out/predict"
}

# ---- The parts asked for ----

parts=()
while [ $# -gt 0 ]; do
  case $1 in
    --part) parts+=("${2:?--part needs a name}") && shift ;;
    --out) out=${2:?--out needs a folder} && shift ;;
    --seconds) seconds=${2:?--seconds needs a number} && shift ;;
    --list) declare -F | sed -n 's/^declare -f part_//p' && exit 0 ;;
    *) echo "usage: bench/gpu.sh [--out FOLDER] [--seconds N] [--part NAME]... | --list" >&2 && exit 2 ;;
  esac
  shift
done
[ ${#parts[@]} -gt 0 ] || parts=(build abi driver streams life conform data)
for part in "${parts[@]}"; do
  declare -F "part_$part" >/dev/null || { echo "no part '$part'; --list names them" >&2 && exit 2; }
done

total=0
for part in "${parts[@]}"; do
  passed=0 failed=0 skipped=0 begin=$SECONDS
  "part_$part"
  total=$((total + failed))
  echo "$part: $passed passed, $failed failed, $skipped skipped ($((SECONDS - begin)) s)"
done
[ "$total" -eq 0 ]
