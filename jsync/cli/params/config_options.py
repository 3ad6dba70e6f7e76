"""Options that set the fields of a configuration, with the types of the fields."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import click
import msgspec

from jsync.models.codec import (
    BYTES,
    ChoiceCodec,
    DurationCodec,
    ListCodec,
    NumberCodec,
    StringListCodec,
    TimeCodec,
)
from jsync.models.model import fields_of

from .values import DURATION, DURATIONS, FUTURE_TIME, KEY_VALUE, SIZE, Number

if TYPE_CHECKING:
    from jsync.models.codec import Codec
    from jsync.models.model import Model

    from ..decorators import Decorator


def config_option(
    model: type[Model],
    name: str,
    help: str,  # noqa: A002 (as click names it)
    *,
    field: str | None = None,
    **attributes: Any,
) -> Decorator:
    """Return the option `--name` for a field of `model`. By default, the names are the same.

    `attributes` replace those that follow from the field's type.
    """
    field = field or name.replace("-", "_")
    codec = fields_of(model)[field].codec
    spelling = f"--{name}"
    if codec.kind is bool and "is_flag" not in attributes:
        spelling += f"/--no-{name}"
    return click.option(spelling, field, help=help, **(_attributes(codec) | attributes))


def _attributes(codec: Codec) -> dict[str, Any]:
    """Return the attributes of an option that follow from the type of a field."""
    match codec:
        case DurationCodec():
            return {"type": DURATION}
        case ChoiceCodec():
            return {"type": click.Choice(codec.words)}
        case ListCodec(item=DurationCodec()):
            return {"type": DURATIONS}
        case ListCodec() | StringListCodec():
            return {"multiple": True}
        case TimeCodec():
            return {"type": FUTURE_TIME}
        case NumberCodec():
            return {"type": _number(get_args(codec.kind))}
    if codec.kind is bool:
        return {"default": None}
    if codec.kind == dict[str, str]:
        return {"type": KEY_VALUE, "multiple": True}
    return {}


def _number(annotation: tuple[Any, ...]) -> click.ParamType[Any]:
    """Return the type of a number with these annotations. -1 usually means no limit."""
    if BYTES in annotation:
        return SIZE
    limits: Any = next((a for a in annotation if isinstance(a, msgspec.Meta)), None)
    return Number(-1) if limits is None else Number(limits.ge, limits.le)
