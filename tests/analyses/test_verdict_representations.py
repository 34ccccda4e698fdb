"""Sentences on similarity, movement and geometry say what the numbers bear, and no more."""

import numpy as np
import pandas as pd
import pytest

from probekit.analyses.verdict import sentences
from probekit.rows import make_rows

PLACE = {"task": "toy", "split": "dev", "representation": "mean", "estimator": "", "target": "gold", "n": 100}


def similar(values, p=0.001, *, metric="cka", step=9, itself=False, same_only=False, run="run", start="", far=0.3):
    """Two states of a model: the same layers have these values, others .3."""
    records = []
    for i, j in np.ndindex(len(values), len(values)):
        if same_only and i != j:
            continue
        ps = p if np.isscalar(p) else p[i]
        records.append(
            PLACE
            | {"analysis": "similarity", "model": "m", "checkpoint": start, "step": None, "metric": metric}
            | {"model_b": "m", "checkpoint_b": "" if itself else run, "step_b": None if itself else step}
            | {"representation_b": "mean", "regime_b": "" if itself else "fine-tune", "layer": i, "site": "resid_post"}
            | {"layer_b": j, "site_b": "resid_post", "value": values[i] if i == j else far, "p": ps, "p_adjusted": ps}
            | {"ci_low": np.nan, "ci_high": np.nan}
        )
    rows = make_rows(records)
    rows["step_b"] = rows["step_b"].astype("Int64")
    return rows


def test_similarity_names_the_ends_and_what_beats_chance():
    assert sentences(similar([1, 0.9, 0.2])) == (
        "toy: m and m (fine-tuned) at step 9: layer 0 has the largest same-layer value (CKA 1.000), layer 2 the "
        "smallest (.200); all 3 "
        "same-layer pairs are more alike than chance (p adjusted over 9 pairs of layers ≤ .001).",
    )
    [text] = sentences(similar([1, 0.9, 0.2], p=[0.001, 0.01, 0.4]))
    assert text.endswith("2 of 3 same-layer pairs are more alike than chance, not layer 2 (p adjusted over 9 pairs of "
                         "layers ≤ .010).")  # fmt: skip
    [text] = sentences(similar([0.1, 0.1], p=0.3))
    assert "none of the 2 same-layer pairs is shown to be more alike than chance" in text
    [text] = sentences(similar([0.1, 0.1], p=np.nan))
    assert text.endswith("whether that is more than chance was not tested.")


def test_a_distance_is_small_where_layers_are_alike():
    [text] = sentences(similar([0.1, 1.2], metric="procrustes-angle"))
    assert "layer 0 has the smallest same-layer value (procrustes-angle .100), layer 1 the largest (1.200)" in text


def test_two_layers_that_are_more_alike_than_any_same_layers_are_named():
    [text] = sentences(similar([0.4, 0.5], far=0.9))
    assert "(.400); of all pairs, layers 0 and 1 have the largest (.900); all 2" in text
    assert "of all pairs" not in sentences(similar([0.4, 0.5], far=0.3))[0]


def test_runs_are_told_apart_by_their_names():
    tuned, shuffled = sentences(pd.concat([similar([1, 0.9], run="tuned"), similar([1, 0.9], run="shuffled")]))
    assert tuned.startswith("toy: m and m (fine-tuned, run tuned) at step 9: ")
    assert shuffled.startswith("toy: m and m (fine-tuned, run shuffled) at step 9: ")
    other = sentences(pd.concat([similar([1, 0.9], run="tuned"), similar([1, 0.9], run="shuffled", step=20)]))[1]
    assert other.startswith("toy: m and m (fine-tuned, run shuffled) at step 20: ")


def test_models_in_folders_of_one_name_are_told_apart_by_their_paths():
    one, two = similar([1, 0.9]).assign(model_b="a/best"), similar([1, 0.9]).assign(model_b="b/best")
    assert [text.split(":")[1] for text in sentences(pd.concat([one, two]))] == [
        " m and a/best (fine-tuned, run run) at step 9", " m and b/best (fine-tuned, run run) at step 9",
    ]  # fmt: skip
    assert sentences(one)[0].startswith("toy: m and best (fine-tuned) at step 9: ")
    poolings = similar([1, 0.9], itself=True).assign(representation_b="first")
    assert sentences(poolings)[0].startswith("toy: m, mean and m, first: layer 0 has the largest same-layer value")


def test_all_pairs_of_four_models_are_summarised():
    runs = ["a", "b", "c", "d"]
    pairs = [(x, y) for i, x in enumerate(runs) for y in runs[i + 1 :]]
    every = pd.concat([similar([0.9 - 0.1 * i, 0.5], start=x, run=y) for i, (x, y) in enumerate(pairs)])
    assert sentences(every) == (
        "toy: of 6 pairs of models m (a) and m (fine-tuned, run b) at step 9 have the largest mean CKA of the same "
        "layers (.700), m (c) and m (fine-tuned, run d) at step 9 the smallest (.450); all 12 same-layer pairs are "
        "more alike than chance (p adjusted over 24 pairs of layers ≤ .001).",
    )


