#!/usr/bin/env bash
# Make the virtual environment with the pinned versions. An installed CUDA build of torch is used as it is.
set -euo pipefail
venv=${1:?folder of the environment}
python=${PYTHON:-python3}

"$python" - <<'P' || { echo "autotune needs Python 3.11 or later; say which with PYTHON=..." >&2; exit 2; }
import sys
sys.exit(sys.version_info < (3, 11))
P

constraints=constraints.txt
options=()
if "$python" -c 'import torch, sys; sys.exit(torch.version.cuda is None)' 2>/dev/null; then
    echo "using the CUDA build of torch that is installed"
    options=(--system-site-packages)
    constraints=$(mktemp)
    trap 'rm -f "$constraints"' EXIT
    # Its version, and those of its companions, are what they are.
    grep -vE '^(torch|triton|nvidia-.*|numpy|setuptools)==' constraints.txt >"$constraints"
fi
[ -x "$venv/bin/python" ] || "$python" -m venv "${options[@]}" "$venv"
export PIP_DISABLE_PIP_VERSION_CHECK=1
pip() { "$venv/bin/python" -m pip install --quiet --constraint "$constraints" "$@"; }
# DeepSpeed's source distribution imports torch to build; without isolation it finds the one that is used.
pip setuptools wheel ninja packaging psutil
pip 'torch>=2.11'
pip --no-build-isolation deepspeed
pip --editable '.[test,liger]'
