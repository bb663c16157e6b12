#!/usr/bin/env bash
# The main job on whatever this machine has: a small model on the CPU, a half-billion one on a GPU.
set -euo pipefail
bin=${1:?folder of the programs}
mkdir -p out
if "$bin/python" -c 'import sys; from autotune.running import default_device; sys.exit(default_device() != "cuda")'; then
    work=(--model qwen2.5-0.5b --seq-len 1024 --global-batch 32 --trials 12)
else
    work=(--model tiny-llama --device cpu --gpu-budget 1GB --seq-len 128 --global-batch 8 --trials 8)
fi
set -x
"$bin/autotune" run "${work[@]}" --method any --space quick --storage sqlite:///out/demo.db --export-dir out/demo
"$bin/autotune" best --storage sqlite:///out/demo.db
