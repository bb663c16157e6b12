from __future__ import annotations

from autotune.models.architectures import known_architectures, mappings_in


def test_parsing_transformers_gives_what_importing_it_gives() -> None:
    from transformers.models.auto import modeling_auto

    known = known_architectures()
    assert known.causal_lm == frozenset(modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    assert known.masked_lm == frozenset(modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES)
    assert known.encoder_decoder == frozenset(modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES)


def test_a_mapping_that_is_no_literal_is_left_out_rather_than_read_in_part() -> None:
    source = 'A = OrderedDict([("x", "X"), *more])\nB = OrderedDict([("y", "Y")])\nC = OrderedDict()\nD = 3\n'
    assert mappings_in(source) == {"B": frozenset({"y"})}
