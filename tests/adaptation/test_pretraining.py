"""Pretraining: losses against transformers and slow twins, resuming to the same bytes, folders, and bad input."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

import probekit
from probekit.adaptation.heads.vocabulary import ROWS, vocabulary_loss
from probekit.adaptation.pretraining.language_model import (
    Objective,
    evaluate,
    new_language_model,
    separable_head,
    use_fast_kernels,
)
from probekit.adaptation.pretraining.loop import Stream
from probekit.adaptation.pretraining.options import LanguageModelling
from probekit.adaptation.pretraining.text import Pieces, open_text, to_pieces, train_tokenizer
from probekit.cli import main
from probekit.errors import DataError, ModelError, NonFiniteError, UsageError
from probekit.runtime import Dtype, torch_threads

CAUSAL, MASKED = LanguageModelling.CAUSAL_LM, LanguageModelling.MASKED_LM
GPT2 = {"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 32}
SIZES = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64,
    "max_position_embeddings": 40,
}  # fmt: skip
CONFIGS = {
    "gpt2": GPT2,
    "llama": {"model_type": "llama", **SIZES},
    "bert": {"model_type": "bert", **SIZES},
    "roberta": {"model_type": "roberta", **SIZES},
    "granite": {"model_type": "granite", **SIZES, "logits_scaling": 3.0, "num_key_value_heads": 2},
}
WORDS = ("cat", "dog", "man", "bird", "sees", "likes", "hears", "tree", "house", "river", "old", "small")


def sentences(n: int, seed: int = 0) -> list[str]:
    draw = np.random.default_rng(seed)
    return ["the " + " ".join(draw.choice(WORDS, size=int(draw.integers(3, 8)))) + ".\n" for _ in range(n)]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A text, configurations, and a short run of pretraining in "run"."""
    folder = tmp_path_factory.mktemp("pretraining")
    (folder / "toy.txt").write_text("".join(sentences(400)))
    for name, config in CONFIGS.items():
        (folder / f"{name}.json").write_text(json.dumps(config))
    pretrain(folder, "run", save_at="0,4")
    return folder


def pretrain(folder: Path, out: str, text: str = "toy.txt", **options):
    quick = {
        "tokenizer": "train:300", "config": str(folder / "gpt2.json"), "context": 16, "batch_size": 8, "epochs": 0.25,
        "evaluate_every": 3,
    }  # fmt: skip
    return probekit.pretrain(folder / text, folder / out, **quick | options)


def tokenizer_of(folder: Path, *, masked: bool):
    return train_tokenizer(open_text(folder / "toy.txt").lines(), 300, masked=masked)


def built(folder: Path, name: str, kind: LanguageModelling):
    tokenizer = tokenizer_of(folder, masked=kind is MASKED)
    model = new_language_model(str(folder / f"{name}.json"), tokenizer, kind, context=16, seed=0)
    around = (tokenizer.cls_token_id, tokenizer.sep_token_id) if kind is MASKED else None
    separable = separable_head(model, kind)
    return tokenizer, model, Objective(kind, len(tokenizer), tokenizer.mask_token_id, around, separable)


