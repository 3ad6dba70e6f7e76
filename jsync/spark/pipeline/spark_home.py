"""A Spark home in which Python finds PySpark as a package, and not as an archive.

Spark puts `python/lib/pyspark.zip` of its home before all other places in which its Python
processes look for modules. Python keeps no compiled code for an archive, so each of these
processes compiles PySpark again, which takes most of a second. The home that is made here has
only links. Those with the names of the archives lead to the installed packages.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .class_archive import cache_folder, is_own

if TYPE_CHECKING:
    from collections.abc import Mapping

_LINKED: Final = ("bin", "jars", "sbin", "conf")
_LIBRARY: Final = Path("python", "lib")


def linked_home(package: Path, version: str, env: Mapping[str, str]) -> Path | None:
    """Return the place of the home with links, or None if the home has to be another one.

    Args:
        package: The folder of PySpark, which is a Spark home if pip has installed it.
        version: The version of Spark.
        env: The environment.
    """
    folder = cache_folder(env)
    if os.name != "posix" or folder is None or env.get("SPARK_HOME"):
        return None
    if not (package / _LIBRARY / "pyspark.zip").is_file():
        return None
    digest = hashlib.sha256(str(package).encode()).hexdigest()[:16]
    return folder / f"home-{version}-{digest}"


def make_links(home: Path, package: Path, py4j: Path) -> bool:
    """Make the links that are missing in a home.

    Args:
        home: The home, as `linked_home` names it.
        package: The folder of PySpark.
        py4j: The folder of the package py4j.

    Returns:
        Whether the home is complete, and only this user can write it.
    """
    links = {home / name: package / name for name in _LINKED}
    try:
        for archive in (package / _LIBRARY).glob("*.zip"):
            module = package if archive.stem == "pyspark" else py4j
            links[home / _LIBRARY / archive.name / module.name] = module
        home.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        home.mkdir(mode=0o700, exist_ok=True)
        for link, target in links.items():
            link.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):  # also from another run
                link.symlink_to(target)
        return is_own(home) and is_own(home.parent)
    except OSError:
        return False
