#!/usr/bin/env bash
# Proves the CUDA backend on a card: the op suite, compute-sanitizer, training beside the CPU backend, and the speeds.
#
#   cluster/gpu_check.sh                    on a machine with a card and our packages: builds for that card, then checks
#   cluster/gpu_check.sh --bundle FILE.tgz  on a machine with nvcc and our packages, card or not: packs all that the check needs
#   tar xzf FILE.tgz && headsweep-gpu-check/gpu_check.sh     on any x86-64 Linux machine with a card: no packages, no network
#
# HEADSWEEP_GPU_CHECK_BUILD names a build folder to take the programs from, instead of building them.
#
# options: --out FOLDER  logs and tables (./gpu-check-results)     --seconds N  time for all of it (450)
#          --no-bench    without the speeds                        --architectures "80;90;100"  of a bundle
# Ends with one table. Exit code: 0 every check passed, 1 one failed, 2 wrong usage or no build, 3 no usable GPU (said within
# seconds, before anything is built).
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bundle='' out=./gpu-check-results seconds=450 bench=yes architectures='80;90;100'
while [ $# -gt 0 ]; do
  case $1 in
    --bundle | --out | --seconds | --architectures)
      [ $# -ge 2 ] || { echo "gpu_check.sh: $1 needs a value" >&2; exit 2; }
      printf -v "${1#--}" %s "$2"
      shift 2 ;;
    --no-bench) bench=no; shift ;;
    -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) echo "gpu_check.sh: unknown option $1; see --help" >&2; exit 2 ;;
  esac
done

programs=(headsweep-trainer headsweep-bench tests/kernels_test tests/trainer_test)

# Configures and builds the programs of the check in FOLDER. Native code only where it runs.
build() {  # build FOLDER NATIVE ARCHITECTURES
  cmake -S "$here/.." -B "$1" -Wno-dev -DCMAKE_BUILD_TYPE=Release -DHEADSWEEP_TESTS=ON -DHEADSWEEP_CUDA=ON \
    -DHEADSWEEP_NATIVE="$2" -DHEADSWEEP_CUDA_ARCHITECTURES="$3" >"$1.configure.log" 2>&1 ||
    { tail -20 "$1.configure.log" >&2; return 1; }
  cmake --build "$1" --parallel "$(nproc)" --target "${programs[@]##*/}"
}

# The libraries that a program needs and a bare machine has not: all but the C library's own, which must be the machine's.
carried_libraries() {
  ldd "$@" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
    grep -vE '/(ld-linux[^/]*|lib(c|m|dl|rt|pthread|resolv|util|anl|nsl|nss_[a-z]+))\.so[^/]*$'
}

make_bundle() {
  local folder=${HEADSWEEP_GPU_CHECK_BUILD:-$here/../build-gpu-check} stage
  if [ -z "${HEADSWEEP_GPU_CHECK_BUILD:-}" ]; then
    mkdir -p "$folder"
    build "$folder" OFF "$architectures" || { echo "gpu_check.sh: the build failed" >&2; return 2; }
  fi
  stage=$(mktemp -d) || return 2
  local root=$stage/headsweep-gpu-check
  mkdir -p "$root/bin/tests" "$root/lib"
  local program
  for program in "${programs[@]}"; do strip -o "$root/bin/$program" "$folder/$program" || return 2; done
  local libraries
  mapfile -t libraries < <(cd "$folder" && carried_libraries "${programs[@]}")
  # Loaded when first used, so ldd does not know it; the GPU machine may have none.
  local nccl
  nccl=$(ldconfig -p | awk '$1 == "libnccl.so.2" {print $NF; exit}')
  [ -n "$nccl" ] && libraries+=("$nccl")
  cp -L "${libraries[@]}" "$root/lib/" || return 2
  cp "${BASH_SOURCE[0]}" "$root/gpu_check.sh"
  tar -C "$stage" -czf "$bundle" headsweep-gpu-check || return 2
  rm -rf "$stage"
  echo "bundle $bundle: $(du -h "$bundle" | cut -f1)"
}

if [ -n "$bundle" ]; then
  make_bundle
  exit
fi

# --- Is there a card? -----------------------------------------------------------------------------------------------------------
began=$SECONDS
if [ -d "$here/bin" ]; then
  bin=$here/bin
else
  bin=${HEADSWEEP_GPU_CHECK_BUILD:-$here/../build-gpu-check-native}
fi
if ! compgen -G '/dev/nvidia[0-9]*' >/dev/null && [ ! -e /dev/dxg ] && ! nvidia-smi -L >/dev/null 2>&1 &&
  [ -z "${HEADSWEEP_GPU_CHECK_BUILD:-}" ]; then
  echo "gpu_check.sh: no NVIDIA GPU on this machine (no /dev/nvidia*, and nvidia-smi lists none); nothing was built or checked" >&2
  exit 3
fi

