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
    """Write the card and the weights of probes of several layers; kept probes of the same work are replaced.

    Raises
    ------
    UsageError
        If there is no probe, two read the same layer, a probe could not be loaded again, or the folder holds something
        else (see :func:`check_replaced`).
    """
    from safetensors.numpy import save

    layers = [str(card["layer"]) for card, _ in parts]
    if not parts or len(set(layers)) < len(layers):
        what = "there is no probe to keep" if not parts else "a folder keeps one probe of a layer"
        raise UsageError(f"{what}; layers: {', '.join(layers) or 'none'}.")
    cards = [card for card, _ in parts]
    check_replaced(folder, cards)
    arrays = {f"{card['layer']}/{name}": array for card, weights in parts for name, array in weights.arrays.items()}
    with draft(folder) as new:
        (new / WEIGHTS).write_bytes(save(arrays, metadata={"format": FORMAT}))
        card: dict[str, Any] = {"format": FORMAT, "probekit": VERSION, "weights": digest_of_content(new / WEIGHTS)}
        card |= {"probes": [{**own, **_form(weights)} for own, weights in parts]}
        try:
            card |= {"digest": card_digest(card)}
        except (TypeError, ValueError) as error:
            raise UsageError(f"a card is JSON, without NaN or infinity (None stands for these): {error}.") from None
        text = json.dumps(card, ensure_ascii=False, indent=1, allow_nan=False)
        (new / CARD).write_text(text + "\n", encoding="utf-8")
        _check_readable(new)
        if folder.exists():
            check_replaced(folder, cards)
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


def read_folder(folder: Path) -> list[tuple[dict[str, Any], Weights]]:
    """The card and the weights of each probe of a folder; DataError if it is damaged, or holds no kept probe."""
    from safetensors import safe_open

    card, path = read_card(folder), folder / WEIGHTS
    if card.get("weights") != (digest := digest_of_content(path)):
        raise DataError(
            f"its digest is {digest}, and {CARD} says {card.get('weights')!r:.40}: one of the two files has changed.",
            file=path,
        )
    with reading(path, "safetensors"), safe_open(path, "numpy") as file:
        found = [(one, read_weights(one, file, path)) for one in card["probes"]]
        known = {f"{one['layer']}/{name}" for one, weights in found for name in weights.arrays}
        if more := sorted(set(file.keys()) - known):
            raise DataError(f"it has arrays that {CARD} does not speak of: {', '.join(more)!r:.80}.", file=path)
    return found


def _check_readable(folder: Path) -> None:
    """Raise UsageError if what was written could not be read."""
    try:
        read_folder(folder)
    except DataError as error:
        said = str(error).removeprefix(f"{error.file}: ")
        raise UsageError(f"a probe with such a card or weights could not be loaded again: {said}") from None


def check_replaced(folder: Path, cards: Sequence[Mapping[str, Any]] = ()) -> None:
    """Raise UsageError if the folder exists, and anything would be lost but kept probes of the same work.

    That is anything but probes that probekit kept; with ``cards``, the new ones (``layer``, ``encoder`` and ``train``
    of each), also kept probes of another model or task, or of a layer that the new ones lack.
    """
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
    old = read_card(folder)["probes"] if cards and any(folder.iterdir()) else []
    if lost := [one["layer"] for one in old if one["layer"] not in {str(card["layer"]) for card in cards}]:
        raise UsageError(
            f"{folder} keeps probes of the layers {', '.join(lost)} too, which would be lost; choose another folder."
        )
    if old and (was := _work(old[0])) != (now := _work(cards[0])):
        raise UsageError(f"{folder} keeps probes of {was}, and these are of {now}; choose another folder.")


def _work(card: Mapping[str, Any]) -> str:
    """What a probe was fitted on, in words."""
    encoder, train = card["encoder"], card["train"]
    where = f"{encoder.get('model')} ({encoder.get('weights_digest')})"
    return f"{where} on {train.get('task') or train.get('file')}"


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
        _check_parts(one, path)
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


TEXTS = {
    "encoder": (
        *("model", "checkpoint", "revision", "weights_digest", "tokenizer_digest", "base", "quantised", "dtype"),
        *("device", "part", "pooling", "tokens", "pairs", "positions", "context"),
    ),
    "vectors": ("representation", "span", "span_pair", "store"),
    "train": ("task", "split", "data_digest"),
    "dev": ("task", "split", "data_digest"),
}  # fmt: skip
"""Keys of parts of a card that are texts, or null."""
COUNTS = {
    "encoder": ("step", "random_weights", "cut_at", "width", "reads_at_most"),
    "train": ("n", "groups"), "dev": ("n", "groups", "seen_in_train"), "scores_on": ("n", "seen_in_train"),
}  # fmt: skip
"""Keys that are whole numbers, or null."""


def _check_parts(one: Mapping[str, Any], path: Path) -> None:
    """Raise DataError for parts, or entries of parts, of another type."""
    dicts, lists = ("vectors", "dev", "auroc", "scores_on"), ("metrics", "thresholds", "reliability")
    for key, kind in {**dict.fromkeys(dicts, dict), **dict.fromkeys(lists, list)}.items():
        if not isinstance(one.get(key, kind()), kind):
            raise DataError(f"wanted {key!r} of the type {kind.__name__}, found {one[key]!r:.60}.", file=path)
    for of, wanted, what in ((TEXTS, str, "a text"), (COUNTS, int, "a whole number")):
        for part, keys in of.items():
            for key in keys:
                value = one.get(part, {}).get(key)
                if value is not None and (not isinstance(value, wanted) or isinstance(value, bool)):
                    raise DataError(f"{part}: {key} must be {what}, not {value!r:.60}.", file=path)
    needed = {"metrics": ("metric", "value"), "thresholds": ("rate", "threshold")}
    entries = [(key, entry) for key in lists for entry in one.get(key, ())]
    for key, entry in [*entries, ("auroc", one.get("auroc", {})), ("card", {"temperature": one.get("temperature")})]:
        wrong = not isinstance(entry, dict) or any(name not in entry for name in needed.get(key, ()))
        if wrong or not all(_fits(name, value) for name, value in entry.items()):
            raise DataError(
                f"{key}: wanted numbers{' and the name of a metric' * (key == 'metrics')}, found {entry!r:.80}.",
                file=path,
            )


def _fits(name: str, value: Any) -> bool:
    """Whether a measured value is a number or null, or a text where one belongs."""
    if name in ("metric", "why"):
        return isinstance(value, str)
    return (value is None and name != "rate") or (isinstance(value, int | float) and abs(value) < 1e300)


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
