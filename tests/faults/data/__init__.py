"""Campaigns of commands that move data: export, backup and restore."""
