"""The right names for users who type those of nats-py. Pure.

Only errors read these tables. Neither a class nor a type checker has the names, so they
are in no completion.
"""

from __future__ import annotations

import dis
import functools
import sys
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_Class = TypeVar("_Class", bound=type[Any])
_Function = TypeVar("_Function", bound="Callable[..., object]")

_ATTRIBUTES: Final[Mapping[str, Mapping[str, str]]] = {
    "JetStream": {
        "add_stream": "use create_stream(config)",
        "stream_info": "use stream(name).info()",
        "streams_info": "iterate over streams()",
        "streams_info_iterator": "iterate over streams()",
        "find_stream_name_by_subject": "use stream_name_by_subject(subject)",
        "purge_stream": "use stream(name).purge()",
        "get_msg": "use get_message(stream, sequence)",
        "get_last_msg": "use get_message(stream, last_by_subject=subject)",
        "delete_msg": "use stream(name).delete_message(sequence)",
        "add_consumer": "use create_or_update_consumer(stream, config)",
        "consumer_info": "use consumer(stream, name).info()",
        "consumers_info": "iterate over consumers(stream)",
        "pause_consumer": "use consumer(stream, name).pause(until)",
        "resume_consumer": "use consumer(stream, name).resume()",
        "reset_consumer": "use consumer(stream, name).reset(sequence)",
        "publish_async": "use publisher(), whose publish returns a future",
        "publish_async_pending": "use publisher(), which has pending",
        "publish_async_completed": "use publisher(), which has flush()",
        "is_status_msg": "no status message reaches you, and messages have status",
        "PushSubscription": "use jsync.PushSubscription",
        "PullSubscription": "use jsync.PullSubscription",
    },
    "KeyValue": {
        "watchall": "use watch()",
        "BucketStatus": "use jsync.KeyValueStatus",
        "Entry": "use jsync.Entry",
        "KeyWatcher": "use jsync.Watch",
    },
    "KeyValueStatus": {
        "marker_ttl": "use limit_marker_ttl",
    },
    "Watch": {
        "updates": "use next(timeout), or iterate over the watch",
        "STOP_ITER": "initial() ends after the initial values",
    },
    "ObjectStore": {
        "get_info": "use info(name)",
        "ObjectResult": "get() returns the bytes, and info() the rest",
        "ObjectStoreStatus": "use jsync.ObjectStoreStatus",
        "ObjectWatcher": "use jsync.ObjectWatch",
    },
    "ObjectWatch": {
        "updates": "use next(timeout), or iterate over the watch",
        "STOP_ITER": "initial() ends after the initial values",
    },
}

