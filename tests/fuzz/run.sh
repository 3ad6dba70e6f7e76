#!/usr/bin/env bash
# Fuzzes jsync._fast: coverage-guided, with the address and undefined-behaviour
# sanitizers, against the oracle in tests/reference.py.
#
#     tests/fuzz/run.sh WORK [libFuzzer options]      -runs=100000 for instance
#     tests/fuzz/run.sh WORK crash-...                one input again, of those in WORK
#
# WORK keeps what should last: a venv, the build, the corpus, and inputs that failed.
# Needs clang (Debian: clang libclang-rt-dev; CLANG names another) and PyPI.
# JSYNC_FUZZ=crash leaves the oracle out: more inputs, looking for crashes alone.
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
    # What jsync needs, without jsync: that is built below.
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

# Without pointer-overflow: what Cython generates adds 0 to NULL, which C23 allows.
JSYNC_DEBUG=1 CC=$clang LDSHARED="$clang -shared" \
CFLAGS="-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize=pointer-overflow -fno-sanitize-recover=undefined -fno-omit-frame-pointer" \
    "$python" setup.py --quiet build_ext --inplace

# The runtime of the sanitizer and libFuzzer have to be there before Python is.
runtime=$("$python" -c "import atheris; print(atheris.path())")/asan_with_fuzzer.so
fuzz() {
    LD_PRELOAD=$runtime \
    ASAN_OPTIONS=detect_leaks=0 \
    UBSAN_OPTIONS=print_stacktrace=1 \
    PYTHONMALLOC=malloc \
    PYTHONPATH=$work/build \
        nice "$python" -m tests.fuzz.fuzz_fast "$@"
}

cd "$work"  # where the inputs that fail are written
fuzz --write-seeds "$work/corpus"
if [ -f "${!#}" ]; then
    fuzz "${@:2}"
    exit
fi
# A leak of 50 bytes an input passes the bound on memory in ten million.
fuzz -dict="$work/build/tests/fuzz/nats.dict" -max_len=512 -rss_limit_mb=512 \
    -print_final_stats=1 "${@:2}" "$work/corpus"