def test_the_last_of_many_checkpoints():
    two = pd.concat([similar([1, 0.9], p=0.03), similar([1, 0.9], p=0.03, step=20)])
    assert all("all 2" in text and "over 8 pairs of layers ≤ .030" in text for text in sentences(two))
    many = pd.concat([similar([1, 0.9], step=step) for step in range(1, 8)])
    [text] = sentences(many)
    assert text.startswith("toy: the last of 7 pairs, m and m (fine-tuned) at step 7: ")


def test_one_model_with_itself():
    rows = similar([1, 1, 1], itself=True)
    rows.loc[(rows["layer"] == 1) & (rows["layer_b"] == 2), "value"] = 0.7
    assert sentences(rows) == (
        "toy: m: of neighbouring layers 1 and 2 have the largest value (CKA .700), 0 and 1 the smallest (.300).",
    )


def test_undefined_similarity_is_said():
    [text] = sentences(similar([np.nan, 0.5]))
    assert "layer 1 has a same-layer CKA of .500; it is more alike than chance" in text
    rows = similar([np.nan, np.nan], same_only=True)
    assert sentences(rows) == ("toy: m and m (fine-tuned) at step 9: CKA is undefined for all pairs of layers.",)
    rows = similar([np.nan, np.nan], itself=True, far=np.nan)
    assert sentences(rows) == ("toy: m: CKA is undefined for all pairs of layers.",)


def moved(values, *, label="", metric="relative-distance", p=None, others=1.4):
    return make_rows(
        PLACE
        | {"analysis": "movement", "model": "m", "checkpoint": "run", "step": 5, "metric": metric, "layer": i}
        | {"value": v, "ci_low": v - 0.01, "ci_high": v + 0.01, "others": others, "against": "m", "label": label}
        | {"example": "", "p_adjusted": p[i] if isinstance(p, list) else p}
        for i, v in enumerate(values)
    )


def test_one_layer_has_one_value():
    assert sentences(similar([0.5])) == (
        "toy: m and m (fine-tuned) at step 9: layer 0 has a same-layer CKA of .500; it is more alike than chance "
        "(p = .001).",
    )
    assert sentences(moved([0.5])) == (
        "toy: the relative distance of layer 0 is .500 [.490, .510] (other examples are 1.400 away).",
    )
    rows = moved([0.4], metric="mean-cosine").assign(analysis="geometry")
    assert sentences(rows) == ("toy: mean cosine .400 [.390, .410] (layer 0).",)


def test_movement_and_its_labels():
    rows = moved([0.1, 0.5])
    assert sentences(rows) == (
        "toy: by relative distance layer 1 moved most (.500 [.490, .510]; other examples are 1.400 away), layer 0 "
        "least (.100 [.090, .110]).",
    )
    tested = {"label": "yes", "metric": "difference(relative-distance)"}
    [text] = sentences(pd.concat([rows, moved([0.1, 0.2], p=0.01, **tested)]))
    how = "(difference .200 [.190, .210] in layer 1, p adjusted ≤ .010)."
    assert text.endswith(f"; the class 'yes' moved further than the others in layers 0 and 1 {how}")
    [text] = sentences(pd.concat([rows, moved([0.1, -0.2], p=0.01, **tested)]))
    assert (
        "the class 'yes' moved further than the others in layer 0 (difference .100 [.090, .110], p adjusted .010)"
        in text
    )
    assert (
        "the class 'yes' moved less far than the others in layer 1 (difference -.200 [-.210, -.190], p adjusted .010)"
        in text
    )
    [text] = sentences(pd.concat([rows, moved([0.1, 0.2], p=0.2, **tested)]))
    assert text.endswith("; no label is shown to move differently (p adjusted ≥ .20).")
    yes = moved([0.1, 0.2], p=0.01, **tested)
    aligned = moved([-0.1, -0.2], p=[0.04, 0.2], label="yes", metric="difference(aligned-distance)")
    [text] = sentences(pd.concat([rows, yes, aligned]))
    assert text.endswith("p adjusted ≤ .010), but less far by distance after shift and rotation in layer 0 (p adjusted "
                         ".040).")  # fmt: skip
    note = "326 examples are too few to estimate a rotation"
    [text] = sentences(pd.concat([rows, yes.assign(note=""), aligned.assign(note=note)]))
    assert text.endswith("p adjusted ≤ .010).")
    assert "rotation" not in text
    assert sentences(moved([0.1, 0.2], metric="aligned-distance").assign(note=note))[0].endswith(f"; {note}.")
    assert "no distance is defined" in sentences(moved([np.nan, np.nan]))[0]


@pytest.mark.parametrize("metric", ["participation-ratio", "intrinsic-dimension", "mean-cosine"])
def test_geometry_names_both_ends(metric):
    rows = moved([0.4, 0.2, 0.9], metric=metric).assign(analysis="geometry")
    [text] = sentences(rows)
    low, high = (
        ("0.2 [0.2, 0.2]", "0.9 [0.9, 0.9]") if metric != "mean-cosine" else (".200 [.190, .210]", ".900 [.890, .910]")
    )
    assert text == f"toy: {metric.replace('-', ' ')} from {low} (layer 1) to {high} (layer 2)."
