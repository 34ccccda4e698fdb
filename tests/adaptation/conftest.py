"""What all trainings of tests share."""

from collections.abc import Iterator
from functools import cache
from types import SimpleNamespace

import pytest


@pytest.fixture(scope="session", autouse=True)
def _no_collections() -> Iterator[None]:
    """Accelerate collects garbage before each training, a fifth of the time of a tiny one; Python does when needed.

    It also looks for packages at each step; here once.
    """
    from accelerate.utils import imports, memory

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "gc", SimpleNamespace(collect=lambda: 0))
        patch.setattr(imports, "_is_package_available", cache(imports._is_package_available))
        yield
