"""Pretraining a shared encoder: losses against a plain loop, mixtures, resuming to the same bytes, and bad input."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections import Counter
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
from probekit.adaptation.pretraining.corpora.corpus import load_corpus
from probekit.adaptation.pretraining.mixture_loop import _ends, _rate, order_seed
from probekit.adaptation.pretraining.objective import Encoded, Requested
from probekit.adaptation.pretraining.objectives import make_objective
from probekit.adaptation.pretraining.options import EncoderOptions
from probekit.adaptation.pretraining.outputs import UNKNOWN, Outputs, read_decoder
from probekit.adaptation.pretraining.sequences import Types, tokenized
from probekit.adaptation.training.fine_tuning import encoder_of
from probekit.adaptation.training.learners import FineTuning
from probekit.cli import main
from probekit.errors import DataError, ModelError, NonFiniteError, UsageError
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


def words_of(text: str) -> list[str]:
    """The words of a sentence; only a full stop at its end is one."""
    return re.sub(r"\.$", " .", text).split()


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
    return pretrain(place, EVERY, "mixed", steps=22, evaluate_every=11)


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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
    head = make_objective("grammar:sentiment", Encoded(encoder, data.tokenizer, folder), options, place).head
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


@pytest.mark.slow
def test_card_reproduces_the_rows(place, capsys):
    pretrain(place, ["grammar:sentiment", "denoise:books.txt"], "card")
    assert main(["reproduce", str(place / "card/rows.parquet.json")]) == 0
    assert "reproduced to the bit" in capsys.readouterr().out


def test_objectives_are_drawn_as_the_mixture_says(place):
    run = pretrain(place, ["grammar:sentiment", "denoise:books.txt"], "shares", steps=3, sampling="3,1")
    assert [one["probability"] for one in run.card["objectives"]] == [0.75, 0.25]
    drawn = Mixture((100, 100), "3,1").draw(20_000, 0)
    assert abs((drawn == 0).mean() - 0.75) < 4 * math.sqrt(0.75 * 0.25 / 20_000)


@pytest.mark.slow
def test_losses_are_scaled(place, monkeypatch):
    """Each loss counts by its scale: in the gradient of its own head, and in the sum for the encoder."""
    gradients = []

    def no_clipping(parameters, most):
        gradients.append({i: p.grad.clone() for i, p in enumerate(parameters) if p.grad is not None})
        return torch.zeros(())

    monkeypatch.setattr(nn.utils, "clip_grad_norm_", no_clipping)
    on, quick = ["grammar:sentiment", "denoise:books.txt"], {"steps": 1, "accumulation": 4, "sampling": "uniform"}
    runs = [pretrain(place, on, f"scaled{i}", scaling=s, **quick) for i, s in enumerate(("uniform", "1,4", "4,1"))]
    assert [[one["scale"] for one in run.card["objectives"]] for run in runs] == [[1, 1], [0.25, 1], [1, 0.25]]
    plain, second, first = gradients
    heads = load_file(runs[0].path / "head.safetensors")
    sizes = [sum(name.startswith(f"{module}.") for name in heads) for module in ("head", "head1")]
    assert min(sizes) > 5
    for i, gradient in plain.items():
        scales = (1, 0.25) if i < sizes[0] else (0.25, 1)
        if i < sum(sizes):
            assert gradient.any()
            assert torch.equal(first[i], scales[0] * gradient)
            assert torch.equal(second[i], scales[1] * gradient)
        else:
            torch.testing.assert_close(first[i] + second[i], 1.25 * gradient, atol=1e-7, rtol=1e-4)
            assert not torch.allclose(first[i], 0.625 * gradient, rtol=1e-3) or not gradient.any()


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


def test_another_mixture_in_the_folder(place, mixed):
    with pytest.raises(UsageError, match="another run: its on is"):
        pretrain(place, "grammar:paraphrase", mixed.path.name)


@pytest.mark.slow
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
    assert re.search(r"grammar:sentiment: accuracy \S+ \(.*most frequent class in train: 0\.\d+\) on", said)
    assert re.search(r"denoise:books.txt: perplexity \S+ \(no better than the words' frequencies in train: \d+", said)
    assert re.search(r"trained on \d+, 0\.\d+ passes, \d+% of the steps", said)
    assert f"--task TASK --data-dir {place} --split" in said


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
        of[name] = Requested.of("denoise:books.txt", None, options, tmp_path / name, "head", no_progress)
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
        ("one.txt", "A cat.\n", "denoise:one.txt", "number of sentences: 1; at least 51"),
    ],
)
def test_corpora_with_too_little(place, tmp_path, name, text, on, message):
    header = "sentence1\tsentence2\tmarker\n" if name.endswith(".tsv") else ""
    (tmp_path / name).write_text(header + text)
    with pytest.raises((DataError, UsageError), match=message):
        probekit.pretrain_encoder(place / "bilstm", on, tmp_path / "run", data_dir=tmp_path, **QUICK | {"limit": 2})


@pytest.mark.slow
def test_several_batches_in_a_step_equal_one_large_batch(place):
    """Without dropout, two batches of 8 give the gradient of one of 16 with the same examples."""
    on, quick = "grammar:sentiment", {"dropout": 0.0, "limit": 16, "steps": 4, "evaluate_every": 4}
    runs = [pretrain(place, on, "large", batch_size=16, **quick)]
    runs.append(pretrain(place, on, "small", batch_size=8, accumulation=2, **quick))
    one, other = (load_file(run.path / "model.safetensors") for run in runs)
    for name, weight in one.items():
        torch.testing.assert_close(other[name], weight, atol=2e-6, rtol=0, msg=name)


@pytest.mark.parametrize("pieces", [False, True])
def test_a_decoder_is_read_back(place, mixed, tmp_path, pieces):
    """Weights and output words from the folder give the perplexity of the run, one sentence after another."""
    on = "translate:a.en+a.de"
    run = pretrain(place, on, "pieces", output_pieces=True, outputs=320) if pieces else mixed
    head, words = read_decoder(run.path, on)
    assert (len(words), head.attention is not None) == (head.outputs, True)
    assert (303 < len(words) <= 320) == pieces
    encoder = encoder_of(run.path)
    learner, reader = FineTuning(encoder, head).eval(), text_reader(run.path, encoder.config, 40)
    nats, count = 0.0, 0
    for source, target in load_corpus("a.en+a.de", place).splits["dev"]():
        labels = torch.from_numpy(words.written([target], tmp_path / "out", 40).ids.astype(np.int64))
        assert words.text(labels.tolist()) == (target if pieces else " ".join(words_of(target)))
        with torch.no_grad():
            states = learner.read(tokenized([source], reader, tmp_path / "in").inputs([0], None))
            nats += float(head.loss(head(states), labels[None], states)) * (len(labels) + 1)
            written = head.generate(states, 5)[0]
            assert isinstance(words.text(written[written >= 0].tolist()), str)
        count += len(labels) + 1
    assert run.metrics[on] == pytest.approx(math.exp(nats / count), rel=1e-4)


def test_decoders_that_cannot_be_read(place, mixed, tmp_path):
    with pytest.raises(UsageError, match=r"no decoder for 'grammar:sentiment'; it has those of translate:a\.en"):
        read_decoder(mixed.path, "grammar:sentiment")
    copy = shutil.copytree(mixed.path, tmp_path / "copy")
    (copy / "outputs.json").write_text("{}")
    with pytest.raises(ModelError, match=r"outputs\.json is missing or damaged"):
        read_decoder(copy, "translate:a.en+a.de")


def test_attention_is_chosen_for_each_objective(place, mixed):
    flags = {one["objective"]: one["attention"] for one in mixed.card["objectives"] if "attention" in one}
    assert flags == dict.fromkeys([EVERY[i] for i in (1, 2, 3, 4)], True)
    on = ["translate:a.en+a.de", "skip-thought:books.txt"]
    run = pretrain(place, on, "attention", steps=2, attention="skip-thought:books.txt")
    assert [one["attention"] for one in run.card["objectives"]] == [False, True]
    keys = load_file(run.path / "head.safetensors")
    assert {name.partition(".")[0] for name in keys if "attention" in name} == {"head1"}
    assert pretrain(place, on, "attention", steps=2, attention=("skip-thought",)).metrics == run.metrics
    assert [EncoderOptions(attention=a).attends("denoise:x") for a in ("all", "none", "denoise")] == [True, False, True]
    head, _ = read_decoder(run.path, on[0])
    assert head.attention is None


@pytest.mark.parametrize(
    ("attention", "message"),
    [
        ("translate:b.en+b.de", "not an objective of this run; objectives with a decoder are denoise, reply"),
        ("contrast", "not an objective with a decoder"),
        (True, "attention is True; it must be a text"),
    ],
)
def test_attention_for_others(place, attention, message):
    with pytest.raises(UsageError, match=message):
        pretrain(place, "translate:a.en+a.de", "no-attention", attention=attention)


def test_chance_levels(place, mixed):
    """Beside each metric, what the labels of train predict without the text; unigrams have one more occurrence each."""
    found = {one["objective"]: one["chance"] for one in mixed.card["objectives"]}

    def unigrams(train, dev, markers):
        count = Counter(word for text in train for word in text)
        kinds = len(count) + markers
        nats = [-math.log((count[w] + 1) / (count.total() + kinds)) for text in dev for w in text]
        return math.exp(np.mean(nats))

    splits = load_corpus("a.en+a.de", place).splits
    parts = [[[*words_of(target), "</s>"] for _, target in splits[split]()] for split in ("train", "dev")]
    assert found["translate:a.en+a.de"]["prediction"] == "unigrams"
    assert found["translate:a.en+a.de"]["value"] == pytest.approx(unigrams(*parts, 2))  # unknown, begin
    splits = load_corpus("books.txt", place).splits
    texts = [[["<s>", *words_of(t), "</s>"] for (t,) in splits[split]() if t] for split in ("train", "dev")]
    drawn = np.random.default_rng((0, True)).choice(len(texts[1]), QUICK["dev_limit"], replace=False, shuffle=False)
    texts[1] = [texts[1][i] for i in drawn]
    parts = [[text[1:] + text[:-1] for text in part] for part in texts]
    assert found["language-model:books.txt"]["value"] == pytest.approx(unigrams(*parts, 3))
    assert found["respond:a.en+a.de"] == {"prediction": "guess", "value": 0.5}
    assert found["contrast:a.en+a.de"]["value"] == pytest.approx(2 / 10)  # ten pairs in two batches
    task = probekit.load_task("grammar:sentiment")
    labels = [task.labels(split) for split in ("train", "dev")]
    accuracy = (labels[1] == np.bincount(labels[0]).argmax()).mean()
    assert found["grammar:sentiment"]["prediction"] == "most frequent class"
    assert found["grammar:sentiment"]["value"] == pytest.approx(accuracy, abs=0.2)  # of 24 examples of dev
    assert found["grammar:similarity"] == {"prediction": "mean", "value": 0}  # a correlation
    rows = mixed.rows[mixed.rows.metric == "perplexity"]
    assert rows.chance.tolist() == [found[task]["value"] for task in rows.task]
