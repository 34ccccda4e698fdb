"""The arguments for loading a model, as a value to send to workers; and the processes that share one model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from probekit.errors import ModelError, first_line
from probekit.models.encoder import Encoder
from probekit.models.options import LoadOptions

if TYPE_CHECKING:
    from probekit.models.transformers.ranks import Ranks


@dataclass(frozen=True, slots=True)
class Loading:
    """The arguments for loading a model: all that a worker needs to load the same one."""

    model: str
    options: LoadOptions

    def on(self, device: str) -> Loading:
        """The same model on another device."""
        return replace(self, options=replace(self.options, device=device))


def load(loading: Loading | None) -> Encoder:
    """The encoder that ``loading`` describes."""
    assert loading is not None
    from probekit.models import load_encoder

    if (ranks := ranks_of(loading)) is None:
        return load_encoder(loading.model, options=loading.options)
    if ranks.leads:
        ranks.tell("load")
    with ranks.together():
        return load_encoder(loading.model, options=loading.options)


def ranks_of(model: Any) -> Ranks | None:
    """The processes that share a model (a :class:`Loading` or an encoder); None if one process has all of it.

    Raises
    ------
    UsageError
        If the model is to be shared, but this process was started alone.
    """
    if not isinstance(model, Loading):
        ranks: Ranks | None = getattr(model, "ranks", None)
        return ranks
    if model.options.tp_plan is None:
        return None
    from probekit.models.transformers.ranks import join_ranks

    return join_ranks(model.options.device)


@contextmanager
def leading(ranks: Ranks) -> Iterator[None]:
    """Lead the other processes, which are in :func:`follow`, and dismiss them at the end or after an error."""
    ranks.leads, ranks.inside = True, False
    try:
        yield
        ranks.tell("end", error="")
    except BaseException as error:
        if not ranks.inside:
            ranks.tell("end", error=first_line(error))
        raise
    finally:
        ranks.leads = False


def follow(ranks: Ranks, model: Loading | Encoder) -> None:
    """Load the model and run passes when process 0 does, until it has finished.

    Raises
    ------
    ModelError
        If process 0 has ended with an error, or another process has.
    """
    import torch

    encoder: Any = None if isinstance(model, Loading) else model
    message = ranks.heard(torch.device("cpu")) if encoder is None else encoder.follow()
    while message["what"] != "end":
        assert isinstance(model, Loading)  # an encoder is loaded already
        encoder = load(model)
        message = encoder.follow()
    if message["error"]:
        raise ModelError(f"process 0 of the model has ended: {message['error']}")
