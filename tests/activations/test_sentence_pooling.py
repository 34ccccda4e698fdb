"""The pooling "sentence": the vectors that sentence-transformers itself makes, at the last layer."""

import json

import numpy as np
import pytest
import torch

from probekit import cache_activations
from probekit.activations.pooling import Segments, Sentence, pool, poolings
from probekit.activations.sentence import own_pooling
from probekit.errors import ModelError, UsageError

MODULES = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")]


def folder_of(place, modules=MODULES, pooling=None, **more):
    """A folder with the modules of sentence-transformers, and further files."""
    (place / "1_Pooling").mkdir(parents=True, exist_ok=True)
    listed = [
        {"idx": i, "path": path, "type": f"sentence_transformers.models.{t}"} for i, (t, path) in enumerate(modules)
    ]
    files = {"modules.json": listed, "1_Pooling/config.json": pooling or {"pooling_mode_cls_token": True}} | more
    for name, content in files.items():
        (place / name).write_text(json.dumps(content))
    return place


@pytest.mark.parametrize("mode", Sentence.MODES)
def test_a_vector_is_that_of_all_pieces_of_its_text_alone(mode):
    rng = np.random.default_rng(0)
    length = np.array([1, 2, 4, 4])
    hidden = torch.from_numpy(rng.normal(size=(11, 5))).double()
    segments = Segments.of(length, np.ones(11, bool))
    right = []
    for x in hidden.split(length.tolist()):
        place = torch.arange(1.0, len(x) + 1).double()[:, None]
        right.append(
            {
                "mean": x.mean(0), "cls": x[0], "lasttoken": x[-1], "max": x.max(0).values,
                "mean_sqrt_len_tokens": x.sum(0) / len(x) ** 0.5, "weightedmean": (x * place).sum(0) / place.sum(),
            }[mode]
        )  # fmt: skip
    found = pool(hidden.float(), segments, Sentence(f"sentence:{mode}"))
    torch.testing.assert_close(found.double(), torch.stack(right), rtol=1e-6, atol=1e-6)
    unit = pool(hidden.float(), segments, *poolings(f"sentence:{mode}:unit"))
    torch.testing.assert_close(unit, found / found.norm(dim=1, keepdim=True))


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"modules": [*MODULES, ("Dense", "3_Dense")]}, "Transformer, Pooling, Normalize, Dense"),
        ({"modules": [("WordEmbeddings", ""), MODULES[1]]}, "WordEmbeddings"),
        ({"modules": [MODULES[0], ("Pooling", "../1_Pooling")]}, "not one inside it"),
        ({"pooling": {"pooling_mode": ["cls", "max"]}}, "no several side by side"),
        ({"pooling": {"pooling_mode": "noise"}}, "'noise'"),
        (
            {"config_sentence_transformers.json": {"default_prompt_name": "q", "prompts": {"q": "query: "}}},
            "prompt 'q'",
        ),
        ({"sentence_bert_config.json": {"do_lower_case": True}}, "in lower case first"),
        ({"modules.json": {"a": 1}}, "does not hold what sentence-transformers writes"),
    ],
)
def test_other_modules_are_refused(tmp_path, how, said):
    with pytest.raises((UsageError, ModelError)) as caught:
        own_pooling(folder_of(tmp_path, **how))
    assert said in str(caught.value)


def test_a_cache_stores_it_by_its_name(tiny_bert, tmp_path):
    import shutil

    folder = folder_of(shutil.copytree(tiny_bert, tmp_path / "st"))
    how = {"split": "dev", "limit": 8, "device": "cpu"}
    with cache_activations(
        folder, "grammar:sentiment", pooling="sentence,first", out=tmp_path / "c.h5", **how
    ) as cache:
        assert cache.poolings == ("sentence:cls:unit", "first")
        first = cache.layer(2, "first")
        np.testing.assert_allclose(cache.layer(2), first / np.linalg.norm(first, axis=1, keepdims=True), rtol=1e-6)
    with pytest.raises(UsageError, match=r"no modules\.json"):
        cache_activations(tiny_bert, "grammar:sentiment", pooling="sentence", **how)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mode", ["minilm", *Sentence.MODES])
def test_the_last_layer_is_what_sentence_transformers_encodes(tiny_bert, tmp_path, mode, request):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    from sentence_transformers.sentence_transformer.modules import Pooling

    how = {"task": "grammar:sentiment", "split": "dev", "limit": 40, "device": "cpu"}
    if mode == "minilm":
        folder = request.getfixturevalue("minilm")
        model = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    else:
        folder = tmp_path / "model"
        modules = sentence_transformers.SentenceTransformer(str(tiny_bert), device="cpu")[0], Pooling(32, mode)
        model = sentence_transformers.SentenceTransformer(modules=list(modules), device="cpu")
        model.save(str(folder))
    from probekit import load_task

    examples = load_task("grammar:sentiment").split("dev").sample(40)
    with cache_activations(folder, pooling="sentence", out=tmp_path / "c.h5", **how) as cache:
        assert list(cache.ids) == [example.id for example in examples]
        right = model.encode([example.text for example in examples], convert_to_numpy=True)
        np.testing.assert_allclose(
            cache.layer(cache.layers[-1]), right, rtol=0, atol=1e-6 * max(1, np.abs(right).max())
        )
