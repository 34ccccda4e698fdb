"""Responses of a causal language model: its loss, what it generates, its metrics, and a run that transformers loads."""

import json

import numpy as np
import pytest
import torch
from lessons import Stop, stopping
from nltk.translate.chrf_score import sentence_chrf
from tiny import tiny_model
from transformers import AutoConfig, AutoModelForCausalLM

from probekit.adaptation.evaluate import evaluate
from probekit.adaptation.heads.response import continued
from probekit.adaptation.train import train
from probekit.errors import UsageError
from probekit.metrics import chrf, distinct
from probekit.models import load_encoder
from probekit.tasks import load_task

SHORT = {"epochs": 2, "batch_size": 4, "device": "cpu", "max_new_tokens": 6, "learning_rate": 1e-3}


@pytest.fixture(scope="module", params=[pytest.param("gpt2", marks=pytest.mark.slow), "llama"])
def causal(request, tmp_path_factory):
    """A tiny language model: GPT-2 shares its embeddings with the head, this Llama does not."""
    folder = tiny_model(request.param, tmp_path_factory.mktemp(request.param))
    config = AutoConfig.from_pretrained(folder, tie_word_embeddings=request.param == "gpt2")
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder


@pytest.fixture
def chat(tmp_path):
    """Each animal has its answer."""
    rows = [
        {"say": f"{a} {i}", "reply": "the cat" if i % 2 else "no", "who": f"d{i // 2}"}
        for i, a in enumerate(["the cat", "a dog"] * 8)
    ]
    for name in ("train", "dev"):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    toml = tmp_path / "chat.toml"
    toml.write_text(
        'type = "response-generation"\ntext = "say"\npair = "reply"\ngroups = "who"\n'
        '[splits]\ntrain = "train.jsonl"\ndev = "dev.jsonl"\n'
    )
    return toml


def library(folder, task, *, most=6):
    """Nats per piece, and greedy texts, from transformers alone, one example at a time."""
    from transformers import AutoTokenizer

    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    end, nats, count, texts = tokenizer.eos_token_id, 0.0, 0, []
    for e in task.split("dev"):
        first, second = (tokenizer(text, add_special_tokens=False).input_ids for text in (e.text, e.pair))
        first, second = [*first, end], [*second, end]
        ids = torch.tensor([first + second])
        labels = torch.tensor([[-100] * len(first) + second])
        with torch.no_grad():
            nats += float(model(input_ids=ids, labels=labels).loss) * len(second)
        count += len(second)
        prompt = torch.tensor([first])
        made = model.generate(
            prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=most, pad_token_id=end,
            eos_token_id=end,
        )[0, len(first) :].tolist()  # fmt: skip
        texts.append(tokenizer.decode(made, skip_special_tokens=True).strip())
    return nats / count, texts


def test_a_run_is_transformers_own_model_with_the_same_loss_and_texts(causal, chat, tmp_path):
    run = train(chat, causal, tmp_path / "run", **SHORT)
    loss, texts = library(tmp_path / "run", load_task(str(chat)))
    assert run.metrics["loss"] == pytest.approx(loss, rel=1e-5)
    assert run.metrics["perplexity"] == pytest.approx(np.exp(loss), rel=1e-5)
    (found,) = run.predictions
    assert found.predicted[0].tolist() == texts
    assert found.gold.tolist() == [e.pair for e in load_task(str(chat)).split("dev")]
    assert found.prompts.tolist() == [e.text for e in load_task(str(chat)).split("dev")]
    assert run.metrics["distinct-2"] == distinct(texts, 2)
    assert list(run.metrics) == ["perplexity", "chrf", "distinct-1", "distinct-2", "loss"]
    best = run.rows[run.rows["headline"].eq(True)].iloc[0]
    assert best["metric"] == "perplexity"
    assert best["ci_low"] < best["value"] < best["ci_high"]
    again = evaluate(tmp_path / "run", split="dev", device="cpu", batch_size=5)
    value = again.rows.set_index("metric")["value"]
    assert value["chrf"] == pytest.approx(run.metrics["chrf"])
    assert value["perplexity"] == pytest.approx(run.metrics["perplexity"], rel=1e-5)
    assert (
        load_encoder(tmp_path / "run", device="cpu").spec["model_type"] == AutoConfig.from_pretrained(causal).model_type
    )


