"""Positions, conversations and spans in one pass: a row is that of a cache with the same options."""

import json
from dataclasses import replace

import numpy as np
import pytest
from builders import chat_model
from chat_templates import GEMMA

import probekit
from probekit.analyses.stream.state import read_state
from probekit.errors import UsageError
from probekit.models import load_encoder
from probekit.tasks import load_task
from probekit.tasks.task import Example, Span, Split, Target, Task, TaskKind

QUICK = {"resamples": 0, "controls": 0, "chunk": 16, "analysis": ("mass-mean",), "shrinkages": (0.5,)}
SIZES = {"train": 40, "dev": 16}
WORDS = ("cat", "dog", "bird", "old", "small", "good")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return load_encoder(chat_model(tmp_path_factory.mktemp("model")), device="cpu")


@pytest.fixture(scope="module")
def chats(tmp_path_factory):
    """Conversations whose answer is good or not; some have a system message, and the last one has no answer."""
    folder, rng = tmp_path_factory.mktemp("chats"), np.random.default_rng(0)
    for split, n in SIZES.items():
        lines = []
        for i in range(n):
            asked, said = (" ".join(rng.choice(WORDS[:5], size=int(rng.integers(1, 5)))) for _ in range(2))
            good = int(rng.integers(2))
            turns = [{"role": "system", "content": "be old"}] if i % 3 == 0 else []
            turns += [{"role": "user", "content": f"{asked}?"}]
            turns += [{"role": "assistant", "content": f"{said} good" if good else said}] if i < n - 1 else []
            lines.append(json.dumps({"messages": turns, "label": ("no", "yes")[good]}))
        (folder / f"{split}.jsonl").write_text("\n".join(lines))
    (path := folder / "chats.toml").write_text(
        'messages = "messages"\nlabels = ["no", "yes"]\n[splits]\ntrain = "train.jsonl"\ndev = "dev.jsonl"\n'
    )
    (folder / "gemma.jinja").write_text(GEMMA)
    return path


def spans_of(kind: str) -> Task:
    """Two labelled targets of each sentence: spans, pairs of spans, or a span in each of two texts; one recurs."""
    rng, splits = np.random.default_rng(1), {}
    for split, n in SIZES.items():
        sentences = [tuple(str(w) for w in rng.choice(WORDS, size=5)) for _ in range(n)]
        sentences[3] = sentences[1]
        found = []
        for i, words in enumerate(sentences):
            text, ends = " ".join(words), np.cumsum([len(w) + 1 for w in words]) - 1
            targets = []
            for j in (0, 2):
                of = [Span(j, j + 2), *([Span(4, 5)] if kind == "pairs" else [])]
                if kind == "texts":  # in characters
                    of = [Span(int(ends[j]) - 1, int(ends[j + 1])), Span(0, 3, second=True)]
                targets.append(Target(tuple(of), int("good" in words[j : j + 2])))
            two = {"pair": " ".join(words[::-1])} if kind == "texts" else {"words": words}
            found.append(Example(f"{split}{i}", text, targets=tuple(targets), **two))
        splits[split] = Split(split, tuple(found))
    return Task(kind, TaskKind.SPAN_LABELLING, splits, ("no", "yes"), ("accuracy",))


def same(encoder, task, folder, how, span=None):
    """Stream and probe caches, and compare what is said of dev; the state, and the cache of train."""
    state, caches = folder / "state.npz", [folder / f"{split}.h5" for split in SIZES]
    ours = probekit.stream(encoder, task, state=state, span=span, **QUICK, **how).predictions[0]
    for split, path in zip(SIZES, caches, strict=True):
        probekit.cache_activations(encoder, task, split, out=path, **how).close()
    cached = {"estimator": "mass-mean", "penalties": (0.5,), "resamples": 0, "controls": 0, "span": span}
    theirs = probekit.probe(*caches, **cached).predictions[0]
    ours, theirs = (one.take((one.fits["estimator"] == "mass-mean").to_numpy(bool)) for one in (ours, theirs))
    assert (ours.ids == theirs.ids).all()
    assert (ours.gold[0] == theirs.gold[0]).all()
    assert np.abs(ours.probabilities - theirs.probabilities).max() < 1e-6
    assert (ours.fits["representation"] == theirs.fits["representation"].iloc[0]).all()
    return read_state(state), caches[0]


@pytest.mark.parametrize(("positions", "pooling"), [("roles:assistant,template", None), ("last:4", "ema:.8")])
def test_a_row_of_a_conversation_is_that_of_a_cache(encoder, chats, tmp_path, positions, pooling):
    how = {"positions": positions, **({"pooling": pooling} if pooling else {})}
    state, train = same(encoder, load_task(str(chats)), tmp_path, how)
    with probekit.ActivationCache(train) as cache:
        for layer in cache.layers:
            ours, theirs = state.sample.columns[f"x/{layer}"], np.asarray(cache.layer(layer))
            assert sorted(row.tobytes() for row in ours) == sorted(row.tobytes() for row in theirs)


