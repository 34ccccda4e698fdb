"""``probekit directions``: from two models of the same examples to rows, sentences, a table and figures."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import word_caches

import probekit
from probekit.activations import ActivationCache
from probekit.analyses.directions import DirectionsOptions
from probekit.analyses.directions.rows import UNRELATED, Data, Layer, Way, rows_of
from probekit.analyses.directions.sentences import sentences
from probekit.errors import UsageError
from probekit.probes.directions import After, Side, fit
from probekit.probes.protocol.options import Estimator
from probekit.rows import Result

QUICK: dict[str, Any] = {"resamples": 100, "layers": (1, 2), "penalties": (0.01, 0.1), "groups": "none", "margin": 0.1}


@pytest.fixture(scope="module")
def caches(tiny_model: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, ...]]:
    folder, bert = tmp_path_factory.mktemp("directions"), tiny_model("bert")
    kinds: dict[str, dict[str, Any]] = {
        "one": {}, "other": {"random_weights": 3}, "numbers": {"kind": "regression"},
        "numbers-other": {"kind": "regression", "random_weights": 3},
    }  # fmt: skip
    return {name: word_caches(folder, bert, name=name, **own) for name, own in kinds.items()}


@pytest.fixture
def changed(caches: dict[str, tuple[Path, ...]], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Measure with vectors of the other model that are those of the first, changed."""
    plain, vectors = ActivationCache.layer, dict[tuple[str, str], np.ndarray]()
    for path in caches["one"]:
        with ActivationCache(path) as cache:
            vectors |= {(cache.spec["split"], name): np.array(plain(cache, name)) for name in cache.layers}

    def measured(change: Callable[[np.ndarray], np.ndarray], **options: Any) -> Result:
        def layer(self: ActivationCache, name: int | str, pooling: str | None = None) -> Any:
            if self.spec.get("random_weights") is None:
                return plain(self, name, pooling)
            return change(vectors[self.spec["split"], str(name)]).astype(np.float32)

        monkeypatch.setattr(ActivationCache, "layer", layer)
        return probekit.directions(*caches["one"], *caches["other"], **{**QUICK, **options})

    return measured


def lost(result: Result, after: str, way: str = "both") -> list[float]:
    rows = result.rows
    at = (rows["metric"] == "difference(accuracy)") & (rows["way"] == way)
    return rows.loc[at & (rows["after"] == "native") & (rows["against"] == after), "value"].tolist()


def value(result: Result, after: str, way: str) -> list[float]:
    rows = result.rows
    at = (rows["metric"] == "accuracy") & (rows["way"] == way) & (rows["after"] == after) & (rows["target"] == "gold")
    return rows.loc[at & (rows["fitted_layer"] == rows["layer"].astype(str)), "value"].tolist()


def test_the_same_vectors_are_kept(changed: Callable[..., Result]) -> None:
    found = changed(lambda x: x)
    assert lost(found, "as is") == lost(found, "rescaled") == [0, 0]
    assert "layers 1 and 2: direction kept, transfer loses .000" in found.verdict[0]
    little = found.rows.assign(null_mean=found.rows["value"] - 0.09)
    [said] = sentences(little, ())
    assert "the native probes do not beat permuted labels by more than the margin" in said, "nothing to lose"
    rows = found.rows[(found.rows["metric"] == "direction-angle") & (found.rows["after"] == "as is")]
    assert (rows["value"] == 0).all()
    assert (rows["within_halves"] == rows["across_halves"]).all()
    assert (rows["within_halves"] > 1).all()