_KEYWORDS: Final[Mapping[str, Mapping[str, str]]] = {
    "connect": {
        "host": "use servers, such as 'nats://localhost:4222'",
        "port": "use servers, such as 'nats://localhost:4222'",
        "hosts": "use servers",
        "url": "use servers",
        "urls": "use servers",
        "server": "use servers",
        "username": "use user",
        "passwd": "use password",
        "error_cb": "use on_error",
        "disconnected_cb": "use on_disconnect",
        "closed_cb": "use on_closed",
        "discovered_server_cb": "use on_discovered",
        "reconnected_cb": "use on_reconnect",
        "lame_duck_mode_cb": "use on_lame_duck",
        "verbose": "leave it out",
        "reconnect_time_wait": "use reconnect_wait",
        "max_reconnect_attempts": "use max_reconnects",
        "max_outstanding_pings": "use max_pings_out",
        "dont_randomize": "use randomize, the reverse",
        "flusher_queue_size": "use write_buffer_size",
        "signature_cb": "use auth_callback",
        "user_jwt_cb": "use auth_callback",
        "user_credentials": "use creds",
        "nkeys_seed": "use nkey_seed with the seed itself",
        "nkeys_seed_str": "use nkey_seed",
        "pending_size": "use write_buffer_size",
        "flush_timeout": "use write_timeout",
        "ws_connection_headers": "use ws_headers",
        "reconnect_to_server_handler": "use reconnect_to_server",
        "skip_subject_validation": "leave it out: subjects are always checked",
    },
    "Connection.request": {
        "payload": "use data",
        "old_style": "leave it out",
    },
    "Connection.subscribe": {
        "cb": "use callback",
        "handler": "use callback",
        "future": "use next(timeout) of the subscription",
        "max_msgs": "use unsubscribe(after) of the subscription",
        "pending_msgs_limit": "use max_pending_messages",
        "pending_bytes_limit": "use max_pending_bytes",
    },
    "SubscribeManager.subscribe": {
        "max_msgs": "use unsubscribe(limit) of the subscription",
        "max_pending_messages": "use pending_msgs_limit",
        "max_pending_bytes": "use pending_bytes_limit",
    },
    "JetStream.publish": {
        "payload": "use data",
        "stream": "use expected_stream",
        "msg_ttl": "use ttl",
    },
    "Consumer.fetch": {
        "batch": "use max_messages",
        "expires": "use timeout",
        "max_wait": "use timeout",
    },
    "Consumer.messages": {
        "batch": "use max_messages",
        "timeout": "use idle_timeout",
    },
    "KeyValue.get": {"validate_keys": "leave it out: keys are always checked"},
    "KeyValue.put": {
        "ttl": "use create with ttl: a put takes none",
        "validate_keys": "leave it out: keys are always checked",
    },
    "KeyValue.create": {
        "msg_ttl": "use ttl",
        "validate_keys": "leave it out: keys are always checked",
    },
    "KeyValue.update": {
        "msg_ttl": "use create with ttl: an update takes none",
        "validate_keys": "leave it out: keys are always checked",
    },
    "KeyValue.delete": {
        "msg_ttl": "use purge with ttl: a delete takes none",
        "validate_keys": "leave it out: keys are always checked",
    },
    "KeyValue.purge": {"msg_ttl": "use ttl"},
    "KeyValue.purge_deletes": {"olderthan": "use older_than"},
    "KeyValue.keys": {"filters": "give each filter as an argument"},
    "KeyValue.watch": {
        "keys": "give each filter as an argument",
        "meta_only": "use headers_only",
        "cb": "use callback",
        "history": "use include_history",
        "inactive_threshold": "leave it out: a watch does not end by inactivity",
    },
    "ObjectStore.get": {
        "writeinto": "use get_file(name, path) or open(name)",
        "show_deleted": "use info(name, include_deleted=True)",
    },
    "ObjectStore.info": {"show_deleted": "use include_deleted"},
    "ObjectStore.list": {"ignore_deletes": "use include_deleted, the reverse"},
    "ObjectStore.put": {"meta": "use description, headers, metadata and chunk_size"},
    "ObjectStore.update_meta": {
        "meta": "use new_name, description, headers and metadata"
    },
    "ObjectStore.watch": {
        "meta_only": "leave it out: a watch gives the metadata alone",
        "include_history": "leave it out: an object has no history",
    },
}

