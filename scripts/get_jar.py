"""Fetch a jar from Maven Central: `get_jar.py TARGET SHA256`, by the name of the target."""

import hashlib
import sys
import urllib.request
from pathlib import Path

REPOSITORY = "https://repo1.maven.org/maven2/org/apache/spark"


def main(target: Path, digest: str) -> None:
    artifact, _, version = target.stem.rpartition("-")
    url = f"{REPOSITORY}/{artifact}/{version}/{target.name}"
    with urllib.request.urlopen(url, timeout=60) as answer:  # noqa: S310 (https)
        data = answer.read()
    if hashlib.sha256(data).hexdigest() != digest:
        raise SystemExit(f"{url} is not the file that was expected")
    partial = target.with_suffix(".partial")
    partial.write_bytes(data)
    partial.rename(target)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
