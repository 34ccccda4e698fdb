"""What each layer of a language model knows, how adaptation changes it, and how sure we are.

import probekit
train = probekit.cache_activations("bert-base-uncased", "sst2", "train")
dev = probekit.cache_activations("bert-base-uncased", "sst2", "dev")
result = probekit.probe(train, dev)
result.plot()

``dir(probekit)`` lists the names of the first hour, and groups with all others: ``probekit.analyses.movement`` is
``probekit.movement``, which works, too.
"""

import lazy_loader

from probekit.version import VERSION as __version__  # noqa: F401

FIRST = (
    *("new_task", "check_task", "load_task", "load_encoder", "cache_activations", "ActivationCache"),
    *("run", "suite", "probe", "mi", "compare", "plot", "train", "read", "Result", "reproduce", "demo"),
)
"""The names of the first hour; each stands in a group as well, or has none."""

_ours, _, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __dir__() -> list[str]:
    """The groups, and the names of the first hour."""
    from probekit.plugins import groups

    return sorted({*groups(), *FIRST})


def __getattr__(name: str) -> object:
    """A name of ``__init__.pyi``, imported when it is first used, or an analysis of another package."""
    if name not in __all__ and not name.startswith("_"):
        from probekit.analysis import modules

        if name in modules():
            from probekit.functions import find

            return find(name)
    return _ours(name)