def test_a_stretch_is_only_rescaled_and_a_rotation_is_moved(changed: Callable[..., Result]) -> None:
    def stretched(x: np.ndarray) -> np.ndarray:
        return (x + 2) * np.exp2(np.arange(x.shape[1]) % 5 - 2)  # type: ignore[no-any-return]

    found = changed(stretched)
    assert value(found, "rescaled", "forward") == value(found, "native", "back"), "the same probe on the same vectors"
    assert min(lost(found, "as is")) > 0.1
    assert "layers 1 and 2: only rescaled" in found.verdict[0]
    found = changed(lambda x: x @ np.linalg.qr(np.random.default_rng(1).normal(size=(x.shape[1],) * 2))[0])
    assert value(found, "mapped", "forward") == value(found, "native", "back")
    assert min(lost(found, "rescaled")) > 0.1
    assert "layers 1 and 2: moved, an orthogonal map brings" in found.verdict[0]
    unrelated = found.rows[found.rows["target"] == UNRELATED]
    assert len(unrelated) == 2 * DirectionsOptions().draws
    assert unrelated["value"].max() < min(value(found, "mapped", "both"))


def test_rows_in_another_order_say_nothing(changed: Callable[..., Result]) -> None:
    """The control that must fail: vectors that do not belong to the labels have nothing to lose."""
    found = changed(lambda x: x[np.random.default_rng(len(x)).permutation(len(x))])
    assert ": moved" not in found.verdict[0]
    assert "cannot tell, the native probes of bert, random weights 3 do not beat permuted labels" in found.verdict[0]
    assert max(value(found, "mapped", "forward")) < 0.65 < min(value(found, "native", "back"))


def with_losses(result: Result, after: str, **ways: tuple[float, float]) -> str:
    """The sentence if the loss of each of these ways is between these numbers."""
    rows, loss = result.rows.copy(), ["value", "joint_low", "joint_high"]
    for way, (low, high) in ways.items():
        at = (rows["after"] == "native") & (rows["against"] == after) & (rows["way"] == way)
        rows.loc[at, loss] = (low + high) / 2, low, high
    [said] = sentences(rows, ())
    return said


def test_the_mean_of_both_ways_hides_no_loss(changed: Callable[..., Result]) -> None:
    found = changed(lambda x: x)
    said = with_losses(found, "as is", forward=(0.01, 0.05), back=(-0.05, -0.01))
    assert "direction kept, transfer loses .000 [" in said
    assert "], forward .030 [.010, .050] and back -.030 [-.050, -.010]" in said
    said = with_losses(found, "as is", forward=(0.11, 0.15), back=(-0.15, -0.11))
    assert "cannot tell whether anything moved" in said
    assert "forward .130 [.110, .150] and back -.130 [-.150, -.110]" in said


def test_no_map_brings_back_more_than_was_lost(changed: Callable[..., Result]) -> None:
    found = changed(lambda x: x @ np.linalg.qr(np.random.default_rng(1).normal(size=(x.shape[1],) * 2))[0])
    said = with_losses(found, "mapped", both=(-0.09, -0.01))
    assert ", and probes read better after it than the native ones do, rescaling" in said
    brought, whole = re.search(r"an orthogonal map brings (.*) of (.*) back, and", said).groups()  # type: ignore[union-attr]
    assert brought == whole


def test_to_swap_the_vectors_of_all_examples_turns_every_loss_around() -> None:
    rng, n = np.random.default_rng(0), 60
    y, fold = np.arange(n) % 2, np.arange(n) // 2 % 3

    def side(shift: float) -> Side:
        x, x_dev = (rng.normal(size=(n, 4)) + np.outer(2 * y - 1, [1, shift, 0, 0]) for _ in range(2))
        return Side(x, x_dev, fit(x.astype(np.float32), y, 2, fold, fold % 2, Estimator.LOGISTIC, (0.1,)))

    one, other = side(1), side(-1)
    swapped = Side(one.x, other.x_dev, one.fit), Side(other.x, one.x_dev, other.fit)
    data, options = Data(y, None, 2, n), DirectionsOptions(resamples=100)
    values = []
    for pair in ((one, other), swapped):
        rows = rows_of({"1": Layer.of(*pair, data)}, data, "accuracy", options)
        values.append(next(
            row for row in rows
            if (row["way"], row["after"], row.get("against")) == (Way.BOTH, After.NATIVE, After.AS_IS)
        ))  # fmt: skip
    assert values[0]["value"] == pytest.approx(-values[1]["value"])
    assert values[0]["value"] != 0


