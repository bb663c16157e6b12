"""The README's example of a training loop of one's own, run as it stands with a real DeepSpeed engine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from records import write_record

from trials.ops import extensions_folder, remove_stale_locks

ROOT = Path(__file__).resolve().parents[2]
BEFORE = """
import os
import torch
from transformers import AutoModelForCausalLM
from autotune.models import resolve_model
from trials.model_build import transformers_config

torch.manual_seed(0)
AutoModelForCausalLM.from_config(transformers_config(resolve_model("tiny-llama"))).save_pretrained("my-model")
tokens = torch.randint(0, 1000, (2, 64))
batches = [{"input_ids": tokens, "labels": tokens}] * 8
"""
AFTER = """
with torch.no_grad():
    print("steps", engine.global_steps, "loss", float(engine(**batches[0]).loss))
print("trained", sum(p.numel() for p in trained), engine.zero_optimization_stage())
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("optimizer", ["adamw", "adamw8bit"])
def test_the_readme_s_ten_lines_train(tmp_path: Path, optimizer: str) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    example = re.search(r"test_applying_readme\.py runs.*?```python\n(.*?)```", text, re.DOTALL)
    assert example is not None
    lines = [line for line in example[1].splitlines() if line.strip()]
    assert len(lines) <= 10
    point = {"micro_batch_size": 2, "gradient_accumulation_steps": 2, "lora_rank": 16, "zero_stage": 1}
    write_record(tmp_path / "out", **point, optimizer=optimizer)
    script = tmp_path / "mine.py"
    script.write_text(BEFORE + example[1] + AFTER)
    # DeepSpeed builds an operator at its first start, about a minute, or waits for whoever does.
    remove_stale_locks(extensions_folder())
    alone = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}

    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env={**os.environ, **alone, "MASTER_PORT": "0", "DS_ACCELERATOR": "cpu", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=560,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    # Eight micro batches of two accumulated ones; rank 16 on every linear layer of tiny-llama.
    assert "steps 4 loss" in done.stdout
    trained = 16 * 4 * (2 * (256 + 256) + 2 * (256 + 128) + 3 * (256 + 704))
    assert f"trained {trained} 1" in done.stdout
