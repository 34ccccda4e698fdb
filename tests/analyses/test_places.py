"""``probekit places``: from names to kilometres, on caches of a tiny model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import probekit
from probekit.analyses.places import PlaceOptions
from probekit.analyses.places.measure import Errors, difference_rows
from probekit.errors import CacheMismatch, UsageError

WORDS = "cat dog bird child teacher sleeps runs sees".split()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("places")
    lines = ["name,latitude,longitude,entity_type,is_test"]
    for i in range(90):
        west = i % 2
        words = " ".join(rng.choice(WORDS[4 * west : 4 * west + 4], size=4))
        place = f"{10 + 40 * west + rng.normal():.3f},{-170 + 300 * west + rng.normal():.3f}"
        lines.append(f"{words},{place},city,{i >= 60}")
    (folder / "world_place.csv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def caches(tiny_bert: Path, folder: Path) -> list[Path]:
    both = "world-places:latitude+world-places:longitude"
    return [
        probekit.cache_activations(tiny_bert, both, split, data_dir=folder, out=folder / f"{split}.h5").path
        for split in ("train", "test")
    ]


def test_places_of_words_are_found(caches: list[Path], folder: Path) -> None:
    how = {"task": "world-places", "data_dir": folder, "controls": 2, "resamples": 200, "layers": (0, 1)}
    result = probekit.places(*caches, **how)
    rows = result.rows
    mean = rows[rows["metric"] == "great-circle-error"]
    gold = mean[(mean["target"] == "gold") & mean["layer"].notna()]
    assert gold["layer"].tolist() == [0, 1]
    middle = mean[mean["estimator"] == "centroid"].iloc[0]
    assert (gold["ci_high"] < middle["ci_low"]).all()
    assert (mean.loc[mean["target"] == "shuffled", "value"] > gold["value"].max()).all()
    r2 = rows[(rows["metric"] == "r2") & (rows["target"] == "gold") & rows["layer"].notna()]
    assert set(r2["coordinate"]) == {"latitude", "longitude"}
    assert (r2["value"] > 0.5).all()
    assert "below the middle of train" in result.verdict[0]
    less = rows[rows["metric"] == "difference(great-circle-error)"]
    assert less["against"].tolist() == ["centroid", "centroid", "layer 0"]
    found = less["value"].to_numpy()[:2]
    np.testing.assert_allclose(found, gold["value"].to_numpy() - middle["value"], rtol=1e-9)
    assert (less["ci_high"][:2] < 0).all()
    assert (less["p_adjusted"][:2] < 0.05).all()
    assert probekit.places(*caches, **how).rows["value"].equals(rows["value"])


def test_bad_input_is_refused(caches: list[Path], folder: Path, tiny_bert: Path) -> None:
    with pytest.raises(UsageError, match="in pairs"):
        probekit.places(*caches, caches[0], task="world-places", data_dir=folder)
    with pytest.raises(UsageError, match="unknown task"):
        probekit.places(*caches, task="worldplaces-x", data_dir=folder)
    one = probekit.cache_activations(
        tiny_bert, "world-places:latitude", "test", data_dir=folder, out=folder / "latitude.h5"
    ).path
    with pytest.raises(CacheMismatch):
        probekit.places(caches[0], one, task="world-places", data_dir=folder)


def test_r2_of_a_probe(caches: list[Path], folder: Path) -> None:
    rows = probekit.probe(
        *caches, task="world-places:latitude", data_dir=folder, layers=(1,), controls=0, resamples=200
    ).rows
    found = rows[(rows["metric"] == "r2") & (rows["estimator"] == "ridge") & (rows["target"] == "gold")].iloc[0]
    assert found["ci_low"] < found["value"] < found["ci_high"]
    assert "mean-absolute-error" in set(rows["metric"])


def test_few_countries_have_no_interval_of_a_difference() -> None:
    rng = np.random.default_rng(0)
    near, far = rng.uniform(10, 20, 80), rng.uniform(50, 60, 80)
    for countries in (7, 8):
        errors = Errors({None: ({}, far), "0": ({}, near)}, np.arange(80), np.arange(80) % countries)
        [row] = difference_rows(errors, None, PlaceOptions())
        assert np.isfinite([row["ci_low"], row["p_adjusted"]]).tolist() == [countries == 8] * 2
        assert row["why"] == ("" if countries == 8 else "7 examples or groups; intervals need at least 8")
