"""The arguments for loading a model, as a value to send to workers."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from probekit.models.encoder import Encoder

__all__ = ["Loading", "load"]


@dataclass(frozen=True, slots=True)
class Loading:
    """The arguments for loading a model: all that a worker needs to load the same one."""

    model: str
    revision: str | None = None
    dtype: str = "float32"
    device: str = "cpu"
    random_weights: int | None = None
    max_length: int | None = None
    compile: bool = False
    stateful: int = 0
    sites: tuple[str, ...] | None = None
    blocks: tuple[str, ...] | None = None
    device_map: str | None = None
    decoder: bool | None = None


def load(loading: Loading | None) -> Encoder:
    """The encoder that ``loading`` describes."""
    assert loading is not None
    from probekit.models import load_encoder

    arguments = {key: value for key, value in asdict(loading).items() if value is not None}
    return load_encoder(arguments.pop("model"), **arguments)
