"""Confusion matrices of predictions whose counts are known."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from probekit.errors import UsageError
from probekit.plots import confusion_values, plot
from probekit.plots.figure import caption_path
from probekit.rows import Result, make_rows
from probekit.statistics.predictions import Predictions

ABOUT = {"analysis": "probe", "task": "pets", "split": "dev", "model": "m", "representation": "mean",
         "estimator": "logistic", "target": "gold"}  # fmt: skip
NAMES = ("cat", "dog", "owl")
GOLD = np.array([0, 0, 0, 0, 1, 1, 2])
LAYERS = {0: [1, 1, 1, 1, 1, 1, 1], 1: [0, 0, 0, 1, 1, 1, 2], 2: [0, 0, 1, 2, 0, 1, 2], 3: [0, 0, 1, 1, 1, 0, 2]}


def result(
    layers: dict[int, Any] = LAYERS, gold: np.ndarray = GOLD, names: tuple[str, ...] = NAMES, **more: Any
) -> Result:
    """Probes of layers, a probe of shuffled labels, and the most frequent class."""
    fits = [ABOUT | {"layer": layer} for layer in layers]
    fits += [ABOUT | {"layer": 1, "target": "shuffled", "draw": 0}, ABOUT | {"representation": "none"}]
    said = np.array([*layers.values(), [0] * len(gold), [0] * len(gold)])
    ids = np.arange(len(gold)).astype(str)
    found = Predictions(fits, ids, gold, said, more.pop("metrics", ("accuracy",)), label_names=names, **more)  # type: ignore[arg-type]
    return Result(make_rows(found.fits.assign(metric="accuracy", value=np.nan, n=len(ids))), (found,))


def numbers(ax: Any) -> list[list[str]]:
    at = {text.get_position()[::-1]: text.get_text() for text in ax.texts}
    return [[at[i, j] for j in range(3)] for i in range(3)]


def test_cells_count_and_colours_are_shares_of_the_gold_class(tmp_path: Path) -> None:
    rows = tmp_path / "pets.parquet"
    saved = result().save(rows)
    figure = plot("confusion", rows, out=tmp_path / "pets.png")
    first, best, last, _ = figure.axes
    assert [ax.get_title("left") for ax in (first, best, last)] == [
        "Layer 0: Accuracy 0.286", "Layer 1: Accuracy 0.857", "Layer 3: Accuracy 0.571"]  # fmt: skip
    assert numbers(best) == [["3", "1", ""], ["", "2", ""], ["", "", "1"]]
    assert numbers(last) == [["2", "2", ""], ["1", "1", ""], ["", "", "1"]]
    shares = np.asarray(best.images[0].get_array())
    assert shares == pytest.approx(np.array([[0.75, 0.25, 0], [0, 1, 0], [0, 0, 1]]))
    assert {ax.images[0].get_clim() for ax in (first, best, last)} == {(0, 1)}
    assert [tick.get_text() for tick in first.get_yticklabels()] == list(NAMES)
    words = caption_path(tmp_path / "pets.png").read_text()
    assert words.startswith(
        "Confusion matrices: gold classes in lines, predicted ones in columns. Accuracy (pets, dev, n"
    )
    assert "Layers: the first, the best on these examples, and the last." in words
    chosen = saved.plot("confusion", layers="-2")
    assert [ax.get_title("left") for ax in chosen.axes[:1]] == ["Layer 2: Accuracy 0.571"]
    of_both = plot("confusion", rows, rows.with_suffix(".examples.parquet"), layers=("2",))
    assert len(of_both.axes) == 2, "the same predictions, once"


def test_the_most_frequent_of_many_classes_are_drawn_and_the_others_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    names = tuple(f"class {i:02}" for i in range(40))
    gold = np.repeat(np.arange(40), np.arange(40, 0, -1))
    figure = plot("confusion", result({0: np.roll(gold, 1)}, gold, names), width="column", out=tmp_path / "many.pdf")
    table = np.asarray(figure.axes[0].images[0].get_array())
    assert 5 < len(table) == table.shape[1] - 1 < 15
    assert table.sum(1) == pytest.approx(np.ones(len(table)))
    columns = [tick.get_text() for tick in figure.axes[0].get_xticklabels()]
    assert columns == [*names[: len(table)], "others"]
    out = sum(range(1, 41 - len(table)))
    assert f"{40 - len(table)} of 40 classes, the rarest, with {out} of 820 examples" in caplog.text


def test_tags_count_by_type_in_alphabetical_order() -> None:
    names, sentences = ("O", "B-PER", "I-PER", "B-LOC"), np.zeros(5, dtype=np.int64)
    found = result(
        {0: [0, 1, 1, 3, 2]}, np.array([0, 1, 2, 3, 0]), names, metrics=("span-f1", "accuracy"), groups=sentences
    )
    values = confusion_values(found)
    assert list(dict.fromkeys(values["gold"])) == ["LOC", "PER", "O"]
    assert values["count"].to_numpy().reshape(3, 3).tolist() == [[1, 0, 0], [0, 2, 0], [0, 1, 1]]


def test_what_has_no_classes_is_refused(tmp_path: Path) -> None:
    numbered = result({0: [0.5] * 7}, GOLD.astype(float), metrics=("pearson",))
    with pytest.raises(UsageError, match="needs one class, or tag, for each example"):
        confusion_values(numbered)
    with pytest.raises(UsageError, match="the probe has no layer '9'; it has 0, 1, 2, 3"):
        confusion_values(result(), layers=("9",))
    with pytest.raises(UsageError, match="holds no predictions; give the result"):
        confusion_values(result().rows)
