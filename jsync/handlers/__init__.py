"""Handlers of services and workers: their signatures, payloads and the context of a call."""