def test_numbers_have_a_mean_over_both_ways(caches: dict[str, tuple[Path, ...]]) -> None:
    rows = probekit.directions(*caches["numbers"], *caches["numbers-other"], **{**QUICK, "penalties": None}).rows
    assert set(rows["estimator"]) == {"ridge"}
    at = rows[(rows["metric"] == "pearson") & (rows["target"] == "gold") & (rows["layer"] == 1)]
    at = at[at["fitted_layer"] == "1"].set_index(["way", "after"])["value"]
    for after in ("native", "as is", "rescaled", "mapped"):
        assert at["both", after] == pytest.approx((at["forward", after] + at["back", after]) / 2)


def test_tests_are_of_both_ways_and_corrected_over_layers(caches: dict[str, tuple[Path, ...]]) -> None:
    result = probekit.directions(*caches["one"], *caches["other"], **QUICK)
    rows = result.rows[result.rows["metric"] == "difference(accuracy)"]
    both = rows["way"] == "both"
    assert rows.loc[~both, "p"].isna().all()
    assert rows.loc[both, "p_adjusted"].between(0, 1).all()
    assert (rows.loc[both, "p"] <= rows.loc[both, "p_adjusted"] + 1e-9).all()
    assert rows["ci_low"].notna().all()
    cells = result.rows[(result.rows["metric"] == "accuracy") & (result.rows["way"] == "forward")]
    assert len(cells[cells["after"] == "mapped"]) == 4, "layers by layers"
    again = probekit.directions(*caches["one"], *caches["other"], **QUICK)
    assert again.rows.equals(result.rows)
    few = probekit.directions(*caches["one"], *caches["other"], **QUICK, other_layers=False, draws=0).rows
    assert (few["fitted_layer"] == few["layer"].astype(str)).all()
    assert UNRELATED not in set(few["target"])
    silent = probekit.directions(*caches["one"], *caches["other"], **{**QUICK, "resamples": 0})
    assert "and back were not tested (resamples = 0)" in silent.verdict[0]


def test_command_table_and_figures(caches: dict[str, tuple[Path, ...]], tmp_path: Path, call: Any) -> None:
    out = tmp_path / "d.parquet"
    done = call("directions", *caches["one"], *caches["other"], "--resamples", "100", "--layers", "1,2", "--out", out)
    assert done.status == 0, done.err
    assert "lost as is" in done.out
    assert "and back: " in " ".join(done.out.split())
    for more in ((), ("--matrix", "mapped"), ("--metric", "direction-angle")):
        figure = tmp_path / "f.pdf"
        assert call("plot", "directions", out, *more, "--out", figure).status == 0
        words = figure.with_suffix(".caption.txt").read_text()
        assert ("the layer of the other model that it reads" in words) == ("--matrix" in more)
        assert ("random directions" in words) == ("--metric" in more)
        figure.unlink()
        figure.with_suffix(".caption.txt").unlink()


@pytest.mark.parametrize(
    ("which", "options", "message"),
    [
        (("one",), {}, "directions needs the pair of a reference and that of another model"),
        (("one", "one"), {}, "is given twice; give each cache once"),
        (("one", "numbers"), {}, "are not the same examples|differ"),
        (("one", "other"), {"metric": "auroc"}, "directions measures predictions, such as accuracy or pearson"),
        (("one", "other"), {"metric": "accurate"}, "accuracy"),
        (("numbers", "numbers-other"), {"metric": "rmse"}, "rmse is an error in units of the labels.*such as pearson"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    caches: dict[str, tuple[Path, ...]], which: tuple[str, ...], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        probekit.directions(*(path for name in which for path in caches[name]), **QUICK, **options)
