"""Pipelines between JetStream and files, on Spark, declared in a TOML file.

    python -m jsync.spark.pipeline run pipeline.toml
    python -m jsync.spark.pipeline check pipeline.toml

`run` and `check` are the same as functions, `main` as a command line. The map, from the file
to the rows:

    config       what can be written in the file, as msgspec Structs
    positions    the line of a key                     (pure)
    problems     all that is wrong, each with its line (pure)
    sql          what can be told of SQL without Spark (pure)
    load         TOML into the Structs
    checks       names, options, schemas, SQL          (pure)
    surroundings the server, its streams, files
    session      Spark itself, when it is not given
    views        sources and steps
    batch        sinks, one after the other
    streaming    sinks, a query for each
    replaying    a part of a stream once more
    stopping     Ctrl-C and SIGTERM
    progress     rows, rate and lag                    (pure)
    inference    the schema of JSON payloads from samples (pure)
    samples      samples of a stream
    explain      what Spark means by an error          (pure)
    report       the progress line
    run command  the functions and the command line
"""

from .command import main
from .inference import Inference
from .run import Result, check, replay, run
from .samples import samples

__all__ = ["main", "run", "replay", "check", "samples", "Inference", "Result"]
