"""Imported activations: an ordinary cache with the numbers of the file, its origin, and what was certified."""

import numpy as np
import pytest
import torch
from others import Stock, write_npz, write_saelens, write_safetensors, write_vllm

import probekit
from probekit.activations.grouping import groups_of, stored_groups
from probekit.errors import DataError, UsageError
from probekit.models.transformers.tokens import load_tokenizer
from probekit.statistics.duplicates import find_groups


@pytest.fixture(scope="module")
def stock(tiny_model):
    return Stock("gpt2", tiny_model("gpt2"), lengths=(9, 9, 9, 9))


@pytest.fixture(scope="module")
def model(tiny_model):
    return tiny_model("gpt2")


def write(form, path, stock):
    arrays = {"blocks.0.hook_resid_post": stock["1"], "blocks.1.hook_resid_post": stock["2"]}
    if form == "vllm":
        return write_vllm(path / "requests", stock.ids, [stock["1"], stock["2"]]), {"layers": ("1", "2")}
    if form == "saelens":
        return write_saelens(path / "saelens", stock.ids, arrays), {}
    return {"npz": write_npz, "safetensors": write_safetensors}[form](path / f"a.{form}", stock.ids, arrays), {}


@pytest.mark.parametrize(
    "form", ["vllm", "npz", *(pytest.param(f, marks=pytest.mark.slow) for f in ("safetensors", "saelens"))]
)
def test_the_numbers_of_the_file(form, stock, model, tmp_path):
    path, how = write(form, tmp_path, stock)
    cache = probekit.import_activations(path, model=model, pooling="mean,last", out=tmp_path / "c.h5", **how)
    assert cache.layers == ("1", "2")
    for layer in "12":
        tokens, last, mean = cache.tokens(layer), cache.layer(layer, "last"), cache.layer(layer, "mean")
        for i, rows in enumerate(stock[layer]):
            np.testing.assert_array_equal(tokens[i], rows)
            np.testing.assert_array_equal(last[i], rows[-1])
            np.testing.assert_allclose(mean[i], rows.mean(0), rtol=1e-5, atol=1e-6)
    assert cache.index("token_ids")[cache.index("start")[1] :][:9].tolist() == stock.ids[1].tolist()
    assert (cache.labels == -1).all()
    assert cache.ids.tolist() == ([f"{i}-0a1b" for i in range(4)] if form == "vllm" else ["0", "1", "2", "3"])
    imported = cache.spec["imported"]
    assert imported["certified"]["texts"] == 4
    assert imported["certified"]["relative"] < 1e-5
    assert len(imported["digest"]) == 32
    assert cache.spec["certificate"]["verdict"].startswith("imported; 4 texts recomputed, within")
    assert cache.spec["model"] == "gpt20" or cache.spec["model"] == model.name
    assert probekit.verify(cache.path).ok
    again = probekit.import_activations(path, model=model, pooling="mean,last", out=tmp_path / "c.h5", **how)
    assert again.spec_id == cache.spec_id  # opened, not made


def test_what_the_model_itself_gives(stock, model, tmp_path):
    """Text by text, the same as an ordinary cache of the same texts."""
    import probekit.models as models

    encoder = models.load_encoder(model)
    texts = ["the cat sees a dog", "a small old bird", "the house", "a bird"]
    tokens = encoder.tokenize(texts)
    ids = np.split(tokens.token_ids.astype(np.int64), np.cumsum(tokens.length)[:-1])
    with torch.no_grad():
        states = [stock.model(torch.from_numpy(x)[None], output_hidden_states=True).hidden_states for x in ids]
    folder = write_vllm(tmp_path / "v", ids, [[s[k][0] for s in states] for k in (1, 2)])
    examples = tuple(probekit.Example(str(i), text) for i, text in enumerate(texts))
    task = probekit.Task("texts", "classification", {"train": probekit.Split("train", examples)})
    ours = probekit.cache_activations(encoder, task, layers="1,2", tokens=True, out=tmp_path / "a.h5")
    theirs = probekit.import_activations(folder, model=model, out=tmp_path / "b.h5")  # layers are found
    assert theirs.layers == ours.layers == ("1", "2")
    np.testing.assert_allclose(theirs.layer(2), ours.layer(2), rtol=1e-4, atol=1e-5)
    assert [len(x) for x in theirs.tokens(1)] == [len(x) for x in ours.tokens(1)]


