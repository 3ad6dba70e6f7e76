"""`jsync consumer`: create, look at and change consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from jsync import ConsumerConfig

from ..groups import CommandGroup
from ..params.completion import CONSUMER, STREAM
from ..params.config_file import (
    base_config,
    changed_fields,
    config_option,
    merge_config,
    print_changes,
    unset_option,
    write_dry_run,
)
from ..params.consumer_options import (
    consumer_fields,
    consumer_options,
    new_consumer_options,
)
from ..params.values import FUTURE_TIME, Number
from ..ui.info_sections import ago, consumer_sections, format_config
from ..ui.lists import write_infos, write_names
from ..ui.output import (
    echo,
    is_terminal,
    write_json,
    write_key_values,
    write_result,
    write_sections,
)
from ..ui.prompts import confirm, force_option
from .consume import next_
from .report import consumer_report

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from jsync import ConsumerInfo, JetStream
    from jsync.models import StreamState

    from ..params.settings import Settings

_COLUMNS = ("name", "kind", "ack", "pending", "unacknowledged", "redelivered", "last")
_STREAM = click.argument("stream", type=STREAM)
_CONSUMER = click.argument("consumer", type=CONSUMER)


@click.group(cls=CommandGroup)
def consumer() -> None:
    """Create, look at and change consumers."""


consumer.add_command(next_, "next")
consumer.add_command(consumer_report)


@consumer.command("ls", example="jsync consumer ls ORDERS --names")
@_STREAM
@click.option("--names", "-n", is_flag=True, help="Write only the names.")
@click.pass_obj
def list_(settings: Settings, stream: str, names: bool) -> None:
    """List the consumers of a stream."""
    with settings.connect() as nc:
        js = settings.jetstream(nc)
        if names:
            write_names(js.consumer_names(stream), settings)
        else:
            found = (consumer.cached_info for consumer in js.consumers(stream))
            write_infos(found, settings, _COLUMNS, _row)


def _row(info: ConsumerInfo) -> list[object]:
    return [
        info.name,
        "push" if info.config.deliver_subject else "pull",
        info.config.ack_policy,
        info.num_pending,
        info.num_ack_pending,
        info.num_redelivered,
        info.delivered.stream_seq,
    ]


@consumer.command(
    "step-down", example="jsync consumer step-down ORDERS billing --preferred nats-2"
)
@_STREAM
@_CONSUMER
@click.option("--preferred", metavar="SERVER", help="The server to become the leader.")
@click.pass_obj
def step_down(
    settings: Settings, stream: str, consumer: str, preferred: str | None
) -> None:
    """Have the leader of a consumer step down."""
    with settings.connect() as nc:
        found = settings.jetstream(nc).consumer(stream, consumer)
        found.leader_step_down(preferred=preferred)
    if settings.json:
        write_json({"stepped_down": consumer})
    else:
        echo(f"the leader of consumer {consumer} steps down")


@consumer.command(example="jsync consumer info ORDERS billing")
@_STREAM
@_CONSUMER
@click.pass_obj
def info(settings: Settings, stream: str, consumer: str) -> None:
    """Show how a consumer is set up, and where it is."""
    with settings.connect() as nc:
        js = settings.jetstream(nc)
        found = js.consumer(stream, consumer).info()
        grouped = is_terminal() and not settings.json
        state = js.stream(stream).cached_info.state if grouped else None
    _write(found, settings, state)


@consumer.command(
    example="jsync consumer create ORDERS reports --filter orders.new --max-deliver 5"
)
@_STREAM
@click.argument("consumer", required=False)
@config_option
@new_consumer_options
# Accepted because scripts for the nats command pass it.
@click.option("--defaults", is_flag=True, hidden=True)
@click.pass_obj
def create(
    settings: Settings,
    /,
    stream: str,
    consumer: str | None,
    config: Path | None,
    defaults: bool,
    ephemeral: bool,
    **options: Any,
) -> None:
    """Create a consumer.

    Give options, a file with --config, or both: the options then change the file. A
    consumer with a name is durable unless you say --ephemeral. A consumer without a
    name is ephemeral.
    """
    start = base_config(config, ConsumerConfig())
    fields = consumer_fields(options, start)
    if ephemeral:
        fields["durable_name"] = None
        merged = merge_config(config, start, fields, name=consumer)
    else:
        merged = merge_config(config, start, fields, durable_name=consumer)
    with settings.connect() as nc:
        created = _put(settings.jetstream(nc), stream, merged, "create")
    _write(created, settings)


@consumer.command(
    example="jsync consumer edit ORDERS billing --max-pending 100 --dry-run"
)
@_STREAM
@_CONSUMER
@config_option
@consumer_options
@unset_option
@click.option("--dry-run", is_flag=True, help="Show the changes without making them.")
@force_option
@click.pass_obj
def edit(
    settings: Settings,
    /,
    stream: str,
    consumer: str,
    config: Path | None,
    unset: list[str],
    dry_run: bool,
    force: bool,
    **options: Any,
) -> None:
    """Change a consumer.

    Options change only the fields that they name. --config replaces the whole
    configuration. The command shows the changes and requires confirmation.
    """
    with settings.connect() as nc:
        js = settings.jetstream(nc)
        before = js.consumer(stream, consumer).info()
        start = base_config(config, before.config)
        merged = merge_config(
            config,
            start,
            consumer_fields(options, start) | dict.fromkeys(unset),
            **{"durable_name" if before.config.durable_name else "name": consumer},
        )
        if print_changes(before.config, merged) and not dry_run:
            confirm(f"Change consumer {consumer} of {stream}?", force=force)
            if config is not None:
                before = _put(js, stream, merged, "update")
            else:
                fields = changed_fields(before.config, merged)
                before = js.consumer(stream, consumer).update(**fields)
    if dry_run:
        write_dry_run(before.config, merged, settings)
    else:
        _write(before, settings)


def _put(
    js: JetStream, stream: str, config: ConsumerConfig, action: str
) -> ConsumerInfo:
    kind = "push_consumer" if config.deliver_subject else "consumer"
    put = getattr(js, f"{action}_{kind}")
    created: ConsumerInfo = put(stream, config).cached_info
    return created


@consumer.command(example="jsync consumer rm ORDERS billing --force")
@_STREAM
@_CONSUMER
@force_option
@click.pass_obj
def rm(settings: Settings, stream: str, consumer: str, force: bool) -> None:
    """Delete a consumer."""
    with settings.connect() as nc:
        found = settings.jetstream(nc).consumer(stream, consumer)
        found.info()
        confirm(f"Delete consumer {consumer} of {stream}?", force=force)
        found.delete()
    if settings.json:
        write_json({"deleted": consumer})
    else:
        echo(f"deleted consumer {consumer}")


@consumer.command(example="jsync consumer reset ORDERS billing 2 --force")
@_STREAM
@_CONSUMER
@click.argument("sequence", type=Number(1), required=False)
@force_option
@click.pass_obj
def reset(
    settings: Settings, stream: str, consumer: str, sequence: int | None, force: bool
) -> None:
    """Have a consumer continue from another message.

    SEQUENCE is the first message of the stream to deliver. Acknowledged messages are delivered again, too, and messages between the present
    position and a later SEQUENCE are skipped. Without SEQUENCE the consumer continues
    after its ack floor. Needs nats-server 2.14.
    """
    with settings.connect() as nc:
        found = settings.jetstream(nc).consumer(stream, consumer)
        floor = found.info().ack_floor.stream_seq
        where = f"sequence {floor + 1 if sequence is None else sequence}"
        confirm(f"Reset consumer {consumer} of {stream} to {where}?", force=force)
        reset = found.reset(sequence)
    write_result(
        settings,
        f"consumer {consumer} continues from sequence {reset.reset_seq}, "
        f"with {reset.num_pending:,} messages",
        reset.to_wire(),
    )


@consumer.command(example="jsync consumer pause ORDERS billing 1h")
@_STREAM
@_CONSUMER
@click.argument("until", type=FUTURE_TIME)
@click.pass_obj
def pause(settings: Settings, stream: str, consumer: str, until: datetime) -> None:
    """Have a consumer send nothing UNTIL a time, or for a duration.

    Needs nats-server 2.11.
    """
    with settings.connect() as nc:
        state = settings.jetstream(nc).consumer(stream, consumer).pause(until)
    if settings.json:
        write_json(state.to_wire())
    elif state.paused:
        echo(f"paused until {state.pause_until}")
    else:
        echo("not paused: that time has passed")


@consumer.command(example="jsync consumer resume ORDERS billing")
@_STREAM
@_CONSUMER
@click.pass_obj
def resume(settings: Settings, stream: str, consumer: str) -> None:
    """End the pause of a consumer.

    Needs nats-server 2.11.
    """
    with settings.connect() as nc:
        state = settings.jetstream(nc).consumer(stream, consumer).resume()
    if settings.json:
        write_json(state.to_wire())
    else:
        echo("resumed")


@consumer.command(example="jsync consumer unpin ORDERS reports main")
@_STREAM
@_CONSUMER
@click.argument("group")
@click.pass_obj
def unpin(settings: Settings, stream: str, consumer: str, group: str) -> None:
    """Have another client of a priority group pinned.

    Needs nats-server 2.11.
    """
    with settings.connect() as nc:
        settings.jetstream(nc).consumer(stream, consumer).unpin(group)
    if settings.json:
        write_json({"unpinned": group})
    else:
        echo(f"unpinned {group}")


def _write(
    info: ConsumerInfo, settings: Settings, state: StreamState | None = None
) -> None:
    if settings.json:
        write_json(info.to_wire())
        return
    config = info.config
    if is_terminal():
        name = f"Consumer {info.name} of {info.stream_name}"
        title = f"{name}, created {ago(info.created, info.ts)}"
        write_sections(title, consumer_sections(info, state))
        return
    write_key_values(
        f"Consumer {info.name} of {info.stream_name}",
        {
            "name": info.name,
            "stream": info.stream_name,
            "durable": bool(config.durable_name),
            **format_config(config, "name", "durable_name"),
            "created": info.created,
            "leader": info.cluster.leader if info.cluster else None,
            "last_delivered": info.delivered.stream_seq,
            "ack_floor": info.ack_floor.stream_seq,
            "unacknowledged": info.num_ack_pending,
            "redelivered": info.num_redelivered,
            "pending": info.num_pending,
            "waiting_pulls": info.num_waiting,
            "paused": info.paused,
        },
    )
