#!/usr/bin/env bash
# One environment per trainer whose pins conflict, with the CPU build of torch where there is one.
# Usage: environments.sh FOLDER. Packages that neither parsing nor two steps on text need are left out.
set -euo pipefail
folder=${1:?folder of the environments}
python=${PYTHON:-python3}
export PIP_DISABLE_PIP_VERSION_CHECK=1
mkdir -p "$folder"

make() { # name: torch and DeepSpeed
    [ -x "$folder/$1/bin/python" ] || "$python" -m venv "$folder/$1"
    add "$1" torch==2.13.0 setuptools wheel ninja packaging psutil
    add "$1" --no-build-isolation deepspeed==0.19.8
}
add() { local name=$1; shift; "$folder/$name/bin/python" -m pip install --quiet "$@"; }

if [ ! -e "$folder/.huggingface" ]; then
    make huggingface
    add huggingface transformers==5.17.0 accelerate==1.15.0 peft==0.21.2 trl==1.16.0 datasets==5.2.0 \
        bitsandbytes==0.50.2
    touch "$folder/.huggingface"
fi

if [ ! -e "$folder/.llamafactory" ]; then
    make llamafactory
    add llamafactory 'transformers<=5.6.0' peft==0.18.1 accelerate==1.11.0 datasets==4.0.0 'trl<=0.24.0' 'tyro<0.9' \
        omegaconf fire pandas pyyaml scipy sentencepiece tiktoken einops protobuf pydantic safetensors hf-transfer \
        bitsandbytes==0.50.2
    add llamafactory --no-deps llamafactory==0.9.5 torchaudio
    # Its import loads libraries of CUDA; without them it is what a machine without audio needs.
    "$folder/llamafactory/bin/python" - <<'P'
import importlib.util
import pathlib

import torch

if torch.version.cuda is None:
    spec = importlib.util.find_spec("torchaudio")
    for library in pathlib.Path(spec.origin).parent.glob("lib/*.so"):
        library.unlink()
P
    touch "$folder/.llamafactory"
fi

if [ ! -e "$folder/.axolotl" ]; then
    make axolotl
    add axolotl transformers==5.16.1 peft==0.20.0 accelerate==1.13.0 datasets==4.8.4 trl==1.9.0 \
        huggingface_hub==1.17.0 tokenizers==0.23.1 pydantic==2.12.5 bitsandbytes==0.50.2 addict fire requests einops \
        colorama typer==0.25.1 python-dotenv scipy sentencepiece art fastcore schedulefree==1.4.1 zstandard \
        axolotl-contribs-lgpl axolotl-contribs-mit posthog evaluate==0.4.1 'numba<1.0' optimum==1.16.2 pillow wandb \
        triton==3.9.0
    add axolotl --no-deps axolotl==0.19.0
    touch "$folder/.axolotl"
fi

if [ ! -e "$folder/.swift" ]; then
    make swift
    add swift 'transformers<5.20.0' 'peft<0.21' accelerate 'datasets<4.8.5' 'trl<1.0' addict dacite json-repair einops \
        pandas PyYAML requests safetensors scipy sentencepiece simplejson tiktoken tqdm zstandard modelscope pillow \
        numpy importlib-metadata sortedcontainers binpacking charset-normalizer aiohttp rouge nltk openai fastapi \
        uvicorn matplotlib tensorboard bitsandbytes==0.50.2
    add swift --no-deps ms-swift==4.6.0
    touch "$folder/.swift"
fi
