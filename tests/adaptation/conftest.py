"""What all trainings of tests share."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest


@pytest.fixture(scope="session", autouse=True)
def _no_collections() -> Iterator[None]:
    """Accelerate collects garbage before each training, a fifth of the time of a tiny one; Python does when needed."""
    from accelerate.utils import memory

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "gc", SimpleNamespace(collect=lambda: 0))
        yield
