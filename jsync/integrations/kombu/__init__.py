"""JetStream as a broker of kombu, and so of Celery: `jetstream://host/name`.

The extra `celery` installs what this needs. Celery finds the transport by its URL. A
program that uses kombu without Celery imports this module once.
"""

from kombu.transport import TRANSPORT_ALIASES

from .channel import Channel
from .transport import Transport

TRANSPORT_ALIASES.setdefault("jetstream", "jsync.integrations.kombu:Transport")

__all__ = ["Channel", "Transport"]
