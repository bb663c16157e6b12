"""From whatever a config.json holds to the configuration of one causal language model."""

from __future__ import annotations

from typing import Any, NoReturn

from autotune.errors import UsageError
from autotune.models.architectures import known_architectures
from autotune.models.plausible import check_sizes

# Dropped: where a file came from says nothing about the model and would make equal models differ; auto_map
# and a named attention kernel make transformers fetch and run code; quantization is what the tuner decides.
_DROPPED_KEYS = (
    "_name_or_path",
    "_commit_hash",
    "transformers_version",
    "auto_map",
    "_attn_implementation",
    "_attn_implementation_internal",
    "attn_implementation",
    "quantization_config",
)


_GIVE_CONFIG = "give a transformers config.json"


def causal_lm_config(config: object, name: str) -> dict[str, Any]:
    """The configuration that AutoModelForCausalLM builds from, with `model_type`.

    Of a multimodal model that is its text part (`text_config`): the synthetic batches hold tokens only.

    Args:
        config: the parsed config.json.
        name: what the user calls the model, for messages.

    Raises:
        UsageError: if it is no model configuration, needs code from its repository, is no causal language
            model, or has sizes that no model can have.
    """
    found = _causal_part(config, name)
    check_sizes(found, name)
    return found


def _causal_part(config: object, name: str) -> dict[str, Any]:
    if not isinstance(config, dict):
        raise UsageError(f"the configuration of {name} is not a JSON object", _GIVE_CONFIG)
    causal_lm = known_architectures().causal_lm
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or not model_type:
        if config.get("auto_map"):
            _refuse_remote_code(name, "model_type is missing")
        hint = "give a transformers config.json, which names its architecture as model_type"
        if "peft_type" in config:
            hint = f"it is a LoRA adapter: name its base model, {config.get('base_model_name_or_path')}"
        raise UsageError(f"the configuration of {name} has no model_type", hint)
    text = config.get("text_config")
    if isinstance(text, dict):
        text_type = text.get("model_type") or f"{model_type}_text"
        if text_type in causal_lm:
            # The head's tying is often said once, for the whole model.
            tying = {key: config[key] for key in ("tie_word_embeddings",) if key in config}
            return _cleaned({**tying, **text, "model_type": text_type})
    if model_type in causal_lm and not _is_encoder_decoder(config, model_type):
        if _is_encoder(config, model_type):
            _refuse_encoder(name, model_type)
        return _cleaned(config)
    _refuse(config, model_type, name)


def is_quantized(config: object) -> bool:
    """Whether the weights that belong to a parsed config.json are stored quantized."""
    return isinstance(config, dict) and bool(config.get("quantization_config"))


def config_notes(config: object, name: str) -> tuple[str, ...]:
    """What the user should know of what is left out of a parsed config.json, one sentence each."""
    if not isinstance(config, dict):
        return ()
    notes = []
    if has_text_part(config):
        notes.append(f"{name} is multimodal: its text part alone is looked at")
    if is_quantized(config):
        stored = config["quantization_config"]
        method = stored.get("quant_method") if isinstance(stored, dict) else None
        kind = f" ({method})" if isinstance(method, str) else ""
        notes.append(
            f"the weights of {name} are stored quantized{kind}: what is looked at is the same model in the "
            "precision and quantization of each configuration, not as it is stored"
        )
    return tuple(notes)


def has_text_part(config: object) -> bool:
    """Whether a parsed config.json describes a multimodal model whose text part is used."""
    return isinstance(config, dict) and isinstance(config.get("text_config"), dict)


def _cleaned(config: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in _DROPPED_KEYS}


def _is_encoder(config: dict[str, Any], model_type: str) -> bool:
    """Whether it is an encoder such as BERT: transformers would build it with a head, and without a mask."""
    known = known_architectures()
    both = model_type in known.masked_lm and model_type not in known.encoder_decoder
    return both and not config.get("is_decoder")


def _is_encoder_decoder(config: dict[str, Any], model_type: str) -> bool:
    default = model_type in known_architectures().encoder_decoder
    return bool(config.get("is_encoder_decoder", default))


def _refuse(config: dict[str, Any], model_type: str, name: str) -> NoReturn:
    known = known_architectures()
    if model_type in known.encoder_decoder or config.get("is_encoder_decoder"):
        raise UsageError(
            f"{name} is an encoder-decoder model ({model_type}); only causal language models are tuned",
            "choose a decoder-only model: `autotune models` lists some",
        )
    if config.get("auto_map"):
        _refuse_remote_code(name, f"the installed transformers does not know {model_type!r}")
    raise UsageError(
        f"{name} ({model_type}) is not a causal language model that the installed transformers can build",
        "choose a decoder-only model, or upgrade transformers if the architecture is newer than it",
    )


def _refuse_encoder(name: str, model_type: str) -> NoReturn:
    raise UsageError(
        f"{name} is an encoder ({model_type}), trained to fill in masked words; only causal language models "
        "are tuned",
        "choose a decoder-only model; one of this family that was trained as a decoder has is_decoder: true",
    )


def _refuse_remote_code(name: str, why: str) -> NoReturn:
    raise UsageError(
        f"{name} needs code from its own repository ({why}); code of others is not run",
        "use a model whose architecture is part of transformers",
    )
