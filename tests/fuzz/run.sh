#!/usr/bin/env bash
# Fuzz jsync._fast against the oracle in tests/support/reference.py. The fuzzer is guided by coverage, and
# uses the address and undefined-behaviour sanitizers.
#
#     tests/fuzz/run.sh WORK [libFuzzer options]      such as -runs=100000
#     tests/fuzz/run.sh WORK crash-...                run one input of WORK again
#
# WORK keeps a virtual environment, the build, the corpus, and inputs that failed.
# Needs clang (Debian: clang libclang-rt-dev; set CLANG for another one) and PyPI.
# JSYNC_FUZZ=crash leaves the oracle out. It tries more inputs, and finds only crashes.
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$1"
work=$(cd "$1" && pwd)
clang=${CLANG:-clang}
python=$work/venv/bin/python

command -v "$clang" >/dev/null || {
    echo "fuzzing needs clang and its runtime: apt-get install clang libclang-rt-dev (or CLANG=...)" >&2
    exit 1
}

if [ ! -x "$python" ]; then
    "${PYTHON:-python3}" -m venv "$work/venv"
    # The dependencies of jsync. jsync itself is built below.
    "$python" -c 'import sys, tomllib
needed = tomllib.load(sys.stdin.buffer)
print(*needed["project"]["dependencies"], *needed["build-system"]["requires"], sep="\n")
' <"$root/pyproject.toml" >"$work/requirements.txt"
    "$python" -m pip install -q "atheris>=3" -r "$work/requirements.txt"
fi

rm -rf "$work/build"
mkdir -p "$work/build" "$work/corpus"
(cd "$root" && cp -r jsync tests setup.py pyproject.toml README.md LICENSE "$work/build")
cd "$work/build"
rm -f jsync/_fast.c jsync/*.so

# Without pointer-overflow, because the code of Cython adds 0 to NULL, which C23 allows.
JSYNC_DEBUG=1 CC=$clang LDSHARED="$clang -shared" \
CFLAGS="-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize=pointer-overflow -fno-sanitize-recover=undefined -fno-omit-frame-pointer" \
    "$python" setup.py --quiet build_ext --inplace

# The runtime of the sanitizer and libFuzzer must be loaded before Python.
runtime=$("$python" -c "import atheris; print(atheris.path())")/asan_with_fuzzer.so
fuzz() {
    LD_PRELOAD=$runtime \
    ASAN_OPTIONS=detect_leaks=0 \
    UBSAN_OPTIONS=print_stacktrace=1 \
    PYTHONMALLOC=malloc \
    PYTHONPATH=$work/build \
        nice "$python" -m tests.fuzz.fuzz_fast "$@"
}

cd "$work"  # libFuzzer writes failing inputs here
fuzz --write-seeds "$work/corpus"
if [ -f "${!#}" ]; then
    fuzz "${@:2}"
    exit
fi
# A leak of 50 bytes per input exceeds this memory limit after ten million inputs.
fuzz -dict="$work/build/tests/fuzz/nats.dict" -max_len=512 -rss_limit_mb=512 \
    -print_final_stats=1 "${@:2}" "$work/corpus"
