"""Tests of the explanations of Spark errors."""

from __future__ import annotations

import pytest

from jsync.spark.errors import explain

UNRESOLVED = """\
[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or function parameter with name \
`amuont` cannot be resolved. Did you mean one of the following? [`amount`]. SQLSTATE: 42703; \
line 2 pos 6;
'Aggregate [name#1], [name#1, 'sum('amuont) AS total#3]
+- SubqueryAlias messages
"""
PYTHON = """\
[PYTHON_DATA_SOURCE_ERROR] Failed to plan Python data source initialize source: Traceback:
  File "/x/jsync/spark/source.py", line 5, in of
jsync.errors.StreamNotFoundError: there is no stream FLIHGTS

During handling of the above exception, another exception occurred:
UnboundLocalError: cannot access local variable 'reader'
 SQLSTATE: 38000
"""
TASK = """\
Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times: \
org.apache.spark.SparkRuntimeException: [USER_RAISED_EXCEPTION] message 2 of stream S is not \
JSON SQLSTATE: P0001
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.raiseError(x.scala:1)
"""
JAVA = """\
An error occurred while calling o69.save.
: org.apache.spark.SparkClassNotFoundException: [DATA_SOURCE_NOT_FOUND] Failed to find the \
data source: jetstream. SQLSTATE: 42K02
\tat org.apache.spark.x
Caused by: java.lang.ClassNotFoundException: jetstream.DefaultSource
"""


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        (
            UNRESOLVED,
            "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or function parameter "
            "with name `amuont` cannot be resolved. Did you mean one of the following? "
            "[`amount`].",
            2,
        ),
        (PYTHON, "there is no stream FLIHGTS", None),
        (TASK, "message 2 of stream S is not JSON", None),
        (
            JAVA,
            "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: jetstream.",
            None,
        ),
        (
            "Stream failed\nCaused by: org.apache.spark.X: [STATE_STORE_VALUE_SCHEMA_NOT_"
            "COMPATIBLE] Provided value schema does not match",
            "an aggregate or a join keeps state of another form in the checkpoint: undo the "
            "change of the steps, or choose another checkpoint, which reads the streams "
            "from their start (STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE)",
            None,
        ),
        (
            "[PARSE_SYNTAX_ERROR] Syntax error.(line 3, pos 1)\n",
            "[PARSE_SYNTAX_ERROR] Syntax error.",
            3,
        ),
    ],
)
def test_an_error_is_one_line(text: str, message: str, line: int | None) -> None:
    assert explain(Exception(text)) == (message, line)
