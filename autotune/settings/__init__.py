"""The configuration file: `autotune.toml`, with the flags' names for keys."""

from __future__ import annotations

from autotune.settings.toml_file import DEFAULT_NAME, SettingsFile, read_settings

__all__ = ["DEFAULT_NAME", "SettingsFile", "read_settings"]