@pytest.mark.slow
def test_interrupted_and_resumed_equals_uninterrupted(causal, chat, tmp_path):
    how = SHORT | {"decoding": "sample"}
    whole = train(chat, causal, tmp_path / "a" / "run", **how)
    with pytest.raises(Stop):
        train(chat, causal, tmp_path / "b" / "run", progress=stopping(5), **how)
    again = train(chat, causal, tmp_path / "b" / "run", **how)
    for name in ("model.safetensors", "head.safetensors"):
        assert (tmp_path / "a/run" / name).read_bytes() == (tmp_path / "b/run" / name).read_bytes()
    assert whole.predictions[0].predicted.tolist() == again.predictions[0].predicted.tolist()


def test_drawn_pieces_follow_the_softmax_and_depend_on_no_other_prompt(causal):
    model = AutoModelForCausalLM.from_pretrained(causal).eval()
    encoder, head = model.base_model, model.get_output_embeddings()
    prompt, n = [5, 9, 11], 4000

    def draws(count):
        return [torch.Generator().manual_seed(i) for i in range(count)]

    first = [ids[0] if ids else 0 for ids in continued(encoder, head, [prompt] * n, [1] * n, 0, draws(n))]
    with torch.no_grad():
        shares = model(torch.tensor([prompt])).logits[0, -1].softmax(-1).numpy()
    got = np.bincount(first, minlength=len(shares)) / n
    assert np.abs(got - shares).max() < 5 * np.sqrt(shares.max() / n)
    alone = continued(encoder, head, [prompt], [5], 0, draws(1))
    assert continued(encoder, head, [prompt, [3] * 7], [5, 3], 0, draws(2))[0] == alone[0]


def test_chrf_and_distinct_by_hand():
    """chrF of "abc" and "ab": precisions 1, 1, 0; recalls 2/3, 1/2, 0. nltk takes the mean of the F instead."""
    p, r = 2 / 3, (2 / 3 + 1 / 2) / 3
    assert chrf("a bc", "ab") == pytest.approx(10 * p * r / (9 * p + r), abs=1e-15)
    assert chrf("abcdef", "abcdef") == 1 == sentence_chrf("abcdef", "abcdef")
    assert chrf("abc", "ab") != pytest.approx(sentence_chrf("abc", "ab", max_len=3), abs=1e-4)
    assert chrf("abcdefg", "abcdxfg") == pytest.approx((6 / 7 + 4 / 6 + 2 / 5 + 1 / 4) / 6, abs=1e-15)  # P = R
    assert (chrf("no", ""), chrf("ab", "cd")) == (0, 0)
    assert distinct(["a b a", "b a"], 1) == 2 / 5
    assert distinct(["a b a", "b a"], 2) == 2 / 5  # "a b" and "b a"


def test_what_cannot_be_is_told(chat, tiny_bert, tiny_gpt2, tmp_path):
    for model in (tiny_bert, tiny_gpt2):
        with pytest.raises(UsageError, match="has no head of a causal language model"):
            train(chat, model, tmp_path / "run", **SHORT)
    with pytest.raises(UsageError, match="response-generation"):
        train(chat, tiny_gpt2, tmp_path / "run", regime="feature-extraction")
    with pytest.raises(UsageError, match="leave out --method"):
        train(chat, tiny_gpt2, tmp_path / "run", method="lora", **SHORT)
    with pytest.raises(UsageError, match="are for tasks of responses"):
        train("grammar:sentiment", tiny_bert, tmp_path / "run", max_new_tokens=3, device="cpu")


def test_dialogues_become_neighbouring_turns(tmp_path):
    (tmp_path / "dialogues_train.txt").write_text("Hi . __eou__ Hello . __eou__ Bye . __eou__\nA __eou__ B __eou__\n")
    (tmp_path / "TwitterConvCorpus.txt").write_text("a\nb\nc\n\n\n\nd\n\n\n\ne\nf\n")
    (tmp_path / "twitter_conversations").mkdir()  # where several data sets are kept together
    (tmp_path / "TwitterConvCorpus.txt").rename(tmp_path / "twitter_conversations/TwitterConvCorpus.txt")
    daily, tweets = (load_task(name, tmp_path).split("train") for name in ("dailydialog", "twitter-conversations"))
    assert [(e.text, e.pair, e.group) for e in daily] == [
        ("Hi .", "Hello .", "0"),
        ("Hello .", "Bye .", "0"),
        ("A", "B", "1"),
    ]
    assert [(e.text, e.pair) for e in tweets] == [("a", "b"), ("b", "c"), ("e", "f")]
