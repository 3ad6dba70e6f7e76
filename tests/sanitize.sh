#!/usr/bin/env bash
# Builds the extension with the address and undefined-behaviour sanitizers of gcc, in a
# temporary copy. Runs tests/unit against it, except the tests of the project's own files,
# which are not all copied, two fault campaigns against real servers: kills, cuts, garbage,
# slow lines, and the tests of WebSocket and TLS.
#
#     tests/sanitize.sh [VENV] [pytest arguments]      VENV is .venv when not given
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
venv=$(cd "${1:-$root/.venv}" && pwd)
python=$venv/bin/python
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT

(cd "$root" && cp -r jsync tests setup.py pyproject.toml README.md LICENSE "$copy")
cd "$copy"
# What was built before is newer than its source and would be taken for this build.
rm -f jsync/_fast.c jsync/*.so

JSYNC_DEBUG=1 CC=gcc LDSHARED="gcc -shared" \
CFLAGS="-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer" \
    "$python" setup.py --quiet build_ext --inplace

# Python itself is not instrumented, so the runtimes have to be there before it is. Its
# own allocator would hide most errors, and it leaves much for the exit to free. A
# malloc too large is a MemoryError, as elsewhere. Reports are written past sys.stderr,
# where only this kind of capturing lets them through.
LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)" \
ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 \
UBSAN_OPTIONS=print_stacktrace=1 \
PYTHONMALLOC=malloc \
PYTHONPATH=$copy \
    "$python" -m pytest tests/unit -m 'not tools' \
    tests/server/test_faults.py tests/server/test_wan_faults.py \
    tests/server/test_websocket.py tests/server/test_tls.py \
    -q -p no:cacheprovider --capture=sys "${@:2}"