@pytest.mark.parametrize(("name", "separable"), [("gpt2", True), ("llama", True), ("bert", False), ("granite", False)])
def test_causal_loss_and_gradients_are_those_of_transformers(name, separable, place):
    _, model, objective = built(place, name, CAUSAL)
    assert objective.separable is separable  # BERT has a transform before its output, Granite scaled logits
    model.eval()
    blocks = torch.randint(300, (5, 16), generator=torch.Generator().manual_seed(0))
    losses, gradients = [], []
    for loss in (objective.loss(model, blocks, 0), model(input_ids=blocks, labels=blocks).loss):
        model.zero_grad()
        loss.backward()
        losses.append(loss.item())
        gradients.append({n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None})
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    assert gradients[0].keys() == gradients[1].keys()
    for n, gradient in gradients[1].items():
        torch.testing.assert_close(gradients[0][n], gradient, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_masked_loss_is_that_of_transformers(name, place):
    _, model, objective = built(place, name, MASKED)
    assert objective.separable
    blocks = torch.randint(5, 300, (5, 16), generator=torch.Generator().manual_seed(0))
    masked, labels = objective.masked(blocks, 3)
    expected = model.eval()(input_ids=masked, labels=labels).loss.item()
    assert objective.loss(model, blocks, 3).item() == pytest.approx(expected, rel=1e-6)
    assert objective.masked_loss(model, masked, torch.full_like(labels, -100)).item() == 0


@pytest.mark.parametrize("bias", [False, True])
def test_the_loss_over_a_vocabulary_is_the_plain_one(bias):
    draw = torch.Generator().manual_seed(0)
    n = 2 * ROWS + 7  # three blocks
    hidden, weight = torch.randn(n, 12, generator=draw), torch.randn(50, 12, generator=draw)
    offset = torch.randn(50, generator=draw) if bias else None
    labels = torch.randint(50, (n,), generator=draw)
    leaves = [x.requires_grad_() for x in (hidden, weight, offset) if x is not None]
    found = vocabulary_loss(hidden, weight, offset, labels)
    expected = torch.nn.functional.cross_entropy(torch.nn.functional.linear(hidden, weight, offset), labels)
    assert found.item() == pytest.approx(expected.item(), rel=1e-6)
    ours = torch.autograd.grad(3 * found, leaves)
    for mine, theirs in zip(ours, torch.autograd.grad(3 * expected, leaves), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-7)
    with torch.no_grad():
        assert vocabulary_loss(hidden, weight, offset, labels).item() == found.item()
    with torch.autocast("cpu", torch.bfloat16):
        rounded = vocabulary_loss(hidden, weight, offset, labels)
    assert rounded.item() == pytest.approx(expected.item(), rel=2e-2)
    assert rounded.item() != expected.item()


def slow_nats(model, ids: torch.Tensor, context: int) -> float:
    """The loss of each piece by itself, given all pieces of its window before it."""
    nats, stride, n = 0.0, context // 2, len(ids)
    for i in range(1, n):
        window = 0 if i < context else (i - context) // stride + 1
        start = min(window * stride, max(0, n - context))
        logits = model(input_ids=ids[None, start:i]).logits[0, -1]
        nats -= float(torch.log_softmax(logits, 0)[ids[i]])
    return nats


@pytest.mark.parametrize("n", [2, 9, 16, 17, 24, 61])
@torch.no_grad()
def test_perplexity_is_that_of_a_slow_twin_and_bits_are_per_byte(n, place):
    _, model, objective = built(place, "gpt2", CAUSAL)
    model.eval()
    ids = torch.randint(300, (n,), generator=torch.Generator().manual_seed(n))
    text = Pieces(ids.numpy().astype(np.int32), 123)
    found = [evaluate(model, objective, text, context=16, batch_size=size) for size in (1, 2, 64)]
    nats = slow_nats(model, ids, 16)
    for one in found:
        assert one["log-loss"] == pytest.approx(nats / (n - 1), rel=1e-5)
        assert one["perplexity"] == pytest.approx(math.exp(nats / (n - 1)), rel=1e-5)
        assert one["bits-per-byte"] == pytest.approx(nats / math.log(2) / 123, rel=1e-5)


def test_masked_evaluation_does_not_depend_on_the_batch_size(place):
    tokenizer, model, objective = built(place, "bert", MASKED)
    text = to_pieces(tokenizer, [open_text(place / "toy.txt")])
    found = [evaluate(model, objective, text, context=16, batch_size=size)["log-loss"] for size in (7, 50)]
    assert found == pytest.approx([found[0]] * 2, rel=1e-6)


def test_shares_of_masks():
    objective = Objective(MASKED, 1000, mask=3, around=(1, 2))
    blocks = torch.full((400, 128), 7)
    blocks[:, 0], blocks[:, -1] = 1, 2
    masked, labels = objective.masked(blocks, 0)
    chosen = labels != -100
    assert not chosen[:, [0, -1]].any()
    assert torch.equal(labels[chosen], blocks[chosen])
    assert torch.equal(masked[~chosen], blocks[~chosen])
    n = 400 * 126
    shares = {
        "chosen": (int(chosen.sum()), n, 0.15),
        "hidden": (int((masked[chosen] == 3).sum()), int(chosen.sum()), 0.8 + 0.1 / 1000),
        "the same": (int((masked[chosen] == 7).sum()), int(chosen.sum()), 0.1 + 0.1 / 1000),
    }
    for name, (count, total, p) in shares.items():
        assert abs(count / total - p) < 4 * math.sqrt(p * (1 - p) / total), name
    assert torch.equal(objective.masked(blocks, 0)[0], masked)
    assert not torch.equal(objective.masked(blocks, 1)[0], masked)


def test_order_is_a_permutation_of_each_epoch_and_does_not_depend_on_the_past():
    blocks = np.arange(20, dtype=np.int32).reshape(10, 2)
    stream = Stream(blocks, 4, seed=5)
    epochs = [torch.cat([stream.batch(3 * e + i) for i in range(3)]) for e in (0, 1)]
    for epoch in epochs:
        assert sorted(epoch[:, 0].tolist()) == blocks[:, 0].tolist()
    assert not torch.equal(*epochs)
    assert torch.equal(Stream(blocks, 4, seed=5).batch(4), epochs[1][4:8])


def test_tokenizers_read_every_text(place):
    text = open_text(place / "toy.txt")
    for masked in (False, True):
        tokenizer = train_tokenizer(text.lines(), 300, masked=masked)
        assert len(tokenizer) <= 300
        strange = "a\x00b é 漢字 \r\n\t "
        assert tokenizer.decode(tokenizer(strange, add_special_tokens=False)["input_ids"]) == strange
    assert tokenizer.tokenize("x", add_special_tokens=True)[0] == "<s>"


def test_pieces_are_all_of_the_text_with_an_end_after_each(place):
    tokenizer = tokenizer_of(place, masked=False)
    train, dev = open_text(place / "toy.txt").divide(0.1)
    assert (len(train), len(dev)) == (360, 40)
    pieces = to_pieces(tokenizer, [train, dev])
    assert tokenizer.decode(pieces.ids).split("<|endoftext|>") == [
        "".join(sentences(400)[:360]), "".join(sentences(400)[360:]), ""
    ]  # fmt: skip
    assert pieces.bytes == (place / "toy.txt").stat().st_size
    blocks = pieces.blocks(10, (1, 2))
    assert blocks.shape == (len(pieces.ids) // 8, 10)
    assert np.array_equal(blocks[:, 1:-1].ravel(), pieces.ids[: blocks[:, 1:-1].size])
    assert set(blocks[:, 0]) == {1}
    assert set(blocks[:, -1]) == {2}


def test_a_run_is_a_model_with_its_head(place):
    run = pretrain(place, "run", save_at="0,4")
    first, last = run.rows[run.rows["metric"] == "perplexity"]["value"].iloc[[0, -1]]
    assert last < first < 600
    assert run.metrics["perplexity"] == last
    assert run.card["parameters"] == sum(p.numel() for p in AutoModelForCausalLM.from_pretrained(run.path).parameters())
    model, tokenizer = AutoModelForCausalLM.from_pretrained(run.path).eval(), AutoTokenizer.from_pretrained(run.path)
    _, dev = open_text(place / "toy.txt").divide(0.05)
    held = to_pieces(tokenizer, [dev])
    again = evaluate(model, Objective(CAUSAL, 300, separable=True), held, context=16, batch_size=3)
    assert again["perplexity"] == pytest.approx(last, rel=1e-5)
    with torch.no_grad():
        nats = slow_nats(model, torch.from_numpy(held.ids).long(), 16)
    assert run.metrics["bits-per-byte"] == pytest.approx(nats / math.log(2) / held.bytes, rel=1e-5)
    assert run.rows[["model", "checkpoint", "regime"]].drop_duplicates().values.tolist() == [["run", "run", "pretrain"]]
    assert set(run.rows["step"]) == {0, 3, 4, 6, run.card["step"]}
    assert run.recipe.words()[:2] == ["probekit", "pretrain"]


def test_a_finished_run_is_shown_and_another_is_not_replaced(place):
    before = (place / "run/model.safetensors").stat().st_mtime_ns
    pretrain(place, "run", save_at="0,4")
    assert (place / "run/model.safetensors").stat().st_mtime_ns == before
    with pytest.raises(UsageError, match="holds another run: its seed is 0, not 1"):
        pretrain(place, "run", seed=1)
    (place / "full").mkdir()
    (place / "full/mine.txt").write_text("x")
    for overwrite, message in ((False, "a folder with other files"), (True, "does not hold a run and is not deleted")):
        with pytest.raises(UsageError, match=message):
            pretrain(place, "full", overwrite=overwrite)
    pretrain(place, "again", save_at="0,4")
    assert pretrain(place, "again", seed=1, overwrite=True).card["seeds"] == {"seed": 1}
    assert not (place / "again/step-4").exists()


def test_the_same_seed_gives_the_same_bytes_and_another_does_not(place):
    pretrain(place, "same", save_at="0,4")
    digest = {name: (place / name / "model.safetensors").read_bytes() for name in ("run", "same")}
    assert digest["run"] == digest["same"]
    pretrain(place, "other", seed=1)
    assert (place / "other/model.safetensors").read_bytes() != digest["run"]


PROGRAM = """
import sys, probekit
probekit.pretrain(sys.argv[1], sys.argv[2], tokenizer="train:300", config=sys.argv[3], context=16, batch_size=8,
    epochs=3, evaluate_every=4, save_at="5,30", warmup=0.2)
"""


@pytest.mark.slow  # 30 s
def test_a_killed_run_resumes_to_the_same_bytes(place):
    config = {**GPT2, "resid_pdrop": 0.1}
    (place / "dropout.json").write_text(json.dumps(config))
    words = [place / "toy.txt", place / "killed", place / "dropout.json"]
    kills = 0
    for _ in range(40):
        process = subprocess.Popen([sys.executable, "-c", PROGRAM, *map(str, words)])
        while process.poll() is None and kills < 3:
            found = list((place / "killed/.resume").glob(f"checkpoint-{8 * (kills + 1)}"))
            if found:
                process.send_signal(signal.SIGKILL)
                kills += 1
                break
            time.sleep(0.01)
        if process.wait() == 0:
            break
    assert kills == 3
    subprocess.run([sys.executable, "-c", PROGRAM, *map(str, [words[0], place / "whole", words[2]])], check=True)
    for name in ("model.safetensors", "step-5/model.safetensors", "step-30/model.safetensors", "tokenizer.json"):
        assert (place / "killed" / name).read_bytes() == (place / "whole" / name).read_bytes(), name
    rows = [
        probekit.read(place / name / "rows.parquet").rows.drop(columns=["model", "checkpoint"])
        for name in ("killed", "whole")
    ]
    assert rows[0].equals(rows[1])


def interrupted(place: Path, out: str) -> None:
    """A run that ends after the evaluation at step 6."""

    def stop(stage: str, done: int, total: int | None, **_) -> None:
        if stage == "training" and done > 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pretrain(place, out, progress=stop, save_at="0,4")


def test_a_damaged_checkpoint_is_not_used(place, caplog):
    interrupted(place, "damaged")
    weights = place / "damaged/.resume/checkpoint-6/model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    pretrain(place, "damaged", save_at="0,4")
    assert "an earlier checkpoint is used instead" in caplog.text
    assert (place / "damaged/model.safetensors").read_bytes() == (place / "run/model.safetensors").read_bytes()


def test_a_loss_that_is_not_finite_ends_the_run(place):
    with pytest.raises(
        NonFiniteError,
        match=r"the loss is .* and the norm of its gradient (nan|inf) at step \d+ of 60, at a learning rate of",
    ):
        pretrain(place, "diverged", learning_rate=1e30, max_grad_norm=0, warmup=0, epochs=2)
    pretrain(place, "diverged", save_at="0,4")  # makes room for other options


def bad(folder: Path, content: bytes) -> Path:
    (folder / "bad.txt").write_bytes(content)
    return folder


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (b"", {}, "bad.txt is empty"),
        (b" \n\n", {}, "bad.txt is empty"),
        (b"one line\n", {}, "has one line, which cannot be divided"),
        (b"fine\nalso\nb\xe4d\n", {}, r"bad.txt, line 3: not UTF-8 \(byte 0xe4\)"),
        (b"too\nshort\n", {}, "fewer than one sequence of 16"),
        (b"the cat sees\n" * 50, {"context": 24, "objective": "masked-lm", "config": "bert", "validation": 0.01},
         "the held-out text has"),
    ],
)  # fmt: skip
def test_bad_texts(content, options, message, place):
    if "config" in options:
        options = options | {"config": str(place / f"{options['config']}.json")}
    with pytest.raises(DataError, match=message):
        pretrain(bad(place, content), "bad", "bad.txt", **options)


