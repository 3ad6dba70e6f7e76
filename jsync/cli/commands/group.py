"""`jsync group`: create consumer groups by key, change their members, see their lag."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import click

from jsync.errors import NotFoundError

from ..groups import CommandGroup
from ..params.completion import STREAM
from ..params.values import Number
from ..ui.output import echo, write_json, write_key_values, write_table
from ..ui.prompts import confirm, force_option

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import jsync

    from ..params.settings import Settings

_STREAM: Final = click.argument("stream", type=STREAM)
_GROUP: Final = click.argument("group")
_MEMBERS: Final = click.argument(
    "members", nargs=-1, required=True, metavar="MEMBER..."
)


class _ConsumerGroupGroup(CommandGroup):
    # In this group of commands, `add` adds members.
    other_names: Mapping[str, str] = {
        "del": "rm",
        "delete": "rm",
        "i": "info",
        "list": "ls",
        "new": "create",
        "remove": "drop",
        "view": "info",
    }


@click.group(cls=_ConsumerGroupGroup)
def group() -> None:
    """Create groups by key, change their members, see the lag."""


def _one(command: Callable[..., Any]) -> Callable[..., Any]:
    return _STREAM(_GROUP(command))


@group.command("ls", example="jsync group ls ORDERS")
@click.argument("stream", type=STREAM, required=False)
@click.pass_obj
def list_(settings: Settings, stream: str | None) -> None:
    """List the consumer groups of all streams, or of one STREAM."""
    with settings.connect() as nc:
        found = list(settings.jetstream(nc).consumer_groups(stream))
    if settings.json:
        write_json([_document(item) for item in found])
        return
    write_table(
        ("stream", "group", "kind", "partitions", "members"),
        [
            (
                *(item.stream_name, item.name, item.kind, item.config.partitions),
                ", ".join(item.config.member_names) or None,
            )
            for item in found
        ],
    )


@group.command(
    example="jsync group create ORDERS packing 6 --filter 'orders.*:1' --member ann"
)
@_one
@click.argument("partitions", type=Number(1))
@click.option(
    "--filter",
    "filters",
    multiple=True,
    metavar="SUBJECT[:KEY]",
    help="Subjects, and the numbers of the wildcards that are the key: 'orders.*.*:1'. "
    "Give it again for more subjects. Default: all subjects, each a key.",
)
@click.option(
    "--member",
    "members",
    multiple=True,
    metavar="NAME",
    help="A member of the group. Can be repeated.",
)
@click.option(
    "--map",
    "mappings",
    multiple=True,
    metavar="NAME=PARTITIONS",
    help="A member and its partitions, such as a=0,1,2, instead of --member. Can be repeated.",
)
@click.option(
    "--static",
    is_flag=True,
    help="Create a static group, whose subjects begin with the partition.",
)
@click.option(
    "--max-messages",
    type=Number(1),
    help="The maximum number of messages in the stream of the group.",
)
@click.option(
    "--max-bytes", type=Number(1), help="The maximum size of the stream of the group."
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(["0.2", "0.1"]),
    default="0.2",
    help="The version of orbit.go's pcgroups that can read the group. Default: 0.2.",
)
@click.pass_obj
def create(
    settings: Settings,
    stream: str,
    group: str,
    partitions: int,
    filters: tuple[str, ...],
    members: tuple[str, ...],
    mappings: tuple[str, ...],
    static: bool,
    max_messages: int | None,
    max_bytes: int | None,
    format_: Any,
) -> None:
    """Create a consumer group with so many PARTITIONS, the most members it can have.

    An elastic group copies the messages to a stream of its own, STREAM-GROUP, and its
    members may change. A group with --static reads the stream itself.
    """
    with settings.connect() as nc:
        made = settings.jetstream(nc).create_consumer_group(
            stream,
            group,
            partitions=partitions,
            filters=dict(map(_filter, filters)),
            members=members,
            mappings=dict(map(_mapping, mappings)) or None,
            kind="static" if static else "elastic",
            max_buffered_messages=max_messages,
            max_buffered_bytes=max_bytes,
            format=format_,
        )
        _show(settings, made)


@group.command(example="jsync group info ORDERS shipping")
@_one
@click.pass_obj
def info(settings: Settings, stream: str, group: str) -> None:
    """Show the configuration of a group."""
    with settings.connect() as nc:
        _show(settings, settings.jetstream(nc).consumer_group(stream, group))


@group.command(example="jsync group members ORDERS shipping")
@_one
@click.pass_obj
def members(settings: Settings, stream: str, group: str) -> None:
    """Show the members of a group, their partitions and their messages.

    `active` says whether an instance of the member runs, and `waiting` how many instances
    wait for a message. An instance that handles a message does not wait.
    """
    with settings.connect() as nc:
        found = settings.jetstream(nc).consumer_group(stream, group).members()
    if settings.json:
        write_json([asdict(item) for item in found])
        return
    write_table(
        ("member", "partitions", "active", "waiting", "pending", "unacked"),
        [
            (
                *(item.name, _numbers(item.partitions), "yes" if item.active else "no"),
                *(item.waiting, item.pending, item.ack_pending),
            )
            for item in found
        ],
    )


@group.command(example="jsync group lag ORDERS shipping")
@_one
@click.pass_obj
def lag(settings: Settings, stream: str, group: str) -> None:
    """Show how many messages of each partition are not acknowledged yet."""
    with settings.connect() as nc:
        found = settings.jetstream(nc).consumer_group(stream, group)
        counts, uncopied = found.lag(), found.source_lag()
    owners = found.config.assignment()
    if settings.json:
        rows = [
            {"partition": number, "member": owners.get(number), "messages": count}
            for number, count in counts.items()
        ]
        write_json({"partitions": rows, "uncopied": uncopied})
        return
    write_table(
        ("partition", "member", "messages"),
        [(number, owners.get(number), count) for number, count in counts.items()],
    )
    if uncopied:
        echo(f"{uncopied} messages of {stream} are not copied yet", err=True)


@group.command(example="jsync group add ORDERS shipping carol")
@_one
@_MEMBERS
@click.pass_obj
def add(settings: Settings, stream: str, group: str, members: tuple[str, ...]) -> None:
    """Add members to an elastic group."""
    with settings.connect() as nc:
        found = settings.jetstream(nc).consumer_group(stream, group)
        found.add_members(*members)
        _show(settings, found)


@group.command(example="jsync group drop ORDERS shipping ben --force")
@_one
@_MEMBERS
@force_option
@click.pass_obj
def drop(
    settings: Settings, stream: str, group: str, members: tuple[str, ...], force: bool
) -> None:
    """Drop members from an elastic group. The others get their partitions."""
    with settings.connect() as nc:
        found = settings.jetstream(nc).consumer_group(stream, group)
        existing = found.config.member_names
        if unknown := [name for name in members if name not in existing]:
            raise NotFoundError(
                f"group {group} of {stream} has no member {', '.join(unknown)}; its members "
                f"are {', '.join(existing) or 'none yet'}. Nothing was dropped"
            )
        names = ", ".join(members)
        confirm(f"Drop {names} from group {group} of {stream}?", force=force)
        found.delete_members(*members)
        _show(settings, found)


@group.command(
    "map", example="jsync group map ORDERS shipping ann=0,1,2 ben=3,4,5 --force"
)
@_one
@click.argument("mappings", nargs=-1, required=True, metavar="MEMBER=PARTITIONS...")
@force_option
@click.pass_obj
def map_(
    settings: Settings, stream: str, group: str, mappings: tuple[str, ...], force: bool
) -> None:
    """Give each member of an elastic group its partitions: a=0,1,2 b=3,4,5."""
    given = dict(map(_mapping, mappings))
    with settings.connect() as nc:
        found = settings.jetstream(nc).consumer_group(stream, group)
        if found.config.member_names:
            confirm(f"Replace the members of group {group} of {stream}?", force=force)
        found.set_mappings(given)
        _show(settings, found)


@group.command(example="jsync group unmap ORDERS shipping --force")
@_one
@force_option
@click.pass_obj
def unmap(settings: Settings, stream: str, group: str, force: bool) -> None:
    """End the mappings of an elastic group, which leaves it without members."""
    with settings.connect() as nc:
        found = settings.jetstream(nc).consumer_group(stream, group)
        confirm(f"Leave group {group} of {stream} without members?", force=force)
        found.set_mappings({})
        _show(settings, found)


@group.command("step-down", example="jsync group step-down ORDERS shipping ann")
@_one
@click.argument("member")
@click.pass_obj
def step_down(settings: Settings, stream: str, group: str, member: str) -> None:
    """Have the server serve another instance of a member."""
    with settings.connect() as nc:
        settings.jetstream(nc).consumer_group(stream, group).step_down(member)


@group.command(example="jsync group rm ORDERS shipping --force")
@_one
@force_option
@click.pass_obj
def rm(settings: Settings, stream: str, group: str, force: bool) -> None:
    """Delete a group. Its members end, and the stream of an elastic group is deleted."""
    with settings.connect() as nc:
        js = settings.jetstream(nc)
        found = js.consumer_group(stream, group)
        confirm(f"Delete group {group} of {stream}?", force=force)
        js.delete_consumer_group(stream, group, kind=found.kind)


def _filter(given: str) -> tuple[str, tuple[int, ...]]:
    """Read `orders.*.*:1,2`: the subject, and the wildcards of the key."""
    subject, colon, numbers = given.rpartition(":")
    if not colon:
        return given, ()
    return subject, _whole(numbers, given)


def _mapping(given: str) -> tuple[str, tuple[int, ...]]:
    """Read `a=0,1,2`: the member, and its partitions."""
    member, equals, numbers = given.partition("=")
    if not equals:
        raise click.UsageError(f"{given!r}: write MEMBER=PARTITIONS, as in a=0,1,2")
    return member, _whole(numbers, given)


def _whole(numbers: str, given: str) -> tuple[int, ...]:
    try:
        return tuple(int(number) for number in numbers.split(",") if number)
    except ValueError:
        raise click.UsageError(
            f"{given!r}: write whole numbers with commas between them"
        ) from None


def _show(settings: Settings, found: jsync.ConsumerGroup) -> None:
    if settings.json:
        write_json(_document(found))
        return
    config = found.config
    write_key_values(
        f"Group {found.name} of {found.stream_name}",
        {
            "stream": found.stream_name,
            "group": found.name,
            "kind": found.kind,
            "partitions": config.partitions,
            "filters": [_filter_text(*item) for item in config.filters.items()] or None,
            "max messages": config.max_buffered_messages,
            "max bytes": config.max_buffered_bytes,
            "format": config.format,
            **{
                f"member {name}": _numbers(config.partitions_of(name)) or None
                for name in config.member_names
            },
        },
    )


def _filter_text(subject: str, numbers: tuple[int, ...]) -> str:
    return f"{subject}:{_numbers(numbers)}" if numbers else subject


def _numbers(numbers: tuple[int, ...]) -> str:
    return ",".join(map(str, numbers))


def _document(found: jsync.ConsumerGroup) -> dict[str, Any]:
    return {"stream": found.stream_name, "name": found.name, **asdict(found.config)}
