"""The base of every configuration and reply: a Struct that maps to JetStream's JSON."""

import functools
import inspect
from collections.abc import Mapping
from typing import (
    Annotated,
    Any,
    NamedTuple,
    Self,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from ..errors import ConfigError
from .codec import Codec, codec_of, did_you_mean
from .server_version import MIN_VERSION, ServerVersion, SinceVersion

# The fields that name the object, for the error about a name without its keyword.
_NAMING = ("durable_name", "name", "bucket")


class Field(NamedTuple):
    """The properties of one field of a model."""

    codec: Codec
    default: Any
    since: SinceVersion

    def is_blank(self, value: Any) -> bool:
        """Return whether a value is not sent: None, or an empty default."""
        if value is None:
            return True
        empty = not self.default or isinstance(self.default, Model)
        return bool(empty and value == self.default)

    def write(self, value: Any) -> Any:
        """Return the value to send, or None if nothing is sent."""
        return None if self.is_blank(value) else self.codec.write(value)


class ModelMeta(msgspec.StructMeta):
    @property
    def __signature__(self) -> inspect.Signature:
        """The public fields as keywords with plain types, for `help`."""
        hints = get_type_hints(self)
        blank = self()
        return inspect.Signature(
            [
                inspect.Parameter(
                    name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=getattr(blank, name),
                    annotation=hints[name],
                )
                for name in self.__struct_fields__
                if not name.startswith("_")
            ]
        )


class Model(msgspec.Struct, metaclass=ModelMeta, kw_only=True, frozen=True, eq=False):
    """A part of JetStream's JSON, with seconds and datetimes instead of wire formats.

    Attributes have the names of the wire. An attribute that is None is unset and is not
    sent, because the server has a default for it, and servers from 2.12 reject unknown
    fields. A value that Python cannot represent exactly, such as the nanoseconds of a time,
    is written back as it was read, unless the attribute has changed.
    """

    extra: dict[str, Any] = {}
    """Fields of a newer server that this jsync does not know, as they are on the wire."""
    _read: dict[str, tuple[Any, Any]] = {}

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON object, with the fields that are set.

        Raises:
            ConfigError: A value does not fit the protocol.
        """
        wire = dict(self.extra)
        for name, field in fields_of(type(self)).items():
            value = getattr(self, name)
            if self._is_as_read(name, value):
                wire[name] = self._read[name][1]
                continue
            try:
                written = field.write(value)
            except (ValueError, OverflowError) as error:
                raise ConfigError(f"{name}: {error}") from error
            if written is not None:
                wire[name] = written
        return wire

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> Self:
        """Read a JSON object that a server sent. Never fails.

        Missing fields get their defaults, and `extra` has the unknown ones. An
        invalid value counts as missing.

        Args:
            data: The JSON object, durations in nanoseconds.

        Returns:
            The object.
        """
        return cls.parse(data, strict=False)

    @classmethod
    def parse(cls, data: Mapping[str, Any], strict: bool) -> Self:
        """Read a JSON object, and check its values if `strict` is true.

        Args:
            data: The JSON object, durations in nanoseconds.
            strict: Raise an error for an invalid value, instead of ignoring it.

        Returns:
            The object.

        Raises:
            ConfigError: A value is invalid, and `strict` is true.
        """
        fields = fields_of(cls)
        values: dict[str, Any] = {}
        extra: dict[str, Any] = {}
        read: dict[str, tuple[Any, Any]] = {}
        for name, wire in data.items():
            if name not in fields:
                extra[name] = wire
                continue
            field = fields[name]
            value, exact = None, False
            if wire is None and strict:
                continue
            try:
                if wire is not None:
                    value = field.codec.read(wire, strict)
                    exact = field.write(value) == wire
            except (ValueError, OverflowError, RecursionError) as error:
                if strict:
                    raise ConfigError(f"{name}: {error}") from error
            if value is None:
                value = field.default
            else:
                values[name] = value
            if not exact:
                read[name] = (value, wire)
        return cls(**values, extra=extra, _read=read)

    @classmethod
    def from_any(cls, config: object | None, fields: Mapping[str, Any]) -> Self:
        """Make a checked object of a whole configuration or of keywords, not of both.

        Args:
            config: An object of this class, a mapping (durations in seconds, times as
                datetimes), or an object with `as_dict()`, such as nats-py's.
            fields: The fields, instead of `config`.

        Returns:
            The checked object.

        Raises:
            ConfigError: A field has a value that is not allowed. The error names the
                field.
        """
        if config is None:
            return cls._from_keywords(fields)
        naming = [name for name in _NAMING if name in cls.__struct_fields__]
        if isinstance(config, str) and naming:
            raise ConfigError(
                f"expected a configuration, not {config!r}: give each field by its name, "
                f"as in {naming[0]}={config!r}"
            )
        if fields:
            raise ConfigError(
                f"a configuration and keywords too ({', '.join(fields)}): give one of "
                "them, or config.replace(...)"
            )
        if isinstance(config, cls):
            return config._checked()
        if isinstance(config, Mapping):
            return cls._from_keywords(config)
        as_dict = getattr(config, "as_dict", None)
        if as_dict is None or isinstance(config, type):
            raise ConfigError(
                f"expected a configuration, not {config!r}: pass {cls.__name__}(...), a "
                "mapping, or each field by its name"
            )
        # nats-py's dict still contains enums.
        return cls.parse(msgspec.to_builtins(as_dict()), strict=True)._checked()

    def replace(self, **changes: Any) -> Self:
        """Make a copy with some fields changed: `config.replace(max_age=60)`.

        The values are checked only when you pass the copy to a call.

        Args:
            **changes: The fields to change.

        Returns:
            The copy.

        Raises:
            TypeError: There is no field of that name.
        """
        return msgspec.structs.replace(self, **changes)

    def updated(self, changes: Mapping[str, Any]) -> Self:
        """Make a checked copy with some fields changed.

        Args:
            changes: The fields to change. None resets a field to its default.

        Returns:
            The copy.

        Raises:
            ConfigError: A field has a value that is not allowed. The error names the
                field.
        """
        self._check_keywords(changes)
        fields = fields_of(type(self))
        values = {
            name: fields[name].default if value is None and name in fields else value
            for name, value in changes.items()
        }
        return self.replace(**values)._checked()

    def differences(self, other: Self) -> dict[str, tuple[Any, Any]]:
        """Compare with another object, as a server does.

        An unset field is the same as the server's default, if neither server nor
        account sets limits. Metadata of the server itself (`_nats.`) does not count,
        nor do fields that only the other object has in `extra`.

        Args:
            other: The object to compare with.

        Returns:
            The fields that differ: `{name: (mine, theirs)}`.
        """
        mine, theirs = self._with_defaults(), other._with_defaults()
        found = {
            name: (getattr(self, name), getattr(other, name))
            for name in mine
            if mine[name] != theirs[name]
        }
        if "metadata" in found:
            found["metadata"] = mine["metadata"], theirs["metadata"]
        for name, value in self.extra.items():
            if value != other.extra.get(name):
                found[name] = (value, other.extra.get(name))
        return found

    def changes_from(self, other: Self) -> dict[str, Any]:
        """Find the fields that have another value than in another object.

        Args:
            other: The object to compare with.

        Returns:
            The fields and their values in this object.
        """
        return {
            name: getattr(self, name)
            for name in fields_of(type(self))
            if getattr(self, name) != getattr(other, name)
        }

    def matches(self, other: Self) -> bool:
        """Compare with another object, as a server does.

        Args:
            other: The object to compare with.

        Returns:
            True if both are the same for a server.
        """
        return not self.differences(other)

    def _with_defaults(self) -> dict[str, Any]:
        """Return the values in a form where equal means the same to a server."""
        values: dict[str, Any] = {}
        for name in fields_of(type(self)):
            value = getattr(self, name)
            if name == "metadata" and value:
                value = {k: v for k, v in value.items() if not k.startswith("_nats.")}
            elif isinstance(value, list):
                value = [_with_defaults(item) for item in value]
            values[name] = _with_defaults(value) or None
        return values

    def required_versions(self) -> dict[str, ServerVersion]:
        """Return the fields that are set and that nats-server 2.10 does not know.

        Returns:
            The fields and values, and the versions that introduced them.
        """
        newer: dict[str, ServerVersion] = {}
        for name, field in fields_of(type(self)).items():
            value = getattr(self, name)
            if not value:
                continue
            since = field.since.for_value(value)
            if since > MIN_VERSION:
                word = "" if since == field.since.version else f"={value!r}"
                newer[name + word] = since
            for part in value if isinstance(value, list) else [value]:
                if isinstance(part, Model):
                    for inner, since in part.required_versions().items():
                        newer[f"{name}.{inner}"] = since
        return newer

    @classmethod
    def _from_keywords(cls, keywords: Mapping[str, Any]) -> Self:
        cls._check_keywords(keywords)
        given = {name: value for name, value in keywords.items() if value is not None}
        return cls(**given)._checked()

    @classmethod
    def _check_keywords(cls, keywords: Mapping[str, Any]) -> None:
        fields = fields_of(cls)
        for name in keywords:
            if name not in fields and name != "extra":
                near = did_you_mean(str(name), fields)
                raise ConfigError(f"{cls.__name__} has no field {name!r}{near}")

    def _checked(self) -> Self:
        checked: dict[str, Any] = {}
        for name, field in fields_of(type(self)).items():
            value = getattr(self, name)
            if field.is_blank(value) or self._is_as_read(name, value):
                continue
            try:
                checked[name] = field.codec.check(value)
            except (ValueError, OverflowError) as error:
                raise ConfigError(f"{name}: {error}") from error
        if not isinstance(self.extra, dict):
            raise ConfigError(f"extra: a dict, not {type(self.extra).__name__}")
        model = self.replace(**checked)
        model._check()
        return model

    def _check(self) -> None:
        """Check rules that the types do not express. Raises `ConfigError`."""

    def _is_as_read(self, name: str, value: Any) -> bool:
        return name in self._read and self._read[name][0] == value

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.extra == other.extra and all(
            getattr(self, name) == getattr(other, name)
            for name in fields_of(type(self))
        )

    def __ne__(self, other: object) -> bool:
        # Python would derive it from `__eq__`, and msgspec does not.
        equal = self.__eq__(other)
        return NotImplemented if equal is NotImplemented else not equal

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = {
            name: value
            for name, field in fields_of(type(self)).items()
            if not field.is_blank(value := getattr(self, name))
        }
        if extra := {k: v for k, v in self.extra.items() if k != "type"}:
            shown["extra"] = extra
        inner = ", ".join(f"{name}={value!r}" for name, value in shown.items())
        return f"{type(self).__name__}({inner})"


def _with_defaults(value: Any) -> Any:
    if not isinstance(value, Model):
        return value
    return {k: v for k, v in value._with_defaults().items() if v is not None}


@functools.cache
def fields_of(model: type[Model]) -> dict[str, Field]:
    """Return the fields of a model by name, except the fields of `Model` itself."""
    fields: dict[str, Field] = {}
    for info in msgspec.structs.fields(model):
        if info.name in ("extra", "_read"):
            continue
        default = info.default
        if info.default_factory is not msgspec.NODEFAULT:
            default = info.default_factory()
        kind, since = info.type, SinceVersion()
        if get_origin(kind) is Annotated and isinstance(
            get_args(kind)[-1], SinceVersion
        ):
            kind, since = get_args(kind)
        fields[info.name] = Field(codec_of(kind), default, since)
    return fields