# cuBLASLt and NCCL: where pip's wheels put them, if the dynamic linker and the toolkit do not have them.
wheels=$(python3 -c 'import site, glob
for folder in site.getsitepackages() + [site.getusersitepackages()]:
    for library in glob.glob(folder + "/nvidia/*/lib/libcublasLt.so.*") + glob.glob(folder + "/nvidia/nccl/lib/libnccl.so.*"): print(library.rsplit("/", 1)[0])' 2>/dev/null | sort -u | paste -sd:)
outer=${LD_LIBRARY_PATH:-}
search=${outer:+$outer:}/usr/local/cuda/lib64${wheels:+:$wheels}
[ -d "$here/bin" ] && search=$here/lib:$search
# For our programs alone: the machine's own ones (python3) keep their libraries.
ours=(env "LD_LIBRARY_PATH=$search" "HEADSWEEP_OUTER_LIBRARY_PATH=$outer")
export PATH=$PATH:/usr/local/cuda/bin

if [ ! -x "$bin/headsweep-trainer" ] || { [ ! -d "$here/bin" ] && [ -z "${HEADSWEEP_GPU_CHECK_BUILD:-}" ]; }; then
  mkdir -p "$bin"
  build "$bin" ON '' || { echo "gpu_check.sh: the build failed; on a machine without the packages use a bundle" >&2; exit 2; }
  began=$SECONDS
fi

probe=$("${ours[@]}" "$bin/headsweep-trainer" --probe 2>&1)
if ! grep -q '"devices":\[{' <<<"$probe"; then
  echo "gpu_check.sh: no usable GPU: $(sed -n 's/.*"problem":{"code":"[^"]*","message":"\(.*\)","remedy":"\(.*\)"}}.*/\1; \2/;T;s/\\"/"/g;p' <<<"$probe")" >&2
  echo "$probe" >&2
  exit 3
fi

# --- The checks -----------------------------------------------------------------------------------------------------------------
mkdir -p "$out" || exit 2
printf '%s\n' "$probe" >"$out/probe.json"
export HEADSWEEP_REQUIRE_CUDA=1
rows=() failed=0

# check NAME SECONDS COMMAND…: runs it, its output in $out/NAME.log, and adds a row to the table.
check() {
  local name=$1 limit=$2 start=$SECONDS left=$((seconds - (SECONDS - began))) code result note
  shift 2
  if [ "$left" -lt 5 ]; then
    rows+=("$name|NOT RUN|0|no time left of $seconds s")
    failed=1
    return
  fi
  [ "$left" -lt "$limit" ] && limit=$left
  echo "== $name" >&2
  timeout -k 10 "$limit" "${ours[@]}" "$@" >"$out/$name.log" 2>&1
  code=$?
  note=$(grep -E '^\[  (PASSED|FAILED)  \]|ERROR SUMMARY|RACECHECK SUMMARY' "$out/$name.log" | head -2 | tr -s ' ' | paste -sd' ')
  case $code in
    0) result=ok ;;
    124 | 137) result=FAILED note="not done after $limit s" failed=1 ;;
    *) result=FAILED note="code $code${note:+: $note}" failed=1 ;;
  esac
  # NCCL may be missing on this machine, and the test says so; a card was there, or it would have failed.
  if [ "$code" = 0 ] && grep -q '^\[  SKIPPED \]' "$out/$name.log"; then
    result=skipped note=$(grep -m1 -A1 ': Skipped$' "$out/$name.log" | tail -1)
  fi
  # A suite that ran nothing on the card proves nothing.
  if [ "$code" = 0 ] && grep -qE '^\[==========\] (0 tests|Running 0 tests)' "$out/$name.log"; then
    result=FAILED note='no test ran' failed=1
  fi
  rows+=("$name|$result|$((SECONDS - start))|$note")
}
skip() { rows+=("$1|skipped|0|$2"); }

cuda_tests='*cuda_float*:*cuda_bf16*'  # instances of the op suite on a card
check ops 150 "$bin/tests/kernels_test" --gtest_brief=1 --gtest_filter="$cuda_tests"
check training 90 "$bin/tests/trainer_test" --gtest_filter='CudaTrainingOnCard*'
check nccl 60 "$bin/tests/trainer_test" --gtest_filter='NcclOnCard*'
sanitizer=$(command -v compute-sanitizer)
if [ -n "$sanitizer" ]; then
  # Ten to a hundred times slower: every sixteenth test of the suite.
  check memcheck 70 env GTEST_TOTAL_SHARDS=16 GTEST_SHARD_INDEX=3 "$sanitizer" --tool memcheck --error-exitcode 9 \
    "$bin/tests/kernels_test" --gtest_brief=1 --gtest_filter="$cuda_tests"
  check racecheck 70 env GTEST_TOTAL_SHARDS=16 GTEST_SHARD_INDEX=11 "$sanitizer" --tool racecheck --error-exitcode 9 \
    "$bin/tests/kernels_test" --gtest_brief=1 --gtest_filter="$cuda_tests"
else
  skip memcheck 'compute-sanitizer is not installed'
  skip racecheck 'compute-sanitizer is not installed'
fi
if [ "$bench" = yes ]; then
  for suite in ops attention step; do
    check "bench-$suite" 70 "$bin/headsweep-bench" "$suite" --device cuda --seconds 10 --json "$out/bench-$suite.json"
    [ -s "$out/bench-$suite.log" ] && sed 's/^/   /' "$out/bench-$suite.log"
  done
fi

echo
sed -n 's/.*"devices":\[{"index":0,"name":"\([^"]*\)".*/GPU: \1/p' "$out/probe.json"
printf '%-16s %-8s %5s  %s\n' check result s note
for row in "${rows[@]}"; do
  IFS='|' read -r name result time note <<<"$row"
  printf '%-16s %-8s %5s  %s\n' "$name" "$result" "$time" "$note"
done
echo "logs in $out"
exit "$failed"
