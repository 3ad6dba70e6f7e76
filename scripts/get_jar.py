"""Fetch a jar from Maven Central: `get_jar.py TARGET SHA256 [FOLDER]`.

The target has the name of the jar. Jars of Spark need no folder.
"""

import hashlib
import sys
import urllib.request
from pathlib import Path

REPOSITORY = "https://repo1.maven.org/maven2"


def main(target: Path, digest: str, folder: str | None = None) -> None:
    if folder is None:
        artifact, _, version = target.stem.rpartition("-")
        folder = f"org/apache/spark/{artifact}/{version}"
    url = f"{REPOSITORY}/{folder}/{target.name}"
    with urllib.request.urlopen(url, timeout=60) as answer:  # noqa: S310 (https)
        data = answer.read()
    if hashlib.sha256(data).hexdigest() != digest:
        raise SystemExit(f"{url} is not the file that was expected")
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(".partial")
    partial.write_bytes(data)
    partial.rename(target)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