_EXAMPLES: Final[Mapping[str, str]] = {
    "connect": "connect('nats://localhost:4222', user='me', password='secret')",
    "Connection.request": "request('prices', b'EUR', timeout=2)",
    "Connection.request_many": "request_many('prices', b'EUR', timeout=2)",
    "Connection.subscribe": "subscribe('orders.*', callback=handle)",
    "Connection.jetstream": "jetstream(domain='hub', timeout=5)",
    "Connection.service": "service('prices', '1.0.0', description='Current prices')",
    "JetStream.create_stream": "create_stream(name='ORDERS', subjects=['orders.*'])",
    "JetStream.update_stream": "update_stream(name='ORDERS', max_age=3600)",
    "JetStream.create_or_update_stream": "create_or_update_stream(name='ORDERS', subjects=['orders.*'])",
    "JetStream.publish": "publish('orders.new', b'{}', msg_id='17')",
    "JetStream.publisher": "publisher(window=1000)",
    "JetStream.get_message": "get_message('ORDERS', 17, direct=True)",
    "JetStream.create_consumer": "create_consumer('ORDERS', durable_name='billing')",
    "JetStream.create_or_update_consumer": "create_or_update_consumer('ORDERS', durable_name='billing')",
    "JetStream.consumer": "consumer('ORDERS', 'billing')",
    "JetStream.ordered_consumer": "ordered_consumer('ORDERS', filter_subjects=['orders.*'])",
    "JetStream.delete_consumer": "delete_consumer('ORDERS', 'billing')",
    "KeyValueManager.create_key_value": "create_key_value(bucket='config', history=5)",
    "KeyValueManager.create_or_update_key_value": "create_or_update_key_value(bucket='config', history=5)",
    "KeyValueManager.key_value": "key_value('config')",
    "ObjectStoreManager.create_object_store": "create_object_store(bucket='files', ttl=3600)",
    "Stream.purge": "purge(subject='orders.old')",
    "Stream.get_messages": "get_messages('orders.*', sequence=17)",
    "Stream.create_consumer": "create_consumer(durable_name='billing')",
    "Stream.create_or_update_consumer": "create_or_update_consumer(durable_name='billing')",
    "Stream.consumer": "consumer('billing')",
    "Consumer.fetch": "fetch(10, timeout=5)",
    "Consumer.messages": "messages(max_messages=100)",
    "KeyValue.put": "put('db.host', b'10.0.0.1', timeout=2)",
    "KeyValue.create": "create('db.host', b'10.0.0.1', ttl=60)",
    "KeyValue.update": "update('db.host', b'10.0.0.1', last=17)",
    "KeyValue.delete": "delete('db.host', last=17)",
    "KeyValue.get": "get('db.host', revision=17)",
    "KeyValue.get_many": "get_many(['db.host', 'db.port'])",
    "KeyValue.lock": "lock('job', ttl=30)",
    "ObjectStore.put": "put('a.txt', b'text', description='An example')",
    "ObjectStore.get_file": "get_file('a.txt', '/tmp/a.txt')",
    "Retry": "Retry(attempts=3)",
    "Worker": "Worker(stream='ORDERS')",
}

_ERRORS: Final[Mapping[str, str]] = {
    "FlushTimeoutError": "TimeoutError",
    "UnexpectedEOF": "ConnectionLostError",
    "ConnectionDrainingError": "ConnectionClosedError",
    "ConnectionReconnectingError": "ConnectionLostError",
    "OutboundBufferLimitError": "WriteTimeoutError or ReconnectBufferFullError",
    "SecureConnRequiredError": "TLSError",
    "SecureConnWantedError": "TLSError",
    "SecureConnFailedError": "TLSError",
    "BadSubscriptionError": "SubscriptionClosedError",
    "BadSubjectError": "InvalidSubjectError",
    "BadHeaderError": "InvalidHeaderError",
    "BadTimeoutError": "ConfigError",
    "AuthorizationError": "AuthenticationError",
    "JsonParseError": "JetStreamError",
    "InvalidUserCredentialsError": "ConfigError or AuthenticationError",
    "InvalidCallbackTypeError": "ConfigError",
    "NotJSMessageError": "NotJetStreamMessageError",
    "ServiceUnavailableError": "JetStreamNotEnabledError or JetStreamUnavailableError",
    "ServerError": "OperationFailedError",
    "BadRequestError": "APIError, whose code is 400",
    "ConsumerInvalidResetError": "InvalidResetError",
    "TooManyStalledMsgsError": "StallTimeoutError",
    "KeyValueError": "JetStreamError",
    "KeyWrongLastSequenceError": "WrongRevisionError or KeyExistsError",
    "KeyHistoryTooLargeError": "ConfigError",
    "KeyValueLimitMarkerTTLNotSupportedError": "UnsupportedFeatureError",
    "BadBucketError": "InvalidBucketError",
    "ObjectAlreadyExists": "ObjectExistsError",
    "BadObjectMetaError": "InvalidObjectInfoError",
    "LinkIsABucketError": "LinkError",
    "FetchTimeoutError": "TimeoutError",
    "ConsumerSequenceMismatchError": "MessageGapError",
}