def test_missing_texts(place):
    with pytest.raises(DataError, match="none.txt cannot be read"):
        pretrain(place, "bad", "none.txt")
    with pytest.raises(UsageError, match="no text was given"):
        probekit.pretrain([], place / "bad")


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"config": "gpt2-mni"}, UsageError, "gpt2-mini"),
        ({"config": "{place}/llama.json", "context": 41}, UsageError, "reads at most 40 pieces"),
        ({"config": "{place}/roberta.json", "objective": "masked-lm", "context": 40}, ModelError, "reads 40 pieces"),
        ({"config": "{place}/toy.txt"}, ModelError, "is not JSON"),
        ({"tokenizer": "train:100"}, UsageError, "need 300"),
        ({"tokenizer": "train:many"}, UsageError, "expected train:N"),
        ({"tokenizer": "{place}/run", "objective": "masked-lm"}, UsageError, "has no piece for masks"),
        ({"objective": "denoising"}, UsageError, "causal-lm"),
        ({"dtype": "float16"}, UsageError, "float16"),
        ({"dtype": "half"}, UsageError, "it must be one of float32, float16, bfloat16"),
        ({"epochs": math.nan}, UsageError, "epochs is nan"),
        ({"context": 2}, UsageError, "context is 2; it must be 8 or more"),
        ({"save_at": "900"}, UsageError, "step 900; the run has steps 0 to"),
    ],
)
def test_bad_options(options, kind, message, place):
    options = {k: v.format(place=place) if isinstance(v, str) else v for k, v in options.items()}
    with pytest.raises(kind, match=message):
        pretrain(place, "bad", **options)


