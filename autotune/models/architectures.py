"""Which architectures the installed transformers builds as causal language models, without importing it.

Importing transformers costs seconds and loads torch, which the controller must not do for a yes or no. The
answer is a literal in one file of the package, so that file is parsed (about 20 ms) instead of executed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from autotune.errors import EnvironmentProblem

_CAUSAL = "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES"
_SEQ_TO_SEQ = "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES"
_MASKED = "MODEL_FOR_MASKED_LM_MAPPING_NAMES"
_ALL = (_CAUSAL, _SEQ_TO_SEQ, _MASKED)


@dataclass(frozen=True, slots=True)
class Architectures:
    """Model types known to the installed transformers.

    Attributes:
        causal_lm: those that AutoModelForCausalLM builds.
        encoder_decoder: those that AutoModelForSeq2SeqLM builds; some are in both.
        masked_lm: those that AutoModelForMaskedLM builds; of those that are also in `causal_lm` the
            configuration's `is_decoder` decides which one a model is.
    """

    causal_lm: frozenset[str]
    encoder_decoder: frozenset[str]
    masked_lm: frozenset[str]


@lru_cache(maxsize=1)
def known_architectures() -> Architectures:
    """The model types of the installed transformers.

    Raises:
        EnvironmentProblem: if transformers is not installed.
    """
    spec = find_spec("transformers")
    if spec is None or not spec.submodule_search_locations:
        raise EnvironmentProblem("transformers is not installed", "pip install 'transformers>=5.17'")
    source = Path(spec.submodule_search_locations[0], "models", "auto", "modeling_auto.py")
    mappings: Mapping[str, frozenset[str]] = (
        mappings_in(source.read_text(encoding="utf-8")) if source.is_file() else {}
    )
    if not mappings.keys() >= set(_ALL):
        mappings = _imported_mappings()
    return Architectures(*(mappings[name] for name in _ALL))


def mappings_in(source: str) -> dict[str, frozenset[str]]:
    """The model types in each literal `NAME = OrderedDict([("type", ...), ...])` of a module's text."""
    return {name: types for node in ast.parse(source).body for name, types in _mapping_of(node)}


def _mapping_of(node: ast.stmt) -> Iterator[tuple[str, frozenset[str]]]:
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(args=[ast.List(elts=pairs)])):
            keys = [pair.elts[0] if isinstance(pair, ast.Tuple) and pair.elts else None for pair in pairs]
            types = [key.value for key in keys if isinstance(key, ast.Constant)]
            if len(types) == len(keys):
                yield name, frozenset(map(str, types))


def _imported_mappings() -> Mapping[str, frozenset[str]]:
    """The same by importing: slow, for a transformers whose file is laid out otherwise."""
    from transformers.models.auto import modeling_auto

    return {name: frozenset(getattr(modeling_auto, name)) for name in _ALL}
