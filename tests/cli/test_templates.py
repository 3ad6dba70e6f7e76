"""Tests of the templates of `jsync pub`, `request` and `reply`: `{{Count}}` and the others."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING

import click
import pytest

from jsync.cli.params.templates import Template, TemplateContext

from .processes import Process

if TYPE_CHECKING:
    import jsync as package
    from jsync import JetStream, Stream
    from jsync.server import LocalServer

    from .support import Jsync

AFTERNOON = datetime(
    2026, 11, 23, 15, 4, 5, 678901, tzinfo=timezone(timedelta(hours=2))
)
MOMENT = TemplateContext(7, AFTERNOON)


def filled(text: str, moment: TemplateContext = MOMENT) -> str:
    return Template(text).fill(moment)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{Count}}", "7"),
        ("{{ Cnt }}/{{.Count}}", "7/7"),
        ("{{TimeStamp}}", "2026-11-23T15:04:05+02:00"),
        ("{{Time}}", "3:04PM"),
        ("{{Unix}}", "1795439045"),
        ("{{UnixNano}}", "1795439045678901000"),
        ('{"a": {"b": {{Count}}}}', '{"a": {"b": 7}}'),
        ("no template }} here", "no template }} here"),
    ],
)
def test_a_template_stands_for_a_value(text: str, expected: str) -> None:
    assert filled(text) == expected


def test_the_time_is_written_as_go_writes_it() -> None:
    midnight = TemplateContext(1, datetime(2026, 1, 2, 0, 3, tzinfo=UTC))
    assert filled("{{TimeStamp}}", midnight) == "2026-01-02T00:03:00Z"
    assert filled("{{Time}}", midnight) == "12:03AM"


def test_ids_differ_and_random_texts_have_requested_length() -> None:
    first, second = filled("{{ID}} {{ID}}").split()
    assert first != second
    assert re.fullmatch("[0-9A-Za-z]{22}", first)
    lengths = {len(filled("{{Random 3 5}}")) for _ in range(300)}
    assert lengths == {3, 4, 5}
    assert len(filled("{{Random 9 9}}")) == 9
    assert 1 <= len(filled("{{Random 5 1}}")) <= 5, "in either order, as nats has it"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{{Cuont}}", "unknown template: {{Cuont}}; jsync knows Count, TimeStamp"),
        ("{{}}", "unknown template: {{}}"),
        ("{{Request}}", "unknown template: {{Request}}"),
        ("{{Count 1}}", "unknown template: {{Count 1}}"),
        ("{{Random}}", "the least and the most letters"),
        ("{{Random 1 x}}", "the least and the most letters"),
        ("{{Random 1 99999999999}}", "too long"),
        (f"{{{{Random {'9' * 5000} 1}}}}", "too long"),
        ("a {{Count", "has no end: '{{Count'"),
    ],
)
def test_an_unknown_template_is_rejected(text: str, words: str) -> None:
    with pytest.raises(click.UsageError, match=re.escape(words)):
        Template(text[text.index("{{") :])


@pytest.mark.server
def test_pub_fills_subject_payload_and_headers_per_message(
    jsync: Jsync, js: JetStream, stream: Stream
) -> None:
    name = stream.name
    ended = jsync(
        *("pub", f"{name}.{{{{Count}}}}", "order {{Count}} {{Random 3 3}}"),
        *("-H", "Number: {{Count}}", "--count", "3", "--jetstream"),
    )
    assert (ended.code, ended.errors) == (0, "")
    for number in (1, 2, 3):
        stored = stream.get_message(number)
        assert stored.subject == f"{name}.{number}"
        assert re.fullmatch(f"order {number} [A-Za-z]{{3}}", stored.data.decode())
        assert stored.headers is not None
        assert stored.headers["Number"] == str(number)


@pytest.mark.server
def test_piped_payloads_and_no_templates_are_published_unchanged(
    jsync: Jsync, nc: package.Connection, unique: str
) -> None:
    with nc.subscribe(unique) as sub:
        nc.flush()
        assert jsync("pub", unique, stdin="{{Cuont}}").code == 0
        assert sub.next().data == b"{{Cuont}}"
        assert jsync("pub", unique, "{{Cuont}}", "--no-templates").code == 0
        assert sub.next().data == b"{{Cuont}}"
        ended = jsync("pub", unique, "{{Cuont}}")
        assert (ended.code, ended.output) == (2, "")
        assert "unknown template: {{Cuont}}" in ended.errors
        ended = jsync("pub", unique, "x", "-H", "A:{{B}}")
        assert ended.code == 2


@pytest.mark.server
def test_request_counts_and_reply_repeats_the_request(
    jsync: Jsync, server: LocalServer, unique: str
) -> None:
    reply = ("reply", unique, "{{Count}}: {{Request}} {{Unix}}", "--count", "2")
    with Process(server, *reply, "--raw") as serving:
        serving.await_words(f"answering on {unique}")
        ended = jsync("request", unique, "number {{Count}}", "--count", "2", "--raw")
        assert serving.finish()[:2] == (0, "number 1\nnumber 2\n")
    assert ended.code == 0, ended.errors
    first, second = ended.lines
    assert re.fullmatch(r"1: number 1 \d{10}", first)
    assert re.fullmatch(r"2: number 2 \d{10}", second)
