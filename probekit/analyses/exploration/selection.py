"""What can be done with some of the points: look at them, write them as a task, compare them with the others."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.errors import UsageError
from probekit.files import FileKind, check_folder, whole
from probekit.statistics.two_samples import mean_difference

if TYPE_CHECKING:
    import pandas as pd

    from probekit.analyses.exploration.data import SceneData

CHOSEN_BY_EYE = (
    "The intervals are those of a selection made without looking. Points that were selected because of what the table "
    "compares (an area of errors, a label) differ by construction: confirm on other data. The rows "
    "are not corrected for their number."
)
NEW = FileKind("a task", lambda _: False, "choose another name")


def examples(scene: SceneData, ids: Iterable[Any], layer: int | str | None = None) -> pd.DataFrame:
    """Points as a table: id, text, label, length, domain, group; with ``layer`` predictions and movement, too."""
    import pandas as pd

    at = scene.places(ids)
    columns: dict[str, Any] = {"id": scene.ids[at]}
    if scene.texts is not None:
        names = ("token", "text") if scene.tokens_unit else ("text", "pair")
        texts = [scene.texts[i] for i in at]
        for k, name in enumerate(names[: max((len(t) for t in texts), default=1)]):
            columns[name] = [t[k] if k < len(t) else None for t in texts]
    columns["label"] = label_texts(scene, scene.labels[at])
    columns["length"] = scene.lengths[at]
    if scene.domains is not None:
        columns["domain"] = scene.domains[at]
    if scene.groups is not None:
        columns["group"] = scene.groups[at]
    if layer is not None:
        where = scene.position(layer)
        for side in scene.sides:
            if side.prediction is not None:
                columns[f"predicted by {side.name}"] = label_texts(scene, side.prediction[where][at])
            if side.confidence is not None:
                columns[f"confidence of {side.name}"] = side.confidence[where][at]
        if scene.movement is not None:
            for side, moved in zip(scene.sides[1:], scene.movement, strict=True):
                columns[f"movement to {side.name}"] = moved[where][at]
    return pd.DataFrame(columns)


def label_texts(scene: SceneData, labels: np.ndarray) -> list[Any]:
    """Names of labels, None for unlabelled points; numbers stay numbers."""
    if labels.dtype.kind == "f":
        return labels.tolist()
    names = scene.label_names
    return [None if i < 0 else names[i] if i < len(names) else str(i) for i in labels.tolist()]


def compare_selection(
    scene: SceneData, ids: Iterable[Any], layer: int | str | None = None, *, level: float = 0.95
) -> pd.DataFrame:
    """Some points against all others: accuracy, confidence, movement, length, labels and domains.

    Parameters
    ----------
    ids : iterable
        Ids of the selected points.
    layer : int or str, optional
        Name or number of a layer; default: all layers.
    level : float
        Coverage of the intervals.

    Returns
    -------
    DataFrame
        quantity, layer, model, selection, rest, difference, ci_low, ci_high, n_selection, n_rest; ``attrs["note"]``
        says what the intervals do not cover.
    """
    import pandas as pd

    at = scene.places(ids)
    chosen = np.zeros(len(scene), dtype=bool)
    chosen[at] = True
    if not 0 < chosen.sum() < len(scene):
        raise UsageError(f"{chosen.sum():,} of {len(scene):,} points are selected; a comparison needs some and others.")
    layers = range(len(scene.layers)) if layer is None else [scene.position(layer)]
    rows = []
    for name, where, side, values in _quantities(scene, layers):
        found = mean_difference(values, chosen, scene.groups, level=level)
        known = ~np.isnan(values)
        rows.append(
            {
                "quantity": name,
                "layer": None if where is None else scene.layers[where],
                "model": side,
                "selection": found.first,
                "rest": found.second,
                "difference": found.value,
                "ci_low": found.ci_low,
                "ci_high": found.ci_high,
                "n_selection": int((chosen & known).sum()),
                "n_rest": int((~chosen & known).sum()),
            }
        )
    table = pd.DataFrame(rows)
    table.attrs["note"] = CHOSEN_BY_EYE
    return table


def _quantities(scene: SceneData, layers: Iterable[int]) -> Iterable[tuple[str, int | None, str, np.ndarray]]:
    """Name, layer, model and values (n,) of all that is compared; NaN where there is no value."""
    labels, numbers = scene.labels, scene.labels.dtype.kind == "f"
    for where in layers:
        for side in scene.sides:
            if side.prediction is not None:
                predicted = side.prediction[where]
                if numbers:
                    yield "absolute error", where, side.name, np.abs(predicted - labels)
                else:
                    known = (labels >= 0) & (predicted >= 0)
                    yield "accuracy", where, side.name, np.where(known, predicted == labels, np.nan)
            if side.confidence is not None:
                yield "confidence", where, side.name, side.confidence[where].astype(np.float64)
        for k, side in enumerate(scene.sides[1:]):
            if scene.movement is not None:
                yield "movement", where, side.name, scene.movement[k, where].astype(np.float64)
    yield "length", None, "", scene.lengths.astype(np.float64)
    if numbers:
        yield "label", None, "", labels
    else:
        for c, name in enumerate(scene.label_names):
            yield f"share of label {name}", None, "", np.where(labels >= 0, labels == c, np.nan)
    if scene.domains is not None:
        for name in sorted(set(scene.domains.tolist())):
            yield f"share of domain {name}", None, "", (scene.domains == name).astype(np.float64)


def write_task(scene: SceneData, ids: Iterable[Any], path: str | Path) -> Path:
    """Write points as a task of your own: ``path`` (.toml) and a .jsonl file next to it; of tokens their examples.

    Raises
    ------
    UsageError
        If there are no texts, or a file exists already.
    """
    at, path = scene.places(ids), Path(path)
    if path.suffix != ".toml":
        raise UsageError(f"a task file must end in .toml; {path} does not.")
    if scene.texts is None:
        raise UsageError("this scene has no texts to write; give the task to scene(…, task=…).")
    if scene.tokens_unit:
        owner = [name.rpartition(":")[0] for name in scene.ids[at].tolist()]
        at = at[np.sort(np.unique(owner, return_index=True)[1])]
    if not len(at):
        raise UsageError("no points are selected.")
    check_folder(path.parent)
    data = path.with_suffix(f".{scene.split}.jsonl")
    if there := [str(one) for one in (path, data) if one.exists() or one.is_symlink()]:
        raise UsageError(f"{' and '.join(there)} exist already and are not replaced; choose another name.")
    with whole(data, NEW) as new:
        new.write_text("".join(_lines(scene, scene.texts, at)), encoding="utf-8", newline="\n")
    with whole(path, NEW) as new:
        new.write_text(_toml(scene, scene.texts, at, path.stem, data.name), encoding="utf-8", newline="\n")
    return path


def _lines(scene: SceneData, texts: Sequence[tuple[str, ...]], at: np.ndarray) -> Iterable[str]:
    tags_of = _tags(scene)
    for i in at.tolist():
        text = texts[i][1:] if scene.tokens_unit else texts[i]
        name = str(scene.ids[i]).rpartition(":")[0] if scene.tokens_unit else str(scene.ids[i])
        record: dict[str, Any] = {"id": name}
        if tags_of is not None:
            words, tags = text[0].split(" "), tags_of(i)
            if len(words) != len(tags):
                raise UsageError(
                    f"{name}: {len(tags)} of {len(words)} words have a label in the cache (the others were truncated), "
                    "so it cannot be written as a task."
                )
            record |= {"words": words, "tags": tags}
        else:
            label = label_texts(scene, scene.labels[[i]])[0]
            record |= {"text": text[0], "label": None if label != label else label}
            record |= {"pair": text[1]} if len(text) > 1 else {}
        if scene.domains is not None:
            record["domain"] = str(scene.domains[i])
        if scene.groups is not None:
            record["group"] = str(scene.groups[i])
        yield json.dumps(record, ensure_ascii=False) + "\n"


def _tags(scene: SceneData) -> Callable[[int], list[str]] | None:
    """A function that returns the tags of a point's sentence; None if the task does not label words."""
    if scene.sources is None or scene.sources.caches[0].spec["kind"] != "sequence-labelling":
        return None
    cache, sources = scene.sources.caches[0], scene.sources
    sentence, labels = cache.word_sentence, cache.word_labels

    def of(i: int) -> list[str]:
        row = sources.example_row(0, i)
        start, stop = np.searchsorted(sentence, [row, row + 1])
        return [scene.label_names[c] for c in labels[start:stop].tolist()]

    return of


def _toml(scene: SceneData, texts: Sequence[tuple[str, ...]], at: np.ndarray, name: str, data: str) -> str:
    text = texts[int(at[0])]
    words = _tags(scene) is not None
    kind = "sequence-labelling" if words else "regression" if scene.labels.dtype.kind == "f" else "classification"
    lines = [f"# {len(at):,} examples of {scene.task} {scene.split}, selected in an explorer."]
    lines += [f"name = {json.dumps(name, ensure_ascii=False)}", f'type = "{kind}"', 'id = "id"']
    lines += ['words = "words"', 'tags = "tags"'] if words else ['text = "text"', 'label = "label"']
    if not words and len(text) - scene.tokens_unit > 1:
        lines.append('pair = "pair"')
    lines += ['domain = "domain"'] if scene.domains is not None else []
    lines += ['groups = "group"'] if scene.groups is not None else []
    if scene.label_names:
        lines.append(f"labels = {json.dumps(list(scene.label_names), ensure_ascii=False)}")
    lines += ["", "[splits]", f"{scene.split} = {json.dumps(data, ensure_ascii=False)}"]
    return "\n".join(lines) + "\n"