def test_labels_by_id_and_in_order(stock, model, tmp_path):
    path, how = write("vllm", tmp_path, stock)
    (tmp_path / "by-id.csv").write_text("id,label,group\n3-0a1b,no,x\n0-0a1b,yes,y\n1-0a1b,no,x\n2-0a1b,,y\n")
    cache = probekit.import_activations(
        path, model=model, labels=str(tmp_path / "by-id.csv"), certify=0, out=tmp_path / "a.h5", **how
    )
    assert cache.spec["label_names"] == ["no", "yes"]
    assert cache.labels.tolist() == [1, 0, -1, 0]
    assert cache.groups.tolist() == [0, 1, 0, 1]
    (tmp_path / "scores.csv").write_text("label\n0.5\n1\n2\n-3\n")
    scores = probekit.import_activations(
        path, model=model, labels=str(tmp_path / "scores.csv"), certify=0, out=tmp_path / "b.h5", **how
    )
    assert scores.labels.tolist() == [0.5, 1, 2, -3]
    named = probekit.import_activations(
        path, model=model, labels=str(tmp_path / "by-id.csv"), label_names=("yes", "no", "maybe"), certify=0,
        task="mine", split="dev", pooled_only=True, pooling="last", out=tmp_path / "c.h5", **how,
    )  # fmt: skip
    assert named.labels.tolist() == [0, 1, -1, 1]
    assert (named.spec["task"], named.spec["split"], named.spec["tokens"]) == ("mine", "dev", None)
    assert named.spec["certificate"]["verdict"] == "imported, and not certified"
    for text, message in (("label\n1\n", "1 rows for 4 texts"), ("id,label\n9,1\n", "no row with the id '0-0a1b'")):
        (tmp_path / "bad.csv").write_text(text)
        with pytest.raises(DataError, match=message):
            probekit.import_activations(
                path, model=model, labels=str(tmp_path / "bad.csv"), certify=0, out=tmp_path / "d.h5", **how
            )


@pytest.mark.slow
def test_analyses_read_it(stock, model, tmp_path):
    many = Stock("gpt2", model, lengths=(5,) * 60, seed=1)
    made = []
    for split, rows in (("train", slice(0, 40)), ("dev", slice(40, 60))):
        path = write_vllm(tmp_path / split, many.ids[rows], [many["1"][rows], many["3"][rows]])
        (tmp_path / f"{split}.csv").write_text("label\n" + "".join(f"{x[0] % 2}\n" for x in many.ids[rows]))
        made.append(
            probekit.import_activations(
                path, model=model, layers="1,3", labels=str(tmp_path / f"{split}.csv"), task="parity", split=split,
                out=tmp_path / f"{split}.h5",
            )
        )  # fmt: skip
    rows = probekit.probe(*made, folds=2, controls=1, resamples=0).rows
    assert set(rows.layer.dropna()) == {1, 3}


@pytest.mark.parametrize(
    "dtype",
    [
        torch.bfloat16,
        pytest.param(torch.float16, marks=pytest.mark.slow),
        pytest.param(torch.float64, marks=pytest.mark.slow),
    ],
)
def test_precision(dtype, stock, model, tmp_path):
    path = write_safetensors(tmp_path / "a.safetensors", stock.ids, {"layer_2": [x.to(dtype) for x in stock["2"]]})
    cache = probekit.import_activations(path, model=model, out=tmp_path / "c.h5")
    assert cache.spec["store"] == {torch.float64: "float32"}.get(dtype, str(dtype).removeprefix("torch."))
    np.testing.assert_array_equal(cache.tokens(2)[1], stock["2"][1].to(dtype).float())
    again = probekit.export(cache, to="safetensors", out=tmp_path / "out")  # and out again
    from safetensors.torch import load_file

    held = load_file(next(again.path.glob("tokens-*.safetensors")))["tokens/2"]
    assert held.dtype == (torch.float32 if dtype == torch.float64 else dtype)


