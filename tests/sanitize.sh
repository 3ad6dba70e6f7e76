#!/usr/bin/env bash
# Build the extension with the address and undefined-behaviour sanitizers of gcc, in a temporary
# copy, and run tests with it: the unit tests that call the extension, two fault campaigns against
# real servers (kills, cuts, garbage, slow lines), and the tests of WebSocket and TLS. Sanitizers
# find nothing in tests of pure Python.
#
#     tests/sanitize.sh [VENV] [pytest arguments]      VENV defaults to .venv
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
venv=$(cd "${1:-$root/.venv}" && pwd)
python=$venv/bin/python
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT

# Without an existing build, which would be reused, and without what other runs write meanwhile.
tar -C "$root" --exclude __pycache__ --exclude '_fast*.c' --exclude '_fast*.so' \
    -c jsync tests setup.py pyproject.toml README.md LICENSE | tar -C "$copy" -x
cd "$copy"

JSYNC_DEBUG=1 CC=gcc LDSHARED="gcc -shared" \
CFLAGS="-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer" \
    "$python" setup.py --quiet build_ext --inplace

mapfile -t unit < <(grep -rlE '\b_fast\b' tests/unit --include='test_*.py' | sort)

# Python itself is not instrumented, so the runtimes must be loaded before it. The allocator of
# Python would hide most errors, and Python does not free all its memory at exit. A malloc that
# is too large must be a MemoryError, as elsewhere. The sanitizers do not write to sys.stderr,
# and only this kind of capturing shows their reports.
LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)" \
ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 \
UBSAN_OPTIONS=print_stacktrace=1 \
PYTHONMALLOC=malloc \
PYTHONPATH=$copy \
    "$root/scripts/run-tests" sanitize "$venv" -m 'not tools' --capture=sys "${@:2}" \
    "${unit[@]}" tests/server/core/test_faults.py tests/server/core/test_wan_faults.py \
    tests/server/core/test_websocket.py tests/server/core/test_tls.py
