"""A tiny model with random weights, its tokenizer and a few documents: what a user fills in."""

from __future__ import annotations

import json
import random
from pathlib import Path

from autotune.models import resolve_model

WORDS = 1000
SPECIAL = ["<unk>", "<s>", "</s>", "<pad>"]
CHAT = (
    "{% for message in messages %}{{ '<s> ' + message['content'] + ' </s>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<s> ' }}{% endif %}"
)


def make_model(folder: Path, card: str) -> Path:
    """A folder that `from_pretrained` takes: the card's model in bf16, and a tokenizer of words."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PreTrainedTokenizerFast

    values = dict(resolve_model(card).config)
    config = CONFIG_MAPPING[values.pop("model_type")].from_dict(values)
    torch.manual_seed(0)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    vocabulary = {word: number for number, word in enumerate([*SPECIAL, *(f"w{n}" for n in range(WORDS))])}
    words = Tokenizer(models.WordLevel(vocabulary, "<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words,
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
    )
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(folder)
    return folder


def make_documents(folder: Path, documents: int = 64, words: int = 200) -> Path:
    """`text/train.jsonl`, `chat/train.jsonl` and LLaMA-Factory's description of the first."""
    chance = random.Random(0)
    texts = [" ".join(f"w{chance.randrange(WORDS)}" for _ in range(words)) for _ in range(documents)]
    for name, rows in (
        ("text", [{"text": text} for text in texts]),
        ("chat", [{"messages": _turns(text)} for text in texts]),
    ):
        (folder / name).mkdir(parents=True, exist_ok=True)
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / name / "train.jsonl").write_text(lines, encoding="utf-8")
    described = {"documents": {"file_name": "train.jsonl", "columns": {"prompt": "text"}}}
    (folder / "text" / "dataset_info.json").write_text(json.dumps(described), encoding="utf-8")
    return folder


def _turns(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text[:10]}, {"role": "assistant", "content": text}]