@pytest.mark.slow
def test_masked_model_with_the_tokenizer_of_another(place):
    run = pretrain(place, "masked", objective="masked-lm", config=str(place / "roberta.json"))
    assert set(run.metrics) == {"perplexity", "log-loss"}
    run = pretrain(
        place, "second", objective="masked-lm", config=str(place / "bert.json"), tokenizer=str(place / "masked"),
        dtype="bfloat16", dev=[place / "toy.txt"],
    )  # fmt: skip
    assert (place / "second/tokenizer.json").read_bytes() == (place / "masked/tokenizer.json").read_bytes()
    assert "cls.predictions.decoder.weight" in load_file(run.path / "model.safetensors") or any(
        "predictions" in name for name in load_file(run.path / "model.safetensors")
    )


@pytest.mark.parametrize("name", [pytest.param("run", marks=pytest.mark.slow), "run/step-4"])
def test_caches_of_checkpoints_are_named_by_model_and_step(name, place):
    model = place / name
    cache = probekit.cache_activations(model, "grammar:sentiment", "dev", limit=8, out=place / "cache.h5")
    with cache:
        step = 4 if "step" in name else json.loads((model / "probekit.json").read_text())["step"]
        assert (cache.spec["model"], cache.spec["checkpoint"], cache.spec["step"]) == ("run", "run", step)
        assert np.isfinite(cache.layer(2)).all()
    (place / "cache.h5").unlink()
    with probekit.cache_activations(
        model, "grammar:sentiment", "dev", limit=8, out=place / "cache.h5", random_weights=0
    ) as cache:
        assert "checkpoint" not in cache.spec
        assert cache.spec["random_weights"] == 0
    (place / "cache.h5").unlink()


