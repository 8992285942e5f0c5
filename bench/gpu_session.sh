#!/usr/bin/env bash
# Runs everything that needs a GPU: builds, tests, checks memory, measures, runs the demo. Requires a GPU, a CUDA
# toolkit, CMake, a C++20 compiler, doctest and Google Benchmark (set CMAKE_PREFIX_PATH if the last two are not
# installed in default locations). Downloads nothing. Takes about twelve minutes on 16 cores. MEMSAVER_BENCH_DIR: the
# directory in which the benchmark of file backups creates its files, 4 GiB at a time (/var/tmp).
#
#   bench/gpu_session.sh <folder> [step...]    steps: build gpu sanitizer bench demo host
#
# Writes a log for each step and the benchmarks' JSON to <folder>. Ends with a table.
# shellcheck disable=SC2317 # the steps are called by name
set -uo pipefail
if (($# == 0)); then
    sed -n '2,9s/^# \{0,1\}//p' "$0"
    exit 2
fi
mkdir -p "$1"
out=$(cd "$1" && pwd)
shift
cd "$(dirname "$0")/.." || exit 2
build=${MEMSAVER_BUILD:-build/gpu}
cores=$(nproc)

step_build() {
    cmake --preset gpu -B "$build" -DMEMSAVER_TEST_COMPILATION=OFF && cmake --build "$build" --parallel "$cores"
}

step_gpu() { ctest --test-dir "$build" -L gpu --output-on-failure --no-tests=error; }

step_host() { ctest --test-dir "$build" -L host --parallel "$cores" --timeout 120 --output-on-failure; }

# Excludes the tests that allocate the whole device's memory or keep a kernel waiting, which would take all of the time,
# those that lose the device by reading where nothing is, and those whose launches must not wait.
step_sanitizer() {
    local sanitizer=/usr/local/cuda/bin/compute-sanitizer
    ! command -v compute-sanitizer >/dev/null || sanitizer=$(command -v compute-sanitizer)
    [[ -x $sanitizer ]] || { echo "skipped: compute-sanitizer not found"; return 77; }
    timeout 150 "$sanitizer" --tool memcheck --error-exitcode 9 --report-api-errors no \
        "$build/tests/gpu_tests" --source-file='*tests/gpu/*' --source-file-exclude='*busy_device*,*lost_device*,*transfer_test*,*gate*' \
        --test-case-exclude='no room*,many tensors*'
}

step_bench() { python3 bench/run.py --build "$build" --out "$out"; }

step_demo() { timeout 120 "$build/examples/demo"; }

steps=(build gpu bench demo sanitizer host)
(($# > 0)) && steps=("$@")
nvidia-smi --query-gpu=index,name,driver_version,memory.total,memory.used --format=csv || true

rows=()
failed=0
for step in "${steps[@]}"; do
    start=$SECONDS
    "step_$step" </dev/null >"$out/$step.log" 2>&1
    result=$?
    case $result in
    0) verdict=ok ;;
    77) verdict=skipped ;;
    *) verdict="FAILED ($result)" failed=1 ;;
    esac
    rows+=("$(printf '%-10s %-14s %4d s' "$step" "$verdict" $((SECONDS - start)))")
    if [[ $verdict == FAILED* ]]; then
        printf '=== %s failed; end of its log ===\n' "$step"
        grep -aE 'error|FAILED|ERROR|\*\*\*' "$out/$step.log" | head -n 20
        tail -n 25 "$out/$step.log"
        [[ $step != build ]] || break
    fi
done

for step in demo bench; do
    [[ ! -s $out/$step.log ]] || { printf '\n=== %s ===\n' "$step" && cut -c1-230 "$out/$step.log"; }
done
printf '\n=== summary ===\n'
for step in gpu host; do
    [[ ! -s $out/$step.log ]] || sed -n "s/^\([0-9]*% tests passed.*\)/$step: \1/p" "$out/$step.log"
done
grep -ahE '^skipped: ' "$out"/*.log 2>/dev/null | sort -u
printf '%s\n' "${rows[@]}"
exit $failed
