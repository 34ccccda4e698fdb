"""The perplexity of runs, against transformers' own models with the same weights; what it says and refuses."""

import json
import shutil
from functools import cache
from math import exp

import numpy as np
import pytest
import torch
from lessons import SHORT, praise
from transformers import AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

import probekit
from probekit.adaptation import perplexity
from probekit.adaptation.perplexity import text_sentence
from probekit.adaptation.train import train
from probekit.cli import main
from probekit.errors import DataError, ModelError, UsageError

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
CONFIGS = {
    "causal-lm": {"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 48},
    "masked-lm": {"model_type": "bert", **SMALL, "max_position_embeddings": 48},
}
ONCE = SHORT | {"epochs": 1, "batch_size": 4, "learning_rate": 1e-3}


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """``places("causal-lm")``: a language model with its text, and a run that trained it on a task; made once."""

    @cache
    def make(kind):
        folder = tmp_path_factory.mktemp(kind)
        draw = np.random.default_rng(0)
        words = "cat dog bird sees likes hears good bad".split()
        lines = ["the " + " ".join(draw.choice(words, size=int(draw.integers(3, 8)))) + ".\n" for _ in range(400)]
        (folder / "text.txt").write_text("".join(lines[:300]))
        (folder / "other.txt").write_text("".join(lines[300:]))
        (folder / "short.txt").write_text("".join(lines[:3]))
        (folder / "config.json").write_text(json.dumps(CONFIGS[kind]))
        probekit.pretrain(
            folder / "text.txt", folder / "model", objective=kind, config=str(folder / "config.json"),
            tokenizer="train:300", context=16, epochs=2, learning_rate=3e-3, batch_size=8,
        )  # fmt: skip
        train(praise(), folder / "model", folder / "run", **ONCE)
        return folder, kind

    return make


@pytest.fixture(params=["causal-lm", pytest.param("masked-lm", marks=pytest.mark.slow)])
def place(request, places):
    return places(request.param)


def measured(run, text, **options):
    rows = probekit.evaluate(run, text=text, device="cpu", **options).rows
    return rows, {(r.checkpoint, r.metric): r.value for r in rows.itertuples() if r.metric != "difference(log-loss)"}


def by_hand(encoder, head, ids):
    """The mean loss in nats of pieces after the first, of a text that fits the model."""
    states = encoder(input_ids=ids[None]).last_hidden_state[0, :-1]
    return float(torch.nn.functional.cross_entropy(head(states), ids[1:]))


@torch.no_grad()
def test_a_decoder_by_hand(place):
    folder, kind = place
    if kind != "causal-lm":
        pytest.skip("for decoders")
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    lines = (folder / "short.txt").read_text().splitlines(keepends=True)
    ids = torch.tensor([i for line in lines for i in tokenizer(line)["input_ids"]] + [tokenizer.eos_token_id])
    assert len(ids) < 48
    _, found = measured(folder / "run", folder / "short.txt")
    before = AutoModelForCausalLM.from_pretrained(folder / "model").eval()
    assert found["", "log-loss"] == pytest.approx(by_hand(before.base_model, before.lm_head, ids), rel=1e-5)
    after = AutoModel.from_pretrained(folder / "run").eval()
    changed = by_hand(after, lambda x: x @ after.get_input_embeddings().weight.T, ids)  # the weights are shared
    assert found["run", "log-loss"] == pytest.approx(changed, rel=1e-5)
    assert found["run", "perplexity"] == pytest.approx(exp(changed), rel=1e-5)
    nats = changed * (len(ids) - 1)
    assert found["run", "bits-per-byte"] == pytest.approx(nats / np.log(2) / (folder / "short.txt").stat().st_size)
    assert abs(found["run", "log-loss"] - found["", "log-loss"]) > 1e-3


WAYS = {
    "full": {}, "lora": {"method": "lora"}, "adapter": {"method": "adapter"}, "prefix": {"method": "prefix"},
    "prompt": {"method": "prompt", "virtual_tokens": 4}, "norms": {"method": "norms"}, "fewer": {"keep_layers": 1},
    "top": {"unfreezing": "top", "pooling": "last"},
}  # fmt: skip
SOON = (("masked-lm", "lora"),)


@pytest.mark.parametrize(
    ("place", "way"),
    [
        pytest.param(kind, way, marks=[] if (kind, way) in SOON else [pytest.mark.slow])
        for k, kind in enumerate(CONFIGS)
        for i, way in enumerate(WAYS)
    ],
    indirect=["place"],
)
def test_every_way_to_adapt(place, tmp_path, way):
    """With the library's classes and the run's encoder in place of its own; what is not trained does not change."""
    folder, kind = place
    run = train(praise(), folder / "model", tmp_path / "run", **ONCE | WAYS[way])
    rows, found = measured(run.path, folder / "other.txt", batch_size=2)
    difference = rows[rows["metric"] == "difference(log-loss)"].iloc[0]
    assert difference["against"] == "pretrained"
    assert difference["value"] == pytest.approx(found["run", "log-loss"] - found["", "log-loss"])
    assert difference["ci_low"] < difference["value"] < difference["ci_high"] or way == "top"
    if way == "top":
        assert difference["value"] == 0
    else:
        assert found["run", "log-loss"] != found["", "log-loss"]
    if way == "lora":
        whole = probekit.merge(run.path, tmp_path / "merged")
        encoder = AutoModel.from_pretrained(whole)
        auto = AutoModelForCausalLM if kind == "causal-lm" else AutoModelForMaskedLM
        model = auto.from_pretrained(folder / "model")
        model.base_model.load_state_dict({k: v for k, v in encoder.state_dict().items() if "pooler" not in k})
        model.save_pretrained(tmp_path / "joined")
        AutoTokenizer.from_pretrained(folder / "model").save_pretrained(tmp_path / "joined")
        again = train(praise(), tmp_path / "joined", tmp_path / "again", **ONCE)
        _, joined = measured(again.path, folder / "other.txt", batch_size=2)
        assert joined["", "log-loss"] == pytest.approx(found["run", "log-loss"], rel=1e-4)


def test_a_pretrained_run(place):
    folder, kind = place
    rows, found = measured(folder / "model", [folder / "text.txt", folder / "other.txt"], batch_size=2)
    assert {name for name, _ in found} == {"model"}
    assert found["model", "perplexity"] == pytest.approx(exp(found["model", "log-loss"]))
    assert set(rows["task"]) == {"text+other"}
    assert rows["headline"].sum() == 1
    assert ("model", "bits-per-byte") in found or kind == "masked-lm"
    assert rows["ci_low"].notna().sum() == 2


def test_intervals_of_a_ratio():
    """Parts with levels of their own: the interval covers the mean of the text that they are drawn from."""
    draw, hits, repeats = np.random.default_rng(0), 0, 1000
    for _ in range(repeats):
        count = draw.integers(50, 100, size=12)
        nats = count * (3 + draw.gamma(2, 0.2, size=12)) + draw.normal(size=12)
        found = perplexity._ratio(nats.tolist(), list(zip(nats, count, strict=True)))
        hits += found["ci_low"] <= 3.4 <= found["ci_high"]
    assert abs(hits / repeats - 0.95) < 0.03  # four Monte Carlo errors, and the skewness of twelve parts


def test_what_the_command_says(place, tmp_path, capsys):
    folder, kind = place
    out = tmp_path / "rows.csv"
    words = ["evaluate", str(folder / "run"), "--text", f"{folder / 'text.txt'},{folder / 'other.txt'}", "--device"]
    assert main([*words, "cpu", "--batch-size", "2", "--out", str(out)]) == 0
    told = capsys.readouterr().out
    assert "text+other, " in told
    assert "predicted pieces: perplexity " in told
    assert "; before the training " in told
    assert "; log loss +" in told or "; log loss -" in told
    reads = json.loads((tmp_path / "rows.csv.json").read_text())["reads"]
    assert [one["kind"] for one in reads] == ["run", "data", "data"]
    words[3] = str(folder / "short.txt")
    assert main([*words, "cpu"]) == (0 if kind == "causal-lm" else 2)
    said = capsys.readouterr()
    assert ("(no interval: " in said.out) is (kind == "causal-lm")
    assert ("too few for a sequence of 48" in said.err) is (kind == "masked-lm")
    again, _ = measured(folder / "run", folder / "other.txt")
    assert text_sentence(again).startswith("other, ")


@pytest.mark.slow
def test_refused(place, tiny_bert, tmp_path):
    folder, kind = place
    text = folder / "other.txt"
    with pytest.raises(UsageError, match="task is for labelled examples, and text is plain text"):
        probekit.evaluate(folder / "run", text=text, task=["cola"])
    with pytest.raises(DataError, match="cannot be read"):
        probekit.evaluate(folder / "run", text=tmp_path / "none.txt")
    (tmp_path / "word.txt").write_text("a")
    if kind == "masked-lm":
        with pytest.raises(DataError, match="too few for a sequence of 48"):
            probekit.evaluate(folder / "run", text=tmp_path / "word.txt")
    with pytest.raises(UsageError, match="--text FILES"):
        probekit.evaluate(folder / "model")
    moved = shutil.copytree(folder / "model", tmp_path / "model")
    run = train(praise(), moved, tmp_path / "run", **ONCE)
    _, here = measured(run.path, text)
    moved.rename(tmp_path / "elsewhere")
    with pytest.raises(ModelError):
        probekit.evaluate(run.path, text=text)
    assert measured(run.path, text, model=str(tmp_path / "elsewhere"))[1] == here
    with pytest.raises(ModelError, match="began with weights with the digest"):
        probekit.evaluate(run.path, text=text, model=str(tiny_bert))
    frozen = train(
        praise(), folder / "model", tmp_path / "frozen", regime="feature-extraction", head="linear", caches=tmp_path,
        **SHORT | {"epochs": 1},
    )  # fmt: skip
    with pytest.raises(UsageError, match="keeps its encoder frozen"):
        probekit.evaluate(frozen.path, text=text)
    drawn = train(praise(), folder / "model", tmp_path / "drawn", random_weights=1, **ONCE)
    with pytest.raises(UsageError, match="began with random weights"):
        probekit.evaluate(drawn.path, text=text)
    bare = train(praise(), tiny_bert, tmp_path / "bare", **ONCE)
    with pytest.raises(UsageError, match="has no head of a language model"):
        probekit.evaluate(bare.path, text=text)
