"""Pretraining a shared encoder: losses against a plain loop, mixtures, resuming to the same bytes, and bad input."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from plain_bilstm import Plain
from safetensors.torch import load_file
from torch import nn
from transformers import AutoModel

import probekit
from probekit.adaptation.data.batches import Batches
from probekit.adaptation.data.text import TextData
from probekit.adaptation.mixtures import Mixture
from probekit.adaptation.pretraining.mixture_loop import _ends, _rate, order_seed
from probekit.adaptation.pretraining.objectives import Encoded, _Asked, make_objective
from probekit.adaptation.pretraining.options import EncoderOptions
from probekit.adaptation.pretraining.sequences import UNKNOWN, Outputs, Types
from probekit.cli import main
from probekit.errors import DataError, NonFiniteError, UsageError
from probekit.models import load_encoder
from probekit.models.loading import text_reader
from probekit.models.new import new_encoder
from probekit.runtime import no_progress

WORDS = ("cat", "dog", "man", "bird", "sees", "likes", "hears", "tree", "house", "river", "old", "small")
BILSTM = {
    "model_type": "bilstm", "input": "words", "cells": 12, "embedding_size": 10, "directions": "separate",
    "dropout": 0.0,
}  # fmt: skip
QUICK = {"steps": 12, "evaluate_every": 3, "batch_size": 8, "hidden_size": 16, "outputs": 200, "dev_limit": 24}


def sentences(n: int, seed: int = 0) -> list[str]:
    draw = np.random.default_rng(seed)
    return ["the " + " ".join(draw.choice(WORDS, size=int(draw.integers(3, 8)))) + "." for _ in range(n)]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Books, a parallel corpus, and an untrained encoder."""
    folder = tmp_path_factory.mktemp("pretrain-encoder")
    (folder / "books.txt").write_text("\n".join(sentences(400)) + "\n")
    (folder / "a.en").write_text("\n".join(sentences(200, 1)) + "\n")
    (folder / "a.de").write_text("\n".join(" ".join(s.split()[::-1]) for s in sentences(200, 1)) + "\n")
    clauses = [f"the {a} sees.\tthe {b} hears.\t{m}" for a in WORDS for b in WORDS for m in ("because", "but")]
    (folder / "clauses.tsv").write_text("\n".join(["sentence1\tsentence2\tmarker", *clauses]) + "\n")
    (folder / "words.txt").write_text("\n".join(["the", ".", *WORDS]) + "\n")
    new_encoder(BILSTM, folder / "bilstm", vocabulary=folder / "words.txt", seed=0)
    return folder


def pretrain(folder: Path, on, out: str, **options):
    return probekit.pretrain_encoder(
        folder / "bilstm", on, folder / out, **{"data_dir": folder, **QUICK, **options}
    )  # fmt: skip


def weights(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in ("model.safetensors", "head.safetensors", "config.json")}


EVERY = (
    "language-model:books.txt", "translate:a.en+a.de", "skip-thought:books.txt", "reply:a.en+a.de", "denoise:books.txt",
    "next-sentence:books.txt", "dissent:clauses.tsv", "respond:a.en+a.de", "contrast:a.en+a.de", "grammar:sentiment",
    "grammar:paraphrase", "grammar:similarity",
)  # fmt: skip


@pytest.fixture(scope="module")
def mixed(place):
    """A run on every kind of objective."""
    return pretrain(place, EVERY, "mixed", steps=44, evaluate_every=2)


def test_every_objective_in_one_encoder(mixed, place):
    card = mixed.card
    assert [one["objective"] for one in card["objectives"]] == list(EVERY)
    assert math.isclose(sum(one["probability"] for one in card["objectives"]), 1)
    assert set(mixed.metrics) == {*EVERY, "macro-average"}
    assert all(np.isfinite(list(mixed.metrics.values())))
    kept = mixed.rows[mixed.rows.kept & mixed.rows.headline]
    assert sorted(kept.task) == sorted(EVERY)
    falling = {one["objective"] for one in card["objectives"] if one["metric"] == "perplexity"}
    values = [1 - v / 250 if name in falling else v for name, v in mixed.metrics.items() if name != "macro-average"]
    assert math.isclose(mixed.metrics["macro-average"], np.mean(values))


