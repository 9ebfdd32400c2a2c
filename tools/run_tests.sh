#!/bin/bash
# Builds presets and runs their tests: tools/run_tests.sh PRESET...
#
# Each preset runs what only it can tell: the optimised build runs the command (with the rules of the tree), the build with
# assertions and the sanitized ones run the test programs, the thread sanitizer those that have threads.  Failures are
# printed with their output; the last line sums up everything, and the status is 0 only when nothing failed.
set -u
cd "$(dirname "$0")/.." || exit 1

labels() {
  case $1 in
    release) echo '^(cli|golden|lint)$' ;;
    tsan) echo '^threads$' ;;
    coverage) echo '^(unit|conform|stress|torture|fuzz|cli|golden|example)$' ;;
    *) echo '^(unit|conform|stress|torture|fuzz|example)$' ;;
  esac
}
targets() { # only what is run is built; the build with assertions also shows that everything builds without a warning
  case $1 in
    release) echo products fakecuda fakenvml example_watched ;; # the command asks drivers what they can do, a program what it holds
    tsan) echo threaded ;;
    *) echo all ;;
  esac
}
folder() { [ "$1" = release ] && echo build || echo "build-$1"; }

export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_stack_use_after_return=1:strict_string_checks=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1:second_deadlock_stack=1}

passed=0 failed=0 skipped=0

attribute() { sed -n "/<testsuite/,/>/s/.*[[:space:]]$1=\"\([0-9]*\)\".*/\1/p" "$2" | head -n 1; }

# count PRESET RESULT STATUS: adds the counts of a JUnit file to the sums; true when something failed.  CTest counts a
# program that is missing as not run, so its own status has the last word.
count() {
  local tests failures left_out
  tests=$(attribute tests "$2")
  failures=$(attribute failures "$2")
  left_out=$(($(attribute disabled "$2") + $(attribute skipped "$2")))
  [ "$3" = 0 ] || [ "$failures" != 0 ] || failures=$left_out left_out=0
  passed=$((passed + tests - failures - left_out))
  failed=$((failed + failures))
  skipped=$((skipped + left_out))
  printf '%-8s %d tests, %d failed, %d skipped\n' "$1" "$tests" "$failures" "$left_out"
  [ "$failures" != 0 ]
}

# The thread sanitizer of older compilers cannot start where addresses are randomised widely; then it is run without.
prefix_for() {
  [ "$1" = tsan ] || return 0
  local probe=build-tsan/probe
  echo 'int main(void) { return 0; }' | ${CC:-cc} -x c -fsanitize=thread -o $probe - || return 0
  $probe 2>/dev/null && return 0
  setarch "$(uname -m)" -R $probe 2>/dev/null && echo "setarch $(uname -m) -R"
}

run_preset() {
  local preset=$1 tree result log status
  tree=$(folder "$preset")
  result=$PWD/$tree/junit.xml
  log=$tree/tests.log
  if ! tools/build.sh "$preset" $(targets "$preset"); then
    printf '%-8s the build failed\n' "$preset"
    failed=$((failed + 1))
    return
  fi
  rm -f "$result"
  # shellcheck disable=SC2046
  $(prefix_for "$preset") ctest --test-dir "$tree" -L "$(labels "$preset")" -j "$(nproc)" --output-on-failure \
    --no-tests=error --output-junit "$result" >"$log" 2>&1 </dev/null
  status=$?
  if [ ! -s "$result" ]; then
    failed=$((failed + 1))
    cat "$log"
  elif count "$preset" "$result" $status; then
    cat "$log"
  fi
}

for preset in "$@"; do run_preset "$preset"; done
summary="$passed passed, $failed failed"
[ "$skipped" = 0 ] || summary="$summary, $skipped skipped"
echo "$summary"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
