"""Tells kombu of the transport `jetstream://` of jsync, without importing jsync.

kombu loads serializers by entry points, and transports not. Celery loads the serializers
before it connects, so that a URL is all that a program of Celery needs.
"""

from kombu.transport import TRANSPORT_ALIASES
from kombu.utils.json import dumps, loads

TRANSPORT_ALIASES.setdefault("jetstream", "jsync.integrations.kombu:Transport")

serializer = (dumps, loads, "application/x-jetstream-json", "utf-8")
"""kombu's JSON under another name: something has to be registered."""