def test_the_run_is_an_encoder(mixed, place, tmp_path):
    cache = probekit.cache_activations(mixed.path, "grammar:sentiment", "dev", out=tmp_path / "c.h5", limit=8)
    assert cache.layer("output").shape == (8, 34)
    random = load_encoder(mixed.path, random_weights=1)
    assert random.name
    first, second = (AutoModel.from_pretrained(place / name) for name in ("bilstm", "mixed"))
    assert not torch.equal(first.layers[0].forward_lstm.input.weight, second.layers[0].forward_lstm.input.weight)


def test_a_decoder_learns_to_copy(place):
    """The reversed sentence from a sentence: an attentive decoder gets far below the perplexity of unigrams."""
    run = pretrain(
        place, "translate:a.en+a.de", "copy", steps=150, evaluate_every=150, learning_rate=0.01, batch_size=16
    )
    lines = (place / "a.de").read_text().replace(".", " .").splitlines()
    words = [word for line in lines for word in [*line.split(), "</s>"]]
    share = np.unique(words, return_counts=True)[1] / len(words)
    unigrams = math.exp(-(share * np.log(share)).sum())
    assert run.metrics["translate:a.en+a.de"] < 0.8 * unigrams


def test_an_interrupted_run_ends_with_the_same_bytes(place):
    on = ["denoise:books.txt", "grammar:sentiment"]
    whole = pretrain(place, on, "whole")

    def stop(stage, done, total, /, **_):
        if stage == "pretraining" and done == 9:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pretrain(place, on, "cut", progress=stop)
    assert (place / "cut/.resume/checkpoint-6").is_dir()
    (place / "cut/.resume/text/0").mkdir(parents=True)  # left by a process that was killed
    again = pretrain(place, on, "cut")
    assert weights(place / "cut") == weights(place / "whole")
    assert again.metrics == whole.metrics
    columns = ["task", "step", "metric", "value", "kept"]
    assert again.rows[columns].equals(whole.rows[columns])
    assert pretrain(place, on, "cut").metrics == whole.metrics  # finished: returned at once


