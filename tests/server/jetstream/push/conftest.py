"""The fixtures of the tests of push consumers: those of the subscribe workflow."""

from ..subscribe.conftest import far as far, subject as subject, wire as wire
