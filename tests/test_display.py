"""Names that figures, tables, reports and verdicts show."""

import pytest

from probekit.display import MODELS, shown_label, shown_model
from probekit.plots.look import Look
from probekit.rows import make_rows
from probekit.rows.schema import called, identified


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("sentence-transformers/all-MiniLM-L6-v2", "MiniLM"),
        ("all-MiniLM-L6-v2", "MiniLM"),
        ("google-bert/bert-base-uncased", "BERT-base (uncased)"),
        ("someone/my-bert-base-uncased", "my-bert-base-uncased"),
        ("runs/cola/step-100/", "step-100"),
        ("", ""),
    ],
)
def test_models(name, shown):
    assert shown_model(name) == shown
    assert shown_model(shown) == shown


def test_labels_change_whole_parts_only():
    assert shown_label("bert-base-uncased, fine-tuned") == "BERT-base (uncased), fine-tuned"
    assert shown_label("my bert-base-uncased, gpt2") == "my bert-base-uncased, GPT-2"
    assert shown_label("sentence-transformers/all-MiniLM-L6-v2, my/model") == "MiniLM, my/model"
    assert not set(MODELS.values()) & set(MODELS)  # shown twice is shown once


@pytest.mark.parametrize(
    ("row", "name"),
    [
        ({"checkpoint": "random-42"}, "m, random weights 42"),
        ({"checkpoint": "random-42", "random_weights": 42}, "m, random weights 42"),
        ({"checkpoint": "random-42", "random_weights": None}, "m, run random-42"),
        ({"checkpoint": "random-42", "regime": "fine-tune"}, "m, fine-tuned, run random-42"),
        ({"checkpoint": "random-42", "step": 7}, "m, run random-42, step 7"),
        ({"checkpoint": "a", "regime": "fine-tune", "step": 7}, "m, fine-tuned, run a, step 7"),
        ({"checkpoint": "a", "regime": "fine-tune", "step": 0}, "m, before training, run a, step 0"),
    ],
)
def test_a_model_is_called_what_its_columns_say(row, name):
    """A run may have the name of random weights; at step 0 nothing is fine-tuned."""
    assert shown_label(called({"model": "m", **row})) == name


def test_a_step_is_of_a_run_not_of_random_weights():
    other = identified({"model": "bert-base-uncased", "checkpoint": "random-42", "step": 0})
    assert shown_label(other) == Look().shown(other) == "BERT-base (uncased), random-42, step 0"


def test_names_that_are_given_win():
    """By the name in the rows, or by the one that is shown."""
    assert Look().shown("all-MiniLM-L6-v2, random-0") == "MiniLM, random weights"
    assert Look({"all-MiniLM-L6-v2": "M"}).shown("all-MiniLM-L6-v2, random-0") == "M, random weights"
    look = Look({"MiniLM": "M"})
    assert look.shown("all-MiniLM-L6-v2, random-0") == "M, random weights"
    look.check()


def test_verdicts_call_models_alike_and_rows_keep_their_names():
    from probekit.analyses.verdict.curves import curves_of, names

    rows = make_rows(
        {
            "analysis": "probe", "task": "cola", "split": "dev", "model": model, "representation": "mean",
            "estimator": "logistic", "target": "gold", "metric": "accuracy", "value": 0.5, "n": 9, "layer": layer,
        }
        for model in ("google-bert/bert-base-uncased", "runs/mine")
        for layer in (0, 1)
    )  # fmt: skip
    assert names(curves_of(rows)) == ["BERT-base (uncased): ", "mine: "]
    assert set(rows["model"]) == {"google-bert/bert-base-uncased", "runs/mine"}
