"""The folder of kept probes, format ``probekit-probe/1``: a card in JSON, and arrays that numpy reads.

``probe.json`` holds the cards, one for each layer; ``weights.safetensors`` the arrays, named ``LAYER/NAME``, float32.
Nothing is pickled, and no link is followed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from probekit.errors import DataError, UsageError, reading
from probekit.files import digest_of_content, draft, parse_json, remove
from probekit.probes.kept import ARRAYS, Weights
from probekit.probes.solvers.scores import Score
from probekit.sites import Site
from probekit.tasks.task import TaskKind
from probekit.version import VERSION

FORMAT = "probekit-probe/1"
CARD, WEIGHTS = "probe.json", "weights.safetensors"
MOST = 1 << 26
"""The most bytes of a card."""


def write_folder(parts: Sequence[tuple[Mapping[str, Any], Weights]], folder: Path) -> Path:
    """Write the card and the weights of probes of several layers; a folder that holds kept probes is replaced.

    Raises
    ------
    UsageError
        If there is no probe, two read the same layer, or the folder holds something else.
    """
    from safetensors.numpy import save

    layers = [str(card["layer"]) for card, _ in parts]
    if not parts or len(set(layers)) < len(layers):
        what = "there is no probe to keep" if not parts else "a folder keeps one probe of a layer"
        raise UsageError(f"{what}; layers: {', '.join(layers) or 'none'}.")
    check_replaced(folder)
    arrays = {f"{card['layer']}/{name}": array for card, weights in parts for name, array in weights.arrays.items()}
    with draft(folder) as new:
        (new / WEIGHTS).write_bytes(save(arrays, metadata={"format": FORMAT}))
        card: dict[str, Any] = {"format": FORMAT, "probekit": VERSION, "weights": digest_of_content(new / WEIGHTS)}
        card |= {"probes": [{**own, **_form(weights)} for own, weights in parts]}
        card |= {"digest": card_digest(card)}
        text = json.dumps(card, ensure_ascii=False, indent=1, allow_nan=False)
        (new / CARD).write_text(text + "\n", encoding="utf-8")
        if folder.exists():
            check_replaced(folder)
            remove(folder)
        new.replace(folder)
    return folder


def _form(weights: Weights) -> dict[str, Any]:
    return {"form": weights.form, "width": weights.width} | ({"scores": weights.scores} if weights.scores else {})


def card_digest(card: Mapping[str, Any]) -> str:
    """The xxh3 digest (32 hex digits) of a card without its own: JSON in UTF-8, keys sorted, no blanks.

    ValueError if it contains NaN or infinity, which JSON does not have.
    """
    import xxhash

    rest = {key: value for key, value in card.items() if key != "digest"}
    text = json.dumps(rest, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return xxhash.xxh3_128_hexdigest(text.encode("utf-8", "surrogatepass"))


def check_replaced(folder: Path) -> None:
    """Raise UsageError if the folder exists and holds anything but probes that probekit kept."""
    if not folder.exists() and not folder.is_symlink():
        return
    ours = False
    if folder.is_dir() and not folder.is_symlink() and {p.name for p in folder.iterdir()} <= {CARD, WEIGHTS}:
        try:
            ours = not any(folder.iterdir()) or read_card(folder)["weights"] == digest_of_content(folder / WEIGHTS)
        except (DataError, OSError):
            ours = False
    if not ours:
        raise UsageError(
            f"{folder} exists and holds more than kept probes, which are not replaced; choose another folder."
        )


def read_card(folder: Path) -> dict[str, Any]:
    """The content of ``probe.json``; DataError if it is no card of kept probes."""
    path = folder / CARD
    for one in (path, folder / WEIGHTS):
        if one.is_symlink():
            raise DataError("it is a link, which probekit does not follow.", file=one)
        if not one.is_file():
            raise DataError(f"{folder} holds no kept probe: {one.name} is missing.", file=one)
    if path.stat().st_size > MOST:
        raise DataError(f"it has {path.stat().st_size:,} bytes; a card of probes has at most {MOST:,}.", file=path)
    with reading(path, "JSON"):
        card = parse_json(path.read_text(encoding="utf-8"), unique=True)
        found = card_digest(card) if isinstance(card, dict) else ""
    if not isinstance(card, dict) or card.get("format") != FORMAT:
        said = card.get("format") if isinstance(card, dict) else type(card).__name__
        raise DataError(f"wanted the format {FORMAT}, found {said!r:.60}.", file=path)
    if "digest" in card and card["digest"] != found:
        raise DataError(
            f"its content has the digest {found}, and it says {card['digest']!r:.40}: it was edited. To change a card, "
            "take the folder as it was, and save the probe with another card.", file=path,
        )  # fmt: skip
    wanted = {"layer": str, "estimator": str, "kind": str, "classes": list, "form": str, "encoder": dict, "train": dict}
    probes = card.get("probes")
    if not isinstance(probes, list) or not probes or not all(isinstance(one, dict) for one in probes):
        raise DataError("wanted a list of probes.", file=path)
    for one in probes:
        for key, kind in wanted.items():
            if not isinstance(one.get(key), kind):
                raise DataError(f"wanted {key!r} of the type {kind.__name__}, found {one.get(key)!r:.60}.", file=path)
        _check_names(one, path)
        _check_lists(one, path)
    layers = [one["layer"] for one in probes]
    if twice := next((name for i, name in enumerate(layers) if name in layers[:i]), None):
        raise DataError(f"it has two probes of layer {twice}; a folder keeps one probe of a layer.", file=path)
    return card


def _is_site(text: str) -> bool:
    """Whether it is the one written form of a site."""
    try:
        return str(Site.parse(text)) == text
    except (UsageError, ValueError):  # ValueError: thousands of digits
        return False


def _check_names(one: Mapping[str, Any], path: Path) -> None:
    """Raise DataError for names, classes or a kind that no probe has."""
    if not _is_site(one["layer"]):
        raise DataError(f"the layer {one['layer']!r:.40} is not a site.", file=path)
    shown = {"estimator": one["estimator"], **{key: one["train"].get(key) for key in ("task", "split")}}
    shown |= {key: one["encoder"].get(key) for key in ("model", "checkpoint")}
    for key, name in shown.items():
        if name is not None and not (isinstance(name, str) and name.isprintable()):
            raise DataError(f"{key} must be a text without control characters, not {name!r:.60}.", file=path)
    classes = one["classes"]
    if not all(isinstance(name, str) and name.isprintable() for name in classes) or len({*classes}) < len(classes):
        raise DataError(f"the classes must be texts that differ, not {classes!r:.60}.", file=path)
    if one["kind"] not in set(TaskKind):
        raise DataError(f"wanted a 'kind' among {', '.join(TaskKind)}, found {one['kind']!r:.60}.", file=path)


def _check_lists(one: Mapping[str, Any], path: Path) -> None:
    """Raise DataError for parts of another type, and for metrics and thresholds that are no numbers."""
    for key, kind in (("vectors", dict), ("metrics", list), ("thresholds", list), ("dev", dict)):
        if not isinstance(one.get(key, kind()), kind):
            raise DataError(f"wanted {key!r} of the type {kind.__name__}, found {one[key]!r:.60}.", file=path)
    for key, names in (("metrics", ("value",)), ("thresholds", ("rate", "threshold"))):
        for entry in one.get(key, ()):
            numbers = [entry.get(name, "") for name in names] if isinstance(entry, dict) else [""]
            if not all(x is None or (isinstance(x, int | float) and abs(x) < 1e300) for x in numbers):
                raise DataError(f"{key}: wanted numbers for {', '.join(names)}, found {entry!r:.80}.", file=path)
            if key == "metrics" and not isinstance(entry.get("metric"), str):
                raise DataError(f"metrics: wanted the name of a metric, found {entry!r:.80}.", file=path)


def read_weights(card: Mapping[str, Any], file: Any, path: Path) -> Weights:
    """The arrays of one probe, checked; DataError for arrays that do not fit each other, or the card."""
    layer, form = card["layer"], card["form"]
    try:
        scores = str(Score.parse(str(card.get("scores")))) if form == "monitor" else ""
    except UsageError as error:
        raise DataError(f"{CARD} says of a probe: {error}", file=path) from None
    if form not in ARRAYS:
        raise DataError(f"layer {layer!r:.40}: wanted a form among {', '.join(ARRAYS)}, found {form!r:.40}.", file=path)
    names, arrays = set(file.keys()), dict[str, np.ndarray]()
    for name in (*ARRAYS[form], "absent"):
        key = f"{layer}/{name}"
        if key not in names and name == "absent":
            continue
        if key not in names:
            raise DataError(f"it lacks {key}, without which the probe of layer {layer} computes nothing.", file=path)
        arrays[name] = array = file.get_tensor(key)
        if array.dtype != np.float32 or not np.isfinite(array).all():
            raise DataError(f"{key} must hold finite float32, and has {array.dtype}, or NaN or infinity.", file=path)
    weights = Weights(form, arrays, scores)
    _check_shapes(card, weights, path)
    return weights


def _check_shapes(card: Mapping[str, Any], weights: Weights, path: Path) -> None:
    """Raise DataError if arrays do not fit each other, or the classes."""
    shapes = {name: array.shape for name, array in weights.arrays.items()}
    d, k, h = weights.arrays["mean"].size, weights.outputs, weights.arrays.get("b1", np.empty(0)).size
    s, p, *_ = (*shapes.get("project", shapes.get("score", (0, d))), 0, 0)  # spans, and width of their pieces
    r = (*shapes.get("distance", ()), 0)[0]
    wanted = {
        "mean": (d,), "weight": (k, d), "bias": (k,), "w1": (h, d), "b1": (h,), "w2": (k, h), "b2": (k,),
        "query": (k, d), "value": (k, d), "slope": (k,), "shift": (k,), "absent": (k,),
        "project": (s, p, d), "project_bias": (s, p), "score": (s, p), "distance": (r, d), "depth": (r, d),
    }  # fmt: skip
    if weights.of_spans:
        wanted |= {"w1": (h, s * p), "weight": (k, s * p)}
    wrong = [f"{name} {shape}" for name, shape in shapes.items() if shape != wanted[name] or 0 in shape]
    if card.get("width", d) != d:
        raise DataError(
            f"layer {card['layer']}: the arrays read vectors of {d} dimensions, and {CARD} says {card['width']!r:.40}.",
            file=path,
        )
    classes = len(card["classes"])
    if weights.form == "structural":
        fits = True
    elif card["kind"] in ("regression", "multi-label", "multi-output"):
        fits = k == max(classes, 1)
    else:
        fits = k == classes or (k == 1 and classes == 2)
    if wrong or not fits:
        what = (
            f"the shapes do not fit each other ({', '.join(wrong)})" if wrong else f"{k} outputs for {classes} classes"
        )
        raise DataError(f"layer {card['layer']}: {what}.", file=path)
