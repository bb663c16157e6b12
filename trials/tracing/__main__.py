"""The worker process: a JSON request a line on stdin, a JSON answer a line on stdout, traces in files."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any


def main() -> None:
    """Serve until stdin ends. The only argument is the number of data-parallel processes to pretend.

    Each request is traced in a fork: libraries patch themselves for good (ZeRO-3, liger-kernel), and what a
    trace leaves behind ends with it. The libraries are loaded once, here.
    """
    # Libraries print to stdout; the protocol keeps a descriptor of its own.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    from trials.tracing.environment import preload, start_process

    start_process(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    for line in sys.stdin:
        if not line.strip():
            continue
        request = json.loads(line)
        preload(request["model"]["config"].get("model_type", ""), request["point"])
        answers.write(json.dumps(_forked(request)) + "\n")
        answers.flush()


def _forked(request: dict[str, Any]) -> dict[str, Any]:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        status = 1
        try:
            with os.fdopen(writer, "w") as pipe:
                pipe.write(json.dumps(_answer(request)))
            status = 0
        finally:
            # No cleaning up: what the parent owns must not be closed by its copy.
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    if not text:
        how = f"ended with status {os.waitstatus_to_exitcode(status)}"
        return {"id": request["id"], "ok": False, "error": f"tracing {how}", "kind": "Died"}
    answer: dict[str, Any] = json.loads(text)
    return answer


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    from trials.tracing.forking import Forks
    from trials.tracing.layers import layers_script, with_layers
    from trials.tracing.skeleton import skeleton_script
    from trials.tracing.storing import write_trace
    from trials.tracing.tracer import trace
    from trials.wire import ModelSpec, Point

    begun = time.perf_counter()
    forks = Forks({})
    # It ends with this process, which is a fork.
    held: list[Any] = []
    try:
        model = ModelSpec.model_validate(request["model"])
        point = Point.model_validate(request["point"])
        script = None
        if "runs" in request:
            model = with_layers(model, request["layers"])
            script = layers_script([tuple(run) for run in request["runs"]], request["evaluations"])
        elif "arrivals" in request:
            forks = Forks({Point.model_validate(one["point"]): one["path"] for one in request["variants"]})
            script = skeleton_script(request["arrivals"], forks.turn_to_accumulation)
        found = trace(
            model,
            point,
            request["seq_len"],
            lora_targets=tuple(request["lora_targets"]) if request["lora_targets"] else None,
            processes=request["processes"],
            capability=tuple(request["capability"]),
            multiprocessors=request["multiprocessors"],
            gradient_clipping=request["gradient_clipping"],
            torch_adam=request["torch_adam"],
            load_whole=request["load_whole"],
            script=script,
            held=held,
            runs_inside="arrivals" not in request,
            turn=forks.turn_to_engine if forks.paths else None,
        )
    except Exception as error:
        import traceback

        forks.end(failed=True)

        traceback.print_exc()
        reason = " ".join(str(error).split())[:500] or type(error).__name__
        return {"id": request["id"], "ok": False, "error": reason, "kind": type(error).__name__}
    write_trace(found, forks.path or request["path"])
    forks.end()
    return {"id": request["id"], "ok": True, "seconds": time.perf_counter() - begun}


if __name__ == "__main__":
    main()
