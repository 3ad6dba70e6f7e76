"""Break the package in one place at a time, and look which tests find it.

    python -m tests.mutation            the tests that breaks.toml names find each break
    python -m tests.mutation --search   all tests of the mirrored folders look for each break
    python -m tests.mutation NAME...    only these breaks

Each break replaces one text of one file in a temporary copy of the tree. A break that no test
finds fails the run. `--search` writes the tests that found a break into breaks.toml. A break of the
extension compiles it again, which takes minutes.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIST = Path(__file__).with_name("breaks.toml")
MAX_SECONDS = 300
"""The time of the tests of one break. A test that waits for ever fails after two minutes."""
FEW = 12
"""The number of files up to which the start of two workers costs more than it gains."""
MARKERS = "not bulk and not fault and not cluster and not tools and not clients"
FOUND = re.compile(r"^(?:FAILED|ERROR) (tests/\S+?)(?:\[.*)?(?: - .*)?$", re.MULTILINE)
COMMENT = """\
# Places of the package that `make mutation` breaks, one at a time, and the tests that find each
# break. `python -m tests.mutation --search` looks for these tests, and writes this file.
"""


@dataclass
class Break:
    """One text of one file, the text that replaces it, and the tests that find it."""

    name: str
    file: str
    before: str
    after: str
    tests: list[str]
    """The folders and files that mirror the place, if `mirrored` does not find them."""
    found_by: list[str]

    @property
    def matches(self) -> int:
        """The number of times that the text stands in its file. It must be 1."""
        file = ROOT / self.file
        return file.read_text().count(self.before) if file.exists() else 0

    def apply(self, tree: Path) -> None:
        file = tree / self.file
        file.write_text(file.read_text().replace(self.before, self.after))

    def stages(self, *, search: bool) -> list[list[str]]:
        """Return the tests to run, each list after the one before it has found nothing."""
        if self.found_by and not search:
            return [self.found_by]
        return [self.tests] if self.tests else mirrored(self.file)

    def written(self) -> str:
        """Return the break as a table of TOML."""
        lines = [
            "[[break]]",
            f'name = "{self.name}"',
            f'file = "{self.file}"',
            f"before = '''{self.before}'''",
            f"after = '''{self.after}'''",
        ]
        for key in ("tests", "found_by"):
            if value := getattr(self, key):
                rows = "".join(f'  "{each}",\n' for each in value)
                lines.append(f"{key} = [\n{rows}]")
        return "\n".join(lines) + "\n"


def mirrored(file: str) -> list[list[str]]:
    """Return the files of tests that mirror the folder of a file of the package.

    The first list has the files that share a word with the name of the file, and the unit tests:
    they find most breaks.
    """
    folder = Path(file).parent.relative_to("jsync")
    if folder.parts[:1] == ("_fast_parts",):
        places = ["tests/unit/fast"]
    elif folder.parts[:1] in (("cli",), ("integrations",)):
        places = [f"tests/{folder.parts[0]}"]
    else:
        places = [f"tests/unit/{folder}", f"tests/server/{folder}"]
    stem = Path(file).stem
    stem = folder.name if stem in ("engine", "driver") else stem
    words = {word.removesuffix("s") for word in stem.split("_")}
    near: list[str] = []
    others: list[str] = []
    for place in places:
        for test in sorted((ROOT / place).glob("test_*.py")):
            is_near = "/unit/" in place or any(word in test.name for word in words)
            (near if is_near else others).append(str(test.relative_to(ROOT)))
    if not near and not others:
        raise SystemExit(f"no tests mirror {file}: name them under tests")
    return [stage for stage in (near, others) if stage]


def read_breaks() -> list[Break]:
    listed = tomllib.loads(LIST.read_text())["break"]
    return [Break(**{"tests": [], "found_by": [], **each}) for each in listed]


def write_breaks(breaks: list[Break]) -> None:
    LIST.write_text("\n".join([COMMENT, *(each.written() for each in breaks)]))


def copy_of_the_tree(tree: Path) -> None:
    """Copy what git tracks and the compiled extension."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    files = [ROOT / name for name in listed.stdout.split("\0") if name]
    for file in [*files, *(ROOT / "jsync").glob("_fast.*")]:
        if file.is_file():
            target = tree / file.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, target)
    for shared in (".venv", ".cache"):  # servers, and the programs of tools
        if (ROOT / shared).exists():
            (tree / shared).symlink_to((ROOT / shared).resolve())


