"""Reproducible measurements, each with the command that makes it and its last results."""