def test_twenty_steps_equal_a_plain_loop(place):
    """torch.nn.LSTM on packed sequences, an MLP of torch's modules and torch's Adam, with the same batches."""
    quick = QUICK | {"steps": 20, "evaluate_every": 20, "dropout": 0.0, "learning_rate": 1e-3}
    options = EncoderOptions(**quick, limit=64, data_dir=place, device="cpu")
    run = pretrain(place, "grammar:sentiment", "twenty", **quick, limit=64)
    task = probekit.load_task("grammar:sentiment")
    folder = place / "bilstm"
    encoder = AutoModel.from_pretrained(folder)
    data = TextData(task, task.split("train").sample(64, 0), text_reader(folder, encoder.config, 40), apart=False)
    plain = Plain(encoder.config.vocab_size, 10, 12, 2, separate=True, skip=True)
    plain.take(encoder)
    torch.manual_seed(0)  # the head is built after the encoder has been read, which draws nothing
    head = make_objective("grammar:sentiment", Encoded(encoder, data.tokenizer), options, place).head
    projection, mlp = nn.Linear(34, 16), nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.LayerNorm(16), nn.Linear(16, 2))
    projection.load_state_dict(head.projection.state_dict())
    mlp.load_state_dict({k.replace("4.", "3."): v for k, v in head.output.state_dict().items()})
    parts = (plain, projection, mlp)
    weights = [p for part in parts for p in part.parameters()]
    optimizer = torch.optim.Adam(weights, lr=1e-3, amsgrad=True)
    batches = [rows for epoch in range(3) for rows in _epoch(data, epoch)][:20]
    for rows in batches:
        batch = data.__getitems__(rows)
        length = batch["first"]["attention_mask"].sum(1)
        states = plain([ids[:n] for ids, n in zip(batch["first"]["input_ids"], length, strict=True)])
        pooled = torch.stack([projection(x).amax(0) for x in states.split(length.tolist())])
        loss = nn.functional.cross_entropy(mlp(pooled), batch["labels"])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(weights, 5.0)
        optimizer.step()
    twin = Plain(encoder.config.vocab_size, 10, 12, 2, separate=True, skip=True)
    twin.take(AutoModel.from_pretrained(run.path))
    for (name, right), found in zip(plain.named_parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(found, right, atol=1e-6, rtol=0, msg=name)


def _epoch(data, epoch):
    batches = Batches(data, QUICK["batch_size"], seed=order_seed(0, 0))
    batches.set_epoch(epoch)
    return list(batches)


def test_card_reproduces_the_rows(place, capsys):
    pretrain(place, ["grammar:sentiment", "denoise:books.txt"], "card")
    assert main(["reproduce", str(place / "card/rows.parquet.json")]) == 0
    assert "reproduced to the bit" in capsys.readouterr().out


def test_objectives_are_drawn_as_the_mixture_says(place):
    run = pretrain(place, ["grammar:sentiment", "denoise:books.txt"], "shares", steps=40, sampling="3,1")
    assert [one["probability"] for one in run.card["objectives"]] == [0.75, 0.25]
    drawn = Mixture((100, 100), "3,1").draw(20_000, 0)
    assert abs((drawn == 0).mean() - 0.75) < 4 * math.sqrt(0.75 * 0.25 / 20_000)


def test_losses_are_scaled(place):
    """The encoder moves elsewhere than with equal weights."""
    on = ["grammar:sentiment", "denoise:books.txt"]
    run = pretrain(place, on, "scaled", scaling="1,1e6")
    pretrain(place, on, "unscaled", scaling="uniform")
    assert [one["scale"] for one in run.card["objectives"]] == [1e-6, 1.0]
    one, other = (weights(place / name)["model.safetensors"] for name in ("scaled", "unscaled"))
    assert one != other


@pytest.mark.parametrize(
    ("macros", "share"), [([0.1] * 5, 1.0), ([0.1] * 6, 0.5), ([0.1] * 11, 0.25), ([0.1, 0.2] * 3, 1.0)]
)
def test_the_rate_halves_after_more_than_four_checks_without_improvement(macros, share):
    optimizer = torch.optim.Adam([nn.Parameter(torch.zeros(1))], lr=1e-3)
    assert _rate([{"macro": m} for m in macros], optimizer) == pytest.approx(1e-3 * share)


def test_training_ends_when_nothing_improves():
    options = EncoderOptions(patience=3)
    log = [{"macro": m} for m in (0.1, 0.3, 0.2, 0.3)]
    assert _ends(log, 1e-3, options) == ""
    assert "no improvement in 3" in _ends([*log, {"macro": 0.1}], 1e-3, options)
    assert "below 1e-06" in _ends(log, 9e-7, options)


def test_a_loss_that_is_not_finite_names_the_objective(place):
    with pytest.raises(
        NonFiniteError, match=r"the loss of .* is (nan|inf) at step \d+ of 12, at a learning rate of 1e\+3"
    ):
        pretrain(place, ["grammar:sentiment", "denoise:books.txt"], "nan", learning_rate=1e30, max_grad_norm=0)
    assert "failed" in json.loads((place / "nan/probekit.json").read_text())


@pytest.mark.parametrize(
    ("on", "message"),
    [
        ("skip-thougt:books.txt", "did you mean skip-thought"),
        ("books.txt", "is a text. Write the objective before"),
        ("colla", "objectives on text are"),
        ("denoise", "needs a corpus"),
        ("skip-thought", "no file of WikiText-103"),
        ("translate:books.txt", "needs a corpus of pairs"),
        ("language-model:a.en+a.de", "needs a corpus of sentences"),
        (["grammar:sentiment", "grammar:sentiment"], "each once"),
        ([], "one or more objectives"),
        ("denoise:nothing.txt", "nothing.txt"),
    ],
)
def test_objectives_that_do_not_fit(place, tmp_path, on, message):
    with pytest.raises((UsageError, DataError), match=message):
        probekit.pretrain_encoder(place / "bilstm", on, tmp_path / "run", data_dir=place, **QUICK)
    assert not (tmp_path / "run").exists()


def test_parallel_files_of_unequal_length(place, tmp_path):
    (tmp_path / "x.en").write_text("a cat.\n" * 60)
    (tmp_path / "x.de").write_text("a cat.\n" * 59)
    with pytest.raises(DataError, match="line 60"):
        probekit.pretrain_encoder(place / "bilstm", "translate:x.en+x.de", tmp_path / "run", data_dir=tmp_path, **QUICK)


def test_another_mixture_in_the_folder(place):
    pretrain(place, "grammar:sentiment", "taken")
    with pytest.raises(UsageError, match="another run: its on is"):
        pretrain(place, "grammar:paraphrase", "taken")


def test_changed_text_is_another_run(place, tmp_path):
    (tmp_path / "b.txt").write_text("\n".join(sentences(300, 3)))
    probekit.pretrain_encoder(place / "bilstm", "denoise:b.txt", tmp_path / "run", data_dir=tmp_path, **QUICK)
    (tmp_path / "b.txt").write_text("\n".join(sentences(300, 4)))
    with pytest.raises(UsageError, match="its data are different"):
        probekit.pretrain_encoder(place / "bilstm", "denoise:b.txt", tmp_path / "run", data_dir=tmp_path, **QUICK)


def test_a_language_model_must_not_see_the_word(place, tmp_path):
    new_encoder(BILSTM | {"directions": "joint"}, tmp_path / "joint", vocabulary=place / "words.txt")
    with pytest.raises(UsageError, match="separate"):
        probekit.pretrain_encoder(
            tmp_path / "joint", "language-model:books.txt", tmp_path / "r", data_dir=place, **QUICK
        )


def test_output_words(tmp_path):
    texts = ["the cat sees the dog.", "the dog.", "a bird"]
    outputs = Outputs.of(texts, 6)
    assert outputs.index == {"the": 3, ".": 4, "dog": 5}  # of equally frequent words, those first in the alphabet
    found = outputs.written(["the bird", "the dog the dog"], tmp_path / "out", 3)
    assert found.ids.tolist() == [3, UNKNOWN, 3, 5, 3]
    assert (found.start.tolist(), found.truncated) == ([0, 2, 5], 1)


def test_words_of_characters_have_one_index():
    """Two readings with one set of types give a word the same index in both."""
    types = Types()
    first = types.ids(np.arange(6, dtype=np.int16).reshape(3, 2))
    again = types.ids(np.array([[2, 3], [9, 9]], dtype=np.int16))
    assert first.tolist() == [0, 1, 2]
    assert again.tolist() == [1, 3]
    assert types.table().tolist() == [[0, 1], [2, 3], [4, 5], [9, 9]]


def test_the_command_says_what_came_out(place, capsys):
    words = [
        "pretrain-encoder",
        "--model",
        place / "bilstm",
        "--on",
        "grammar:sentiment,denoise:books.txt",
        "--steps",
        6,
    ]
    words += ["--evaluate-every", 3, "--batch-size", 8, "--outputs", 100, "--data-dir", place, "--out", place / "said"]
    assert main([str(word) for word in words]) == 0
    said = capsys.readouterr().out
    assert "step 6 of 6 kept, macro average" in said
    assert "denoise:books.txt: perplexity" in said
    assert "of the steps)" in said


def test_a_transformer_is_an_encoder_too(place, tiny_bert):
    run = probekit.pretrain_encoder(
        tiny_bert, ["translate:a.en+a.de", "contrast:a.en+a.de", "grammar:paraphrase"], place / "bert",
        data_dir=place, **QUICK,
    )  # fmt: skip
    assert AutoModel.from_pretrained(run.path).config.model_type == "bert"
    with pytest.raises(UsageError, match="both sides"):
        probekit.pretrain_encoder(tiny_bert, "language-model:books.txt", place / "no", data_dir=place, **QUICK)


def test_a_limit_draws_rows_at_random_in_their_order(place, tmp_path):
    of = {}
    for name in ("some", "again", "all"):
        (tmp_path / name).mkdir()
        limits = {} if name == "all" else {"limit": 50, "dev_limit": 3}
        options = EncoderOptions(data_dir=place, **limits)
        of[name] = _Asked.of("denoise:books.txt", None, options, tmp_path / name, "head", no_progress)
    texts, every = (list(of[name].column("train", 0)) for name in ("some", "all"))
    assert texts == list(of["again"].column("train", 0))
    places = [every.index(text) for text in dict.fromkeys(texts)]
    assert places == sorted(places)
    assert (len(texts), of["some"].size) == (50, {"train": 50, "dev": 3})
    assert places[-1] > 250  # not the first ones


def test_metrics_that_are_not_finite_end_the_run(place):
    """The weights are ruined by the last update, after its loss was found finite."""
    with pytest.raises(NonFiniteError, match="the loss of grammar:sentiment on dev is nan at step 1 of 1"):
        pretrain(place, "grammar:sentiment", "ruined", steps=1, learning_rate=1e38)
    assert not json.loads((place / "ruined/probekit.json").read_text())["complete"]


def test_data_may_move(place, tmp_path, monkeypatch):
    """The same file below another data folder, and from another working directory, is the same run."""
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "b.txt").write_text("\n".join(sentences(300, 3)))
    on, quick = "denoise:b.txt", QUICK | {"steps": 3}
    first = probekit.pretrain_encoder(place / "bilstm", on, tmp_path / "run", data_dir=tmp_path / "one", **quick)
    monkeypatch.chdir(tmp_path)
    again = probekit.pretrain_encoder(place / "bilstm", on, tmp_path / "run", data_dir="two", **quick)
    assert first.metrics == again.metrics


