"""The entry point by which kombu finds the transport `jetstream://` of jsync.

kombu loads serializers by entry points, but not transports. So this module registers
the transport when kombu loads it as a serializer, without importing jsync. Celery loads
the serializers before it connects, so a program that uses Celery needs only the URL.
"""

from kombu.transport import TRANSPORT_ALIASES
from kombu.utils.json import dumps, loads

TRANSPORT_ALIASES.setdefault("jetstream", "jsync.integrations.kombu:Transport")

serializer = (dumps, loads, "application/x-jetstream-json", "utf-8")
"""kombu's JSON under another name, because the entry point needs a serializer."""
