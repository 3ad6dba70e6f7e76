"""Build the image of examples/cluster without a registry or a daemon, and run containers of it.

The base images of its Containerfile come from Debian's packages and from the PySpark package, under
the names that the Containerfile uses. All else is built as it stands there, from Debian and PyPI.
"""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

if TYPE_CHECKING:
    from collections.abc import Mapping

BASES = Path(__file__).with_name("image")
PYTHON = "docker.io/library/python:3.11-slim-bookworm"
SPARK = f"docker.io/apache/spark:{pyspark.__version__}"
LONG = 1800
"""The seconds in which a step of a build must end, even on a slow machine."""


class Images:
    """Images and containers below a directory of their own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._buildah = [
            *("buildah", "--root", str(directory / "store")),
            *("--runroot", str(directory / "run")),
        ]
        self._log = directory / "build.log"

    def build_bases(self, sdist: Path) -> None:
        """Build the base images, and the wheel of jsync for their Python."""
        context = self._directory / "bases"
        shutil.copytree(BASES, context)
        packages = "python3-minimal,python3-venv,ca-certificates"
        self._logged(
            *("mmdebstrap", "--variant=minbase", f"--include={packages}"),
            *("bookworm", str(context / "debian.tar")),
        )
        self._build(context, "python", PYTHON)
        spark = f"pyspark={Path(pyspark.__file__).parent}"
        self._build(context, "spark", SPARK, "--build-context", spark)
        shutil.copy(sdist, context / "jsync.tar.gz")
        self._wheels.mkdir()
        self._build(
            *(context, "wheel", "wheel", "--volume", f"{self._wheels}:/wheels"),
            *self._settings_of_pip(),
        )

    def build(self, context: Path, name: str) -> None:
        """Build the Containerfile of a directory, unchanged."""
        self._logged(
            *(*self._buildah, "bud", "--isolation", "chroot", "--pull-never"),
            *("--build-arg", f"SPARK={SPARK}", *self._settings_of_pip()),
            *("--tag", name, str(context)),
        )

    def container(self, image: str, name: str) -> Container:
        start = [*self._buildah, "from", "--pull-never", "--name", name, image]
        self._logged(*start)
        return Container(self._buildah, name)

    def remove(self) -> None:
        subprocess.run([*self._buildah, "rm", "--all"], check=True, capture_output=True)
        remove = [*self._buildah, "rmi", "--all", "--force"]
        subprocess.run(remove, check=True, capture_output=True)

    @property
    def _wheels(self) -> Path:
        return self._directory / "wheels"

    def _settings_of_pip(self) -> list[str]:
        """Mount settings that let pip find the wheel, and trust what this machine trusts."""
        settings = "[global]\nfind-links = /wheels\n"
        if file := ssl.get_default_verify_paths().cafile:
            shutil.copy(file, self._wheels / "trusted.pem")
            settings += "cert = /wheels/trusted.pem\n"
        path = self._directory / "pip.conf"
        path.write_text(settings)
        return [
            *("--volume", f"{path}:/etc/pip.conf:ro"),
            *("--volume", f"{self._wheels}:/wheels"),
        ]

    def _build(self, context: Path, file: str, tag: str, *more: str) -> None:
        self._logged(
            *(*self._buildah, "bud", "--isolation", "chroot", "--pull-never", *more),
            *("--file", str(context / f"{file}.Containerfile"), "--tag", tag),
            str(context),
        )

    def _logged(self, *command: str) -> None:
        with self._log.open("ab") as log:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                check=False,
                timeout=LONG,
            )
        assert done.returncode == 0, self._log.read_text(errors="replace")[-4000:]


class Container:
    """A container in which one command after the other runs, with the network of this machine."""

    def __init__(self, buildah: list[str], name: str) -> None:
        self._buildah = buildah
        self._name = name

    def command(
        self,
        *command: str,
        volumes: Mapping[Path, str] | None = None,
        environment: Mapping[str, str] | None = None,
        user: str | None = None,
    ) -> list[str]:
        """Return the command that runs another one in the container."""
        return [
            *(*self._buildah, "run", "--isolation", "chroot"),
            *(
                part
                for source, target in (volumes or {}).items()
                for part in ("--volume", f"{source}:{target}")
            ),
            *(
                part
                for name, value in (environment or {}).items()
                for part in ("--env", f"{name}={value}")
            ),
            *(("--user", user) if user else ()),
            *(self._name, "--", *command),
        ]

    def files_with(self, *patterns: str) -> set[str]:
        """Return the files of the container that contain one of these regular expressions."""
        search = [part for pattern in patterns for part in ("-e", pattern)]
        grep = ["grep", "--files-with-matches", "--text", "--extended-regexp", *search]
        find = ["find", "/", "-xdev", "-type", "f", "-exec", *grep, "{}", "+"]
        done = subprocess.run(
            self.command(*find, user="root"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,  # grep fails where it finds nothing
            timeout=LONG,
        )
        return set(done.stdout.split())
