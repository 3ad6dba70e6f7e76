"""Tests of the redaction of a pipeline's secrets in Spark, which is never started here."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from jsync.spark.pipeline.load import load
from jsync.spark.pipeline.redaction import redaction, secret_variables

if TYPE_CHECKING:
    from pathlib import Path

FILE = """
[nats]
tokenEnv = "EVERYBODYS_WORD"
[sources.a]
format = "jetstream"
options = { stream = "A" }
[sources.b]
format = "jetstream"
options = { stream = "A", "nats.tokenEnv" = "", "nats.credentialsFile" = "/creds" }
[sources.c]
format = "csv"
path = "c"
schema = "c int"
[sinks.d]
format = "jetstream"
from = "a"
options = { stream = "A", "nats.tokenEnv" = "", "nats.nkeySeedEnv" = "ANNS.SEED" }
"""


def test_secret_variables_are_those_of_sources_and_sinks(
    tmp_path: Path,
) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text(FILE)
    pipeline, _ = load(file)
    assert pipeline is not None
    assert secret_variables(pipeline) == ["ANNS.SEED", "EVERYBODYS_WORD"]


def test_settings_of_secrets_join_those_already_hidden() -> None:
    hidden = re.compile(redaction(["ANNS.SEED", "WORD"], "(?i)token|secret"))
    for name in ("my.Secret", "spark.executorEnv.WORD", "spark.executorEnv.ANNS.SEED"):
        assert hidden.search(name), name
    for name in ("WORD", "spark.executorEnv.WORDS", "spark.executorEnv.ANNS_SEED"):
        assert not hidden.search(name), name