def run_tests(tree: Path, tests: list[str], *options: str) -> list[str] | None:
    """Run tests and return those that failed. None: all have passed, or the time was over."""
    command = [
        *("nice", sys.executable, "-m", "pytest", "-q", "-m", MARKERS),
        *("-p", "no:cacheprovider", "--timeout", "120", "--tb", "no", "--no-header"),
        *(
            "-n",
            "2" if len(tests) > FEW else "0",
            "--dist",
            "loadfile",
            *options,
            *tests,
        ),
    ]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    try:
        ended = subprocess.run(
            command,
            cwd=tree,
            env=environment,
            timeout=MAX_SECONDS,
            check=False,
            capture_output=True,
            text=True,
        )
    except subprocess.TimeoutExpired:
        return None
    if ended.returncode == 0:
        return None
    if found := FOUND.findall(ended.stdout):
        return sorted(set(found))
    raise SystemExit(ended.stdout[-3000:] + ended.stderr[-3000:])


def compile_extension(tree: Path) -> str:
    """Compile the extension of a copy. Return the error of the compiler, if there is one."""
    for old in (tree / "jsync").glob("_fast.c"):
        old.unlink()
    ended = subprocess.run(
        ["nice", sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
        cwd=tree,
        env={**os.environ, "CFLAGS": "-O0"},  # for a third of the time
        check=False,
        capture_output=True,
        text=True,
    )
    return ended.stderr if ended.returncode else ""


def try_break(one: Break, tree: Path, ignored: set[str], *, search: bool) -> bool:
    """Break a copy, run the tests, and repair the copy. Return whether a test has failed."""
    original = (tree / one.file).read_bytes()
    is_extension = "_fast" in one.file
    began = time.monotonic()
    one.apply(tree)
    try:
        if is_extension and (error := compile_extension(tree)):
            raise SystemExit(f"{one.name} does not compile:\n{error[-3000:]}")
        without = [word for test in ignored for word in ("--deselect", test)]
        found = None
        for stage in one.stages(search=search):
            found = found or run_tests(tree, stage, "-x", *without)
    finally:
        (tree / one.file).write_bytes(original)
        if is_extension:
            for compiled in (ROOT / "jsync").glob("_fast.*"):
                shutil.copy2(compiled, tree / "jsync")
    if search and found:  # a test may lack something here, or fail by chance
        others = run_tests(tree, found) or []
        if others:
            print(f"fail without a break, too: {', '.join(others)}", flush=True)
            ignored.update(others)
            return try_break(one, tree, ignored, search=search)
    seconds = f"{time.monotonic() - began:.0f} s"
    if found is None:
        print(f"NOT FOUND: {one.name} ({seconds}): {one.file}", flush=True)
        return False
    print(f"found: {one.name} ({seconds}): {', '.join(found[:3])}", flush=True)
    if search or not one.found_by:
        one.found_by = found[:3]
    return True


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument(
        "--search", action="store_true", help="run all tests of the mirrored folders"
    )
    options = parser.parse_args()
    breaks = read_breaks()
    known = {one.name for one in breaks}
    if unknown := set(options.names) - known:
        parser.error(f"no break has the name {', '.join(sorted(unknown))}")
    chosen = [one for one in breaks if one.name in (options.names or known)]
    if stale := [one for one in chosen if one.matches != 1]:
        for one in stale:
            print(
                f"{one.name}: {one.file} has {one.before!r} {one.matches} times, not once"
            )
        return 1
    with tempfile.TemporaryDirectory() as place:
        tree = Path(place)
        copy_of_the_tree(tree)
        named = sorted({test for one in chosen for test in one.found_by})
        if named and not options.search and (failed := run_tests(tree, named)):
            print(f"these tests fail without a break: {', '.join(failed)}")
            return 1
        missed, ignored = [], set[str]()
        for one in chosen:
            if not try_break(one, tree, ignored, search=options.search):
                missed.append(one.name)
            write_breaks(breaks)
    print(f"{len(chosen) - len(missed)} of {len(chosen)} breaks were found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
