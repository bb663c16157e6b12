"""The winner in the form that trainers read: pure functions from a `Winner` to plain data, and a folder."""

from __future__ import annotations

from autotune.export.folder import check_export_folder, export_folder, folder_files
from autotune.export.winner import Winner

__all__ = ["Winner", "check_export_folder", "export_folder", "folder_files"]
