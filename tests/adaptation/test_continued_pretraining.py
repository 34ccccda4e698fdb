"""Training a language model further on other text: its start, its head, its perplexity before, and what follows."""

import json

import numpy as np
import pytest
from lessons import SHORT, Stop, praise, stopping
from safetensors.numpy import load_file

import probekit
from probekit.adaptation.train import train
from probekit.cli import main
from probekit.errors import ModelError, UsageError

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
CONFIGS = {
    "causal-lm": {"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 32},
    "masked-lm": {"model_type": "bert", **SMALL, "max_position_embeddings": 40},
}
QUICK = {"context": 16, "batch_size": 8, "epochs": 0.5, "evaluate_every": 3}


def sentences(words, n, seed=0):
    draw = np.random.default_rng(seed)
    return "".join("the " + " ".join(draw.choice(words, size=int(draw.integers(3, 8)))) + ".\n" for _ in range(n))


@pytest.fixture(scope="module", params=["masked-lm", pytest.param("causal-lm", marks=pytest.mark.slow)])
def place(request, tmp_path_factory):
    """Texts of two domains, and a model of the first."""
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "first.txt").write_text(sentences("cat dog bird sees likes hears".split(), 300))
    (folder / "second.txt").write_text(sentences("river tree house grows falls stands".split(), 300))
    (folder / "config.json").write_text(json.dumps(CONFIGS[request.param]))
    given = {"objective": request.param, "config": str(folder / "config.json"), "tokenizer": "train:300"}
    probekit.pretrain(folder / "first.txt", folder / "model", **QUICK | given | {"epochs": 2, "learning_rate": 3e-3})
    return folder, request.param


def further(place, out, **options):
    folder, objective = place
    given = {"model": str(folder / "model"), "objective": objective, "learning_rate": 3e-3}
    return probekit.pretrain(folder / "second.txt", folder / out, **QUICK | given | options)


@pytest.mark.slow
def test_a_model_is_adapted_to_a_domain_and_resumes(place):
    folder, _ = place
    run = further(place, "whole")
    before, after = run.card["before"], run.metrics
    assert after["perplexity"] < 0.8 * before["perplexity"]
    rows = run.rows[(run.rows["metric"] == "perplexity") & (run.rows["step"] == 0)]
    assert rows["value"].tolist() == [before["perplexity"]]

    with pytest.raises(Stop):
        further(place, "part", progress=stopping(5))
    again = further(place, "part")
    one, two = (load_file(path / "model.safetensors") for path in (run.path, again.path))
    assert all(np.array_equal(one[name], two[name]) for name in one)
    assert again.card["before"] == before
    forgotten = probekit.pretrain(
        folder / "first.txt", folder / "back", model=str(run.path), objective=place[1], **QUICK | {"epochs": 0.01}
    ).card["before"]
    known = probekit.pretrain(
        folder / "first.txt",
        folder / "same",
        model=str(folder / "model"),
        objective=place[1],
        **QUICK | {"epochs": 0.01},
    ).card["before"]
    assert forgotten["perplexity"] > known["perplexity"]  # of the text that it knew before


def test_the_folder_starts_a_training(place, tmp_path):
    run = further(place, "whole")
    assert np.isfinite(train(praise(), run.path, tmp_path / "run", **SHORT).metrics["loss"])
    assert run.card["encoder"] if "encoder" in run.card else run.card["continued"]


def test_refused(place):
    _, objective = place
    with pytest.raises(UsageError, match="has its own config"):
        further(place, "bad", config="gpt2-mini")
    with pytest.raises(UsageError, match="has its own tokenizer"):
        further(place, "bad", tokenizer="train:500")
    if objective == "masked-lm":
        with pytest.raises(UsageError, match="reads the words on both sides"):
            further(place, "bad", objective="causal-lm")
    else:
        with pytest.raises((UsageError, ModelError), match=r"no piece for masks|cannot be trained by masked-lm"):
            further(place, "bad", objective="masked-lm")
        with pytest.raises(UsageError, match="reads at most 32"):
            further(place, "bad", context=64)
        with pytest.raises(UsageError, match="holds another run"):
            further(place, "model")


def test_a_model_without_a_head_gets_a_new_one_and_says_so(place, tiny_bert, caplog, tmp_path):
    folder, objective = place
    if objective == "masked-lm":
        probekit.pretrain(folder / "second.txt", tmp_path / "run", model=str(tiny_bert), objective=objective, **QUICK)
        assert any("has no head for masked-lm" in message for message in caplog.messages)


def test_the_command_takes_the_names_of_objectives(place, capsys):
    folder, objective = place
    words = [
        "pretrain",
        "--model",
        str(folder / "model"),
        "--objective",
        objective,
        "--text",
        str(folder / "second.txt"),
    ]
    more = ["--context", "16", "--epochs", "0.05", "--device", "cpu", "--out", str(folder / "command")]
    assert main([*words, *more]) == 0
    assert "before the training: perplexity" in capsys.readouterr().out