_IMPORT_FROM: Final = dis.opmap["IMPORT_FROM"]


def explain_attributes(cls: _Class) -> _Class:
    """Make the error for a name of nats-py tell the right name, as a class decorator.

    Do not use it for classes whose methods are called for each message: Python looks up
    the methods of a class with `__getattr__` more slowly.
    """
    hints = _ATTRIBUTES[cls.__name__]

    def __getattr__(self: object, name: str) -> Any:  # noqa: N807
        if name in hints:
            message = f"{cls.__name__} has no {name!r}: {hints[name]}"
            raise AttributeError(message, name=name, obj=self)
        return object.__getattribute__(self, name)  # raises the usual error

    cls.__getattr__ = __getattr__
    return cls


def explain_arguments(function: _Function) -> _Function:
    """Make the error for arguments that do not fit tell the right ones, as a decorator.

    It names the right keyword for one of nats-py, and gives an example for other arguments.
    Use it for a function, or for a class and its `__init__`. Among other decorators it is the
    last one.
    """
    name = function.__qualname__
    if isinstance(function, type):
        function.__init__ = _explained(function.__init__, name, name)  # type: ignore[misc]
        return function
    return _explained(function, name, name.rpartition(".")[2])


def _explained(function: _Function, name: str, shown: str) -> _Function:
    hints, example = _KEYWORDS.get(name, {}), _EXAMPLES.get(name)
    if not hints and example is None:
        raise KeyError(name)
    limit = function.__code__.co_argcount

    @functools.wraps(function)
    def explained(*args: Any, **keywords: Any) -> object:
        try:
            return function(*args, **keywords)
        except TypeError as error:
            if hints:  # also if the function itself has refused one of its options
                reject_keywords(name, keywords)
            trace = error.__traceback__
            if example is None or trace is None or trace.tb_next is not None:
                raise  # the function itself has raised it
            if len(args) > limit:
                text = "got too many arguments without a name: give each by its name"
            else:
                text = str(error).partition("() ")[2]
                text += _nearest(keywords, function)
            raise TypeError(f"{shown}() {text}, as in {example}") from None

    return explained  # type: ignore[return-value]


def _nearest(keywords: Mapping[str, object], function: Callable[..., object]) -> str:
    """Return the argument that an unknown keyword probably means, as part of a sentence."""
    import difflib  # noqa: PLC0415 (only for an error)

    code = function.__code__
    known = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    for name in keywords:
        if name not in known and (near := difflib.get_close_matches(name, known, 1)):
            return f" (did you mean {near[0]!r}?)"
    return ""


def reject_keywords(call: str, keywords: Mapping[str, object]) -> None:
    """Raise the error for a keyword of nats-py, which tells the right one.

    `js.subscribe` uses this function instead of the decorator, because its warning
    points at the caller.

    Raises:
        TypeError: One of the keywords is a keyword of nats-py.
    """
    hints = _KEYWORDS[call]
    for name in keywords:
        if name in hints:
            last = call.rpartition(".")[2]
            raise TypeError(f"{last}() has no argument {name!r}: {hints[name]}")


def explain_error(name: str) -> Any:
    """Raise the error for a name that `jsync.errors` lacks.

    This is the `__getattr__` of that module. In `from jsync.errors import NAME` Python
    would replace the message of an AttributeError.
    """
    if name not in _ERRORS:
        message = f"module 'jsync.errors' has no attribute {name!r}"
        raise AttributeError(message, name=name)
    message = f"jsync.errors has no {name!r}: use {_ERRORS[name]}"
    frame = sys._getframe(1)
    if frame.f_lasti >= 0 and frame.f_code.co_code[frame.f_lasti] == _IMPORT_FROM:
        raise ImportError(message, name="jsync.errors")
    raise AttributeError(message, name=name)
