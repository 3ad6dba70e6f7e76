"""Pipelines between JetStream and files, on Spark, declared in a TOML file.

    python -m jsync.spark.pipeline run pipeline.toml
    python -m jsync.spark.pipeline check pipeline.toml

The functions `run` and `check` do the same, and `main` is the command line. The map, from
the file to the rows:

    config           the contents of the file, as msgspec Structs
    toml_lines       the line of a key (pure)
    diagnostics      all problems, each with its line (pure)
    sql              analysis of SQL without Spark (pure)
    formats          formats that packages bring to Spark (pure)
    source_columns   the columns of messages, buckets and object stores (pure)
    load             TOML into the Structs
    validator        names, options, schemas, SQL
    schemas          types that are known without Spark, and those in files
    brokers          the brokers of Kafka
    preflight        the server, its streams, files
    redaction        the settings that make Spark hide secrets
    local_mode       the settings for Spark in local mode (pure)
    class_archive    the classes of Spark's JVM, kept for the next start
    spark_home       links to Spark, for faster starts of Python
    session          Spark itself, if no session is given
    start_retry      starts again what needs a Python worker
    inference        the schema of JSON payloads from samples (pure)
    samples          samples of a stream
    merge_statement  the MERGE statement of a sink (pure)
    merging          updates of a table by key
    views            sources and steps
    tasks            the tasks that run now, for the progress line
    batch            sinks, one after the other
    progress         rows, rate and lag (pure)
    streaming        sinks, a query for each
    replaying        a part of a stream, written again
    signals          Ctrl-C and SIGTERM
    console          the progress line
    run              the functions that check and run a file
    command          the command line
    __main__         the command line as a module, and for spark-submit
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
