"""Pipelines between JetStream and files, on Spark, declared in a TOML file.

    python -m jsync.spark.pipeline run pipeline.toml
    python -m jsync.spark.pipeline check pipeline.toml

The functions `run` and `check` do the same, and `main` is the command line. The map, from
the file to the rows:

    config       the contents of the file, as msgspec Structs
    toml_lines   the line of a key                     (pure)
    diagnostics  all problems, each with its line      (pure)
    sql          analysis of SQL without Spark         (pure)
    load         TOML into the Structs
    validator    names, options, schemas, SQL
    brokers      the brokers of Kafka
    preflight    the server, its streams, files
    local_mode   the settings for Spark in local mode  (pure)
    class_archive  the classes of Spark's JVM, kept for the next start
    spark_home   links to Spark, for faster starts of Python
    session      Spark itself, if no session is given
    views        sources and steps
    batch        sinks, one after the other
    streaming    sinks, a query for each
    replaying    a part of a stream, written again
    signals      Ctrl-C and SIGTERM
    progress     rows, rate and lag                    (pure)
    inference    the schema of JSON payloads from samples (pure)
    samples      samples of a stream
    console      the progress line
    run command  the functions and the command line
"""

from .command import main
from .inference import Inference
from .run import Result, check, explain, replay, run
from .samples import samples

__all__ = [
    "main",
    "run",
    "replay",
    "check",
    "explain",
    "samples",
    "Inference",
    "Result",
]
