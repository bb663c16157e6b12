from __future__ import annotations

from collections.abc import Iterator

import pytest

from autotune.prediction import Predictor


@pytest.fixture(scope="session")
def predictor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Predictor]:
    """A predictor of an H200 whose one tracing process serves all tests: it takes long to start."""
    with Predictor(gpu="9.0", cache_dir=tmp_path_factory.mktemp("traces"), workers=1) as made:
        yield made