def test_the_command(place, capsys):
    words = [
        *("--text", place / "toy.txt", "--out", place / "run", "--tokenizer", "train:300"),
        *("--config", place / "gpt2.json", "--context", 16, "--batch-size", 8, "--epochs", 0.25),
        *("--evaluate-every", 3),
    ]
    assert main(["pretrain", *map(str, words)]) == 0
    shown = capsys.readouterr().out
    assert "perplexity" in shown
    assert "bits per byte" in shown
    assert f"Next: probekit cache-activations --model {place / 'run'}" in shown
    assert main(["pretrain", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "probekit pretrain --text wiki.txt" in shown
    assert all(f"--{name}" in shown for name in ("objective", "config", "tokenizer", "save-at", "evaluate-every"))
    assert main(["pretrain", "--text", str(place / "none.txt"), "--out", str(place / "bad")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_run_of_pretraining_has_nothing_to_evaluate(place):
    with pytest.raises(UsageError, match="is a language model from probekit pretrain"):
        probekit.evaluate(place / "run", task=["grammar:sentiment"], split="dev")
    with pytest.raises(UsageError, match="is a language model from probekit pretrain, which has no task"):
        probekit.guidelines(place / "run", place / "run")
    with pytest.raises(UsageError, match="the rows contain no training runs"):
        probekit.table("regimes", place / "run/rows.parquet")


@pytest.mark.slow
@pytest.mark.parametrize("threads", [pytest.param(1, marks=pytest.mark.slow), 3])  # with -n, 1 is the default
def test_card_reproduces_the_rows_whatever_the_number_of_threads(place, capsys, threads):
    with torch_threads(threads):
        pretrain(place, f"run{threads}")
    assert main(["reproduce", str(place / f"run{threads}/rows.parquet.json")]) == 0
    assert "reproduced to the bit" in capsys.readouterr().out


def test_bfloat16_trains_as_far_and_leaves_the_same_configuration(place):
    run, plain = pretrain(place, "rounded", dtype="bfloat16"), place / "run"
    assert (run.path / "config.json").read_text() == (plain / "config.json").read_text()
    expected = json.loads((plain / "probekit.json").read_text())["metrics"]["log-loss"]
    assert run.metrics["log-loss"] == pytest.approx(expected, rel=1e-2)
    assert run.metrics["log-loss"] != expected


def test_fast_kernels_give_the_same_loss_and_gradients(place):
    _, model, objective = built(place, "gpt2", CAUSAL)
    blocks = torch.randint(300, (5, 16), generator=torch.Generator().manual_seed(0))
    found = []
    for _ in range(2):
        model.eval().zero_grad()
        loss = objective.loss(model, blocks, 0)
        loss.backward()
        found.append((loss.item(), [p.grad.clone() for p in model.parameters()]))
        use_fast_kernels(model, Dtype.FLOAT32, 16)
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-6)
    for plain, fast in zip(found[0][1], found[1][1], strict=True):
        torch.testing.assert_close(fast, plain, rtol=1e-4, atol=1e-6)
