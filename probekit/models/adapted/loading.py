"""Load a model from its base and the weights that an adaptation has changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from probekit.errors import ModelError, ProbekitError, UsageError, reading
from probekit.files import digest_of_content, read_json
from probekit.models.adapted.bottleneck import add_adapters
from probekit.models.adapted.depth import drop_blocks
from probekit.models.adapted.direction import attend
from probekit.models.adapted.library import add_tuner, name_in_model
from probekit.models.adapted.record import COMPOSITION, LIBRARY, Adapted
from probekit.models.card import CARD
from probekit.models.find import resolve_model
from probekit.models.folder import config_digest, configuration, weights_digest
from probekit.notes import logger

log = logger(__name__)


def base_folder(run: Adapted, base: str | Path | None = None) -> Path:
    """The folder of a run's base, checked to be the model that was adapted.

    Parameters
    ----------
    base : str | Path, optional
        Where the base is now, instead of the place in the card.

    Raises
    ------
    ModelError
        If the base is missing, or its weights have changed.
    """
    where = f"Say where it is: edit base.model in {run.folder / CARD}, or probekit merge {run.folder} --base FOLDER."
    expected = f"weights with the digest {run.base_digest}"
    try:
        folder = resolve_model(str(base or run.base), None if base else run.revision)
        found = weights_digest(folder) if run.random_weights is None else config_digest(folder)
    except ProbekitError as error:
        raise ModelError(f"{run.folder} adapts {base or run.base} ({expected}): {error} {where}") from error
    if found != run.base_digest and run.adapters:
        raise ModelError(f"{folder} has changed since {run.folder} was made of it; name base and adapter again.")
    if found != run.base_digest:
        raise ModelError(f"{run.folder} adapts {expected}, but {folder} now has {found}. {where}")
    return folder


def with_adapters(model: Any, run: Adapted) -> Any:
    """A model, with its head or without, with the adapters of peft that a folder names, one after another."""
    from probekit.models.adapted.foreign import apply_adapter

    for doubt in read_json(run.folder / COMPOSITION).get("doubts", ()):
        log.warning("%s. A base of the same shape with other weights is not noticed.", doubt)
    for adapter in run.adapters:
        model = apply_adapter(model, adapter)
    return model


def load_adapted(
    run: Adapted, load: Callable[..., Any], *, merge: bool = True, base: str | Path | None = None, **how: Any
) -> Any:
    """The adapted model in float32 on the CPU, in inference mode.

    Parameters
    ----------
    load : callable
        :func:`probekit.models.transformers.stock.load_model`, which loads the base.
    merge : bool, default True
        Add the changes to the base's weights, if method and base allow it: the model then has its usual modules.
    base : str | Path, optional
        Where the base is now.
    **how
        Options of ``load``, such as ``attention``.

    Raises
    ------
    ModelError
        If the base is missing or has changed, or the weights are damaged or do not fit it.
    """
    folder = base_folder(run, base)
    net = load(folder, random_weights=run.random_weights, quantise=run.quantise, **how)
    if run.adapters:
        return with_adapters(net, run)
    own = configuration(run.folder)
    if own.num_hidden_layers != net.config.num_hidden_layers:
        drop_blocks(net, own.num_hidden_layers)
    if (causal := getattr(own, "is_causal", None)) not in (None, getattr(net.config, "is_causal", None)):
        attend(net, causal=causal)
    expected = (read_json(run.folder / CARD).get("digests") or {}).get(run.weights.name)
    if not run.weights.is_file() or expected not in (None, digest_of_content(run.weights)):
        problem = "is damaged: its content does not match its digest" if run.weights.is_file() else "is missing"
        raise ModelError(f"{run.weights} {problem}. Train the run again with --overwrite.")
    with reading(run.weights, "safetensors"):
        changed = load_file(run.weights)
    tuner, names = None, list(changed)
    try:
        if run.method in LIBRARY:
            changed = {name_in_model(name): weight for name, weight in changed.items()}
            tuner, names = add_tuner(net, run.configuration())
        elif run.method == "adapter":
            names = add_adapters(net, **run.settings)
        _, strange = net.load_state_dict(changed, strict=False)
    except (UsageError, RuntimeError, TypeError, KeyError, ValueError) as error:
        raise ModelError(f"{run.folder}: its weights do not fit the model in {folder} ({error}).") from error
    if strange or set(names) != set(changed):
        raise ModelError(f"{run.folder}: its weights do not fit {folder} ({sorted(set(names) ^ set(changed))[:3]}).")
    if merge and run.mergeable and tuner is not None:
        net = tuner.merge_and_unload()
    return net.eval().requires_grad_(requires_grad=False)
