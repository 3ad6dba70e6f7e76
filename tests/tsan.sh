#!/usr/bin/env bash
# Build the extension with the ThreadSanitizer of clang for a Python that has it too, in a
# temporary copy, and run the tests in which threads share objects. A report fails the run.
# tests/tsan.txt lists the known reports about CPython itself.
#
#     tests/tsan.sh [VENV] [pytest arguments]      VENV defaults to .venv
#
# TSAN_PYTHON is a CPython configured with `--disable-gil --with-thread-sanitizer`, which can
# import pytest and msgspec; by default one in .pythons. VENV has Cython, a nats-server, and
# cryptography for certificates. TSAN_PYTHON itself needs neither nkeys nor cryptography,
# unless you set JSYNC_TESTS_WITHOUT.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
python=${TSAN_PYTHON:-$(find "$root/.pythons" -path '*-tsan/bin/python3' 2>/dev/null | head -1)}
venv=$(cd "${1:-$root/.venv}" && pwd)
# Randomized addresses of newer kernels do not fit into the memory map of the sanitizer.
run() { PYTHONDONTWRITEBYTECODE=1 setarch --addr-no-randomize "$python" "$@"; }

need() { echo "make tsan needs $1" >&2 && exit 1; }
[ -n "$python" ] && command -v "$python" >/dev/null &&
  built=$(run -c 'import sysconfig; print(sysconfig.get_config_var("CONFIG_ARGS"))') &&
  [[ $built == *--with-thread-sanitizer* && $built == *--disable-gil* ]] ||
  need 'a Python configured --disable-gil --with-thread-sanitizer: make tsan TSAN_PYTHON=/path/to/python3'
read -r cc include suffix < <(run -c 'import sysconfig
print(sysconfig.get_config_var("CC").split()[0], sysconfig.get_path("include"),
      sysconfig.get_config_var("EXT_SUFFIX"))')
command -v "$cc" >/dev/null ||
  need "$cc and its runtime, which built that Python: apt-get install clang-14 libclang-rt-14-dev"
run -c 'import msgspec, pytest' 2>/dev/null || need "pytest and msgspec installed for $python"

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
(cd "$root" && cp -r jsync tests setup.py pyproject.toml README.md LICENSE "$copy")
cd "$copy"
rm -f jsync/_fast.c jsync/*.so

# Any Python can generate the C code. The sanitized one would need minutes.
JSYNC_DEBUG=1 "$venv/bin/python" setup.py --quiet --name >/dev/null
"$cc" -fsanitize=thread -fno-omit-frame-pointer -O1 -g1 -fwrapv -w -fPIC -shared -pthread \
  -I"$include" -o "jsync/_fast$suffix" jsync/_fast.c

mkdir certificates
"$venv/bin/python" -m tests.support.certificate_authority certificates

NATS_SERVER=${NATS_SERVER:-$venv/bin/nats-server} \
JSYNC_MEETINGS=${JSYNC_MEETINGS:-300} JSYNC_SHARED_SECONDS=${JSYNC_SHARED_SECONDS:-4} \
JSYNC_TESTS_CERTIFICATES=$copy/certificates \
JSYNC_TESTS_WITHOUT=${JSYNC_TESTS_WITHOUT-nkeys cryptography} \
TSAN_OPTIONS="suppressions=$root/tests/tsan.txt history_size=5 exitcode=66 ${TSAN_OPTIONS:-}" \
PYTHON_GIL=0 PYTHONPATH=$copy${PYTHONPATH:+:$PYTHONPATH} \
  run -m pytest tests/unit/fast/test_thread_races.py tests/unit/fast/test_lazy_races.py \
  tests/unit/fast/test_shared.py tests/unit/fast/test_records.py tests/server/core/test_shared_connection.py \
  -q -p no:cacheprovider --capture=sys "${@:2}"
