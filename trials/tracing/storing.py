"""Writes a trace as a compressed npz file of plain arrays."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np

from trials.tracing.tracer import Trace


def write_trace(trace: Trace, path: str) -> None:
    """Write a trace; whoever reads the path sees all of it or nothing."""
    about = json.dumps(
        {
            "markers": trace.markers,
            "categories": trace.categories,
            "trainable_parameters": trace.trainable_parameters,
            "total_parameters": trace.total_parameters,
            "parameters": trace.parameters,
            "layers": trace.layers,
            "layer_prefix": trace.layer_prefix,
        }
    )
    temporary = f"{path}.{os.getpid()}.npz"
    np.savez_compressed(
        temporary,
        ids=trace.ids,
        sizes=trace.sizes,
        streams=trace.streams,
        kinds=trace.kinds,
        origins=trace.origins,
        handed=trace.handed,
        about=np.frombuffer(about.encode(), dtype=np.uint8),
    )
    Path(temporary).replace(path)
