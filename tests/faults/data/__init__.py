"""Campaigns of commands that move data: export, ingest, backup and restore."""