@pytest.mark.parametrize(
    ("kind", "span", "how"),
    [
        ("spans", None, {}),
        pytest.param("texts", "mean", {}, marks=pytest.mark.slow),
        pytest.param("pairs", "mean", {}, marks=pytest.mark.slow),
        pytest.param("texts", None, {"pairs": "separate"}, marks=pytest.mark.slow),
    ],
)
def test_a_row_of_a_span_is_that_of_a_cache(encoder, tmp_path, kind, span, how):
    state, _ = same(encoder, spans_of(kind), tmp_path, how, span)
    assert state.counts["rows"] == 2 * SIZES["train"]


def test_conversations_without_an_answer(encoder, chats, tmp_path, caplog):
    """They are an error, or are left out in train and dev and counted; parts and chunks change nothing."""
    how = {**QUICK, "positions": "roles:assistant", "stream": True}
    task = str(chats)
    with pytest.raises(UsageError, match=r"1 of 40 examples of chats have no piece .*roles:assistant; .*--leave-out"):
        probekit.stream(encoder, task, **how)
    how["leave_out"] = True
    found = probekit.stream(encoder, task, **how).predictions[0]
    assert "chats train: 1 of 40 texts are left out, because no piece is there." in caplog.text
    assert (found.fits["n_train"] == 39).all()
    assert (found.fits[["left_out_train", "left_out_dev"]] == 1).all(None)
    assert len(found.ids) == SIZES["dev"] - 1
    parts = tuple(str(tmp_path / f"{i}.npz") for i in (1, 2))
    for i, part in enumerate(parts, 1):
        probekit.stream(encoder, task, part=f"{i}/2", state=part, **how)
    again = probekit.stream(encoder, task, merge=parts, **how).predictions[0]
    assert np.abs(again.probabilities - found.probabilities).max() < 1e-6
    with pytest.raises(UsageError, match="positions is 'roles:assistant' in the file and 'last' now"):
        probekit.stream(encoder, task, merge=parts, **how | {"positions": "last"})


def test_another_template_gives_other_numbers(encoder, chats):
    found = [
        probekit.stream(encoder, str(chats), positions="last", chat_template=template, **QUICK).predictions[0]
        for template in (None, str(chats.with_name("gemma.jinja")))
    ]
    assert not (found[0].probabilities == found[1].probabilities).all()


def test_what_does_not_fit(encoder, chats):
    several = Target((Span(0, 1),), (0, 1))
    many = Split("train", (Example("0", "a cat", words=("a", "cat"), targets=(several,)),))
    word = Split("train", (Example("0", "a cat", (0, 1), words=("a", "cat")),))
    labelled, spans, pairs = {"train": many, "dev": many}, spans_of("spans"), spans_of("pairs").split("dev")
    for task, how, message in (
        (str(chats), {"positions": "middle"}, "positions is 'middle'"),
        (str(chats), {"positions": "span"}, "chats has no spans, which --positions span needs"),
        (str(chats), {"span": "mean"}, "of conversations, --positions span pools the pieces of a span"),
        (str(chats), {"pooling": "mean,last"}, "a stream has one pooling, not mean,last"),
        (str(chats), {"leave_out": True}, "--leave-out is of texts without a piece at --positions"),
        (spans_of("spans"), {"pooling": "mean"}, "spans labels spans; leave out --pooling"),
        (Task("many", TaskKind.SPAN_LABELLING, labelled, ("a", "b"), ("accuracy",)), {}, "several labels of a span"),
        (
            replace(spans, splits=spans.splits | {"dev": pairs}), {},
            "a target of example 'dev0' has 2 spans; those of the first texts have one label of 1. All splits need",
        ),
        (
            replace(spans, splits=spans.splits | {"dev": many}), {}, "a target of example '0' has several labels",
        ),
        (
            Task("words", TaskKind.SEQUENCE_LABELLING, {"train": word, "dev": word}, ("a", "b"), ("accuracy",)),
            {"positions": "last"}, "words labels words, which are read one by one; leave out --pooling and --positions",
        ),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=message):
            probekit.stream(encoder, task, **QUICK, **how)


def test_a_state_of_texts_is_not_one_of_their_spans(encoder, tmp_path):
    """The mean of a span, and the mean of its text, have one name in rows, and the same widths."""
    examples = tuple(Example(str(i), "a good cat", i % 2, spans=(Span(0, 6),)) for i in range(20))
    task = Task("marked", TaskKind.CLASSIFICATION, {n: Split(n, examples) for n in SIZES}, ("a", "b"), ("accuracy",))
    how = {**QUICK, "analysis": ("cka",), "state": tmp_path / "state.npz"}
    probekit.stream(encoder, task, **how)
    with pytest.raises(UsageError, match="span is None in the file and 'mean' now"):
        probekit.stream(encoder, task, span="mean", **how)
    how["state"] = tmp_path / "spans.npz"
    probekit.stream(encoder, task, span="mean", **how)
    with pytest.raises(UsageError, match="span is 'mean' in the file and None now"):
        probekit.stream(encoder, task, **how)
