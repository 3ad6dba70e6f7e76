"""The settings that make Spark hide a pipeline's secrets, found without Spark."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ..connection import ConnectionOptions
from ..options import Options
from .config import JetStreamSink, JetStreamSource
from .validator import jetstream_options

if TYPE_CHECKING:
    from .config import Pipeline

# Event logs and the user interface hide only settings whose name contains one of these
# words. This is Spark's own rule, from 4.0 on.
REDACTION: Final = "spark.redaction.regex"
REDACTED: Final = "(?i)secret|password|token|access[.]?key|credential"


def secret_variables(pipeline: Pipeline) -> list[str]:
    """Return the environment variables that contain the pipeline's secrets."""
    found = set()
    for part in (*pipeline.sources.values(), *pipeline.sinks.values()):
        if isinstance(part, JetStreamSource | JetStreamSink):
            options = Options(jetstream_options(pipeline, part.options))
            chosen = ConnectionOptions.of(options)
            match chosen.secret:
                case _, "env", name:
                    found.add(name)
            match chosen.servers_place:
                case "env", name:
                    found.add(name)
    return sorted(found)


def redaction(variables: list[str], pattern: str) -> str:
    """Extend the pattern of hidden settings by `spark.executorEnv.NAME` of each variable."""
    return f"{pattern}|Env[.](?:{'|'.join(map(re.escape, variables))})$"
