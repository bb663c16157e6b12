"""The worker process: a JSON request a line on stdin, a JSON answer a line on stdout, traces in files."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any


def main() -> None:
    """Serve until stdin ends. The only argument is the number of data-parallel processes to pretend."""
    # Libraries print to stdout; the protocol keeps a descriptor of its own.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    from trials.tracing.environment import start_process

    start_process(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    for line in sys.stdin:
        if line.strip():
            answers.write(json.dumps(_answer(json.loads(line))) + "\n")
            answers.flush()


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    from trials.tracing.storing import write_trace
    from trials.tracing.tracer import trace
    from trials.wire import ModelSpec, Point

    begun = time.perf_counter()
    try:
        found = trace(
            ModelSpec.model_validate(request["model"]),
            Point.model_validate(request["point"]),
            request["seq_len"],
            lora_targets=tuple(request["lora_targets"]) if request["lora_targets"] else None,
            processes=request["processes"],
            capability=tuple(request["capability"]),
            multiprocessors=request["multiprocessors"],
            gradient_clipping=request["gradient_clipping"],
            torch_adam=request["torch_adam"],
            load_whole=request["load_whole"],
        )
    except Exception as error:
        import traceback

        traceback.print_exc()
        reason = " ".join(str(error).split())[:500] or type(error).__name__
        return {"id": request["id"], "ok": False, "error": reason, "kind": type(error).__name__}
    write_trace(found, request["path"])
    return {"id": request["id"], "ok": True, "seconds": time.perf_counter() - begun}


if __name__ == "__main__":
    main()
