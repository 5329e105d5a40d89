"""The real model that tests use: SmolLM2 from the user's model cache, fetched on first use."""

import os
from functools import cache
from pathlib import Path

import pytest
from float32_models import open_float32

from tercet.base.errors import Invalid
from tercet.models import ModelCacheConfig, OpenedModel


def user_cache() -> ModelCacheConfig:
    """The model cache that `tercet serve` uses where nobody says otherwise."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return ModelCacheConfig(folder=Path(home) / "tercet")


@cache
def _open() -> OpenedModel | str:
    try:
        return open_float32("smollm2", cache=user_cache())
    except Invalid as error:
        return error.sentence


def smollm2() -> OpenedModel:
    """The opened model; the test is skipped with the reason where it can't be had."""
    opened = _open()
    if isinstance(opened, str):
        pytest.skip(opened)
    return opened