@pytest.mark.parametrize(
    ("name", "text", "on", "message"),
    [
        ("c.tsv", "the cat\tthe dog\tso\n" * 40 + "the man\tthe bird\tbut\n" * 2, "dissent:c.tsv", "class|marker"),
        ("empty.txt", "\n\n", "denoise:empty.txt", "empty.txt"),
        ("one.txt", "A cat.\n", "denoise:one.txt", "fewer than 2 passages"),
    ],
)
def test_corpora_with_too_little(place, tmp_path, name, text, on, message):
    header = "sentence1\tsentence2\tmarker\n" if name.endswith(".tsv") else ""
    (tmp_path / name).write_text(header + text)
    with pytest.raises((DataError, UsageError), match=message):
        probekit.pretrain_encoder(place / "bilstm", on, tmp_path / "run", data_dir=tmp_path, **QUICK | {"limit": 2})


def test_several_batches_in_a_step_equal_one_large_batch(place):
    """Without dropout, two batches of 8 give the gradient of one of 16 with the same examples."""
    on, quick = "grammar:sentiment", {"dropout": 0.0, "limit": 16, "steps": 4, "evaluate_every": 4}
    runs = [pretrain(place, on, "large", batch_size=16, **quick)]
    runs.append(pretrain(place, on, "small", batch_size=8, accumulation=2, **quick))
    one, other = (load_file(run.path / "model.safetensors") for run in runs)
    for name, weight in one.items():
        torch.testing.assert_close(other[name], weight, atol=2e-6, rtol=0, msg=name)


def test_a_decoder_writes_pieces(place):
    run = pretrain(place, "translate:a.en+a.de", "pieces", output_pieces=True, outputs=320)
    (one,) = run.card["objectives"]
    assert 303 < one["outputs"] <= 320
    assert run.metrics["translate:a.en+a.de"] < 320
