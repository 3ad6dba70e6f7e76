"""The options of a command: from the command line, the environment and a context."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from jsync.contexts import CREDENTIALS, directory, load, selected

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLES: Final = {
    "server": "NATS_URL",
    "user": "NATS_USER",
    "password": "NATS_PASSWORD",
    "token": "NATS_TOKEN",
    "creds": "NATS_CREDS",
    "nkey": "NATS_NKEY",
    "jwt": "NATS_JWT",
    "seed": "NATS_SEED",
    "tlscert": "NATS_CERT",
    "tlskey": "NATS_KEY",
    "tlsca": "NATS_CA",
    "timeout": "NATS_TIMEOUT",
    "context": "NATS_CONTEXT",
}
"""The environment variables of the nats command line tool, by our options."""

_API: Final = frozenset(("domain", "js_api_prefix"))
"""The options that name the JetStream API to use."""


def resolve(given: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """Return all options: those given, then the environment's, then the context's.

    Credentials belong together: if one is given or in the environment, none is taken
    from the context. The domain and the prefix of JetStream's API belong together in
    the same way.
    """
    options = {
        option: environ[variable]
        for option, variable in VARIABLES.items()
        if environ.get(variable)
    }
    options.update(given)
    if options.pop("no_context", False):
        return options
    root = directory(environ)
    name = options.pop("context", None) or selected(root)
    if name is None:
        return options
    context = load(root, name, environ)
    for together in (CREDENTIALS, _API):
        if not together.isdisjoint(options):
            for option in together:
                context.pop(option, None)
    return {**context, **options}
