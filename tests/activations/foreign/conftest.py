"""A tiny GPT-2 whose sites are proven, for all tests of other programs' files."""

import pytest


@pytest.fixture(scope="session")
def encoder(tiny_model):
    from others import proven  # imports torch and transformers: only where a model is wanted

    return proven(tiny_model("gpt2"))