def test_texts_with_the_same_pieces_share_vectors(stock, model, tmp_path):
    ids, rows = [stock.ids[0]] * 2 + stock.ids[2:], [stock["1"][0], stock["1"][0] * (1 + 2e-5), *stock["1"][2:]]
    path = write_npz(tmp_path / "a.npz", ids, {"layer_1": rows})
    cache = probekit.import_activations(path, model=model, out=tmp_path / "c.h5")
    np.testing.assert_array_equal(cache.tokens(1)[1], stock["1"][0])
    assert cache.spec["imported"]["copies"]["texts"] == 1
    assert 1e-5 < cache.spec["imported"]["copies"]["relative"] < 3e-5
    assert cache.groups[0] == cache.groups[1]
    path = write_npz(tmp_path / "b.npz", ids, {"layer_1": [rows[0], rows[0] + 1, *rows[2:]]})
    with pytest.raises(DataError, match="texts 0 and 1 have the same pieces, but vectors"):
        probekit.import_activations(path, model=model, certify=0, out=tmp_path / "d.h5")


@pytest.mark.parametrize("copies", [16, 0])
def test_near_copies_are_found_by_words_not_by_pieces(copies, model, tmp_path):
    """The pieces of a byte-level tokenizer with few merges are letters, of which all texts have the same."""
    rng = np.random.default_rng(0)
    words = np.unique(["".join(rng.choice([*"abcd"], 6)) for _ in range(2000)])
    texts = [" ".join(rng.choice(words, 4)) for _ in range(60 - copies)]
    texts += [f"{texts[i]} {rng.choice(words)}" for i in range(copies)]
    ids = [np.array(some) for some in load_tokenizer(model)(texts, add_special_tokens=False)["input_ids"]]
    folder = write_vllm(tmp_path / "a", ids, [[torch.zeros(len(some), 2) for some in ids]])
    cache = probekit.import_activations(
        folder, model=model, layers="1", certify=0, pooled_only=True, pooling="mean", out=tmp_path / "c.h5",
    )  # fmt: skip
    examples = [probekit.Example(str(i), text) for i, text in enumerate(texts)]
    by_words, found = stored_groups(examples, "classification")
    assert (found["near"], cache.grouping) == (2 * copies, found)
    of = groups_of(cache).of
    assert (of is None) == (not by_words)
    if copies:
        np.testing.assert_array_equal(of, by_words["/groups"])
    assert find_groups(cache.pieces).together > 50  # the control


def test_aliases_are_one_layer(stock, model, tmp_path):
    names = ("blocks.0.hook_out", "blocks.0.hook_resid_post", "blocks.1.hook_resid_pre")
    path = write_npz(tmp_path / "a.npz", stock.ids, dict.fromkeys(names, stock["1"]))
    cache = probekit.import_activations(path, model=model, out=tmp_path / "c.h5")
    assert cache.layers == ("1", "resid_pre.1")
    np.testing.assert_array_equal(cache.tokens("resid_pre.1")[2], stock["1"][2])


def test_what_is_wrong_is_not_imported(stock, model, tmp_path, call):
    path, _ = write("vllm", tmp_path, stock)
    words = ["import", path, "--model", model, "--out", tmp_path / "c.h5"]
    done = call(*words, "--layers", "0,1")
    assert done.status == 2
    said = " ".join(done.err.split())
    assert "2 of 2 arrays are not what they are said to be; hidden_states[:, 0]: shifted by one layer: it is" in said
    with pytest.raises(UsageError, match="does not say which layers it holds; give --layers"):
        probekit.import_activations(path, model=model, certify=0, out=tmp_path / "c.h5")
    npz = write_npz(tmp_path / "a.npz", stock.ids, {"layer_1": stock["1"], "resid_post.0": stock["2"]})
    with pytest.raises(DataError, match=r"layer_1 and resid_post\.0 are both 1, with other numbers; leave one out"):
        probekit.import_activations(npz, model=model, certify=0, out=tmp_path / "c.h5")
    short = write_npz(tmp_path / "b.npz", stock.ids, {"layer_1": [x[3:] for x in stock["1"]]})
    with pytest.raises(DataError, match="layer_1, text 0: it has 6 positions, for 9 pieces"):
        probekit.import_activations(short, model=model, certify=0, out=tmp_path / "c.h5")
    assert not list(tmp_path.glob("c.h5*"))
    assert call(*words, "--layers", "0,1", "--certify", "0").status == 0  # as they are, if you insist
    assert "imported, and not certified" in call("inspect", tmp_path / "c.h5").out
    right = call(*words, "--layers", "1,2", "--overwrite")
    assert right.status == 0
    assert "4 examples, 1, 2; imported; 4 texts recomputed" in right.out
