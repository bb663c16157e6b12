"""The winner in the form that trainers read: pure functions from a `Winner` to plain data, and a folder."""

from __future__ import annotations

from autotune.export.exporter import Exporter, loss_words
from autotune.export.folder import check_export_folder, export_folder, folder_files
from autotune.export.registry import EVERY, EXPORTERS, chosen_exporters, senseless
from autotune.export.winner import Winner

__all__ = [
    "EVERY",
    "EXPORTERS",
    "Exporter",
    "Winner",
    "check_export_folder",
    "chosen_exporters",
    "export_folder",
    "folder_files",
    "loss_words",
    "senseless",
]
