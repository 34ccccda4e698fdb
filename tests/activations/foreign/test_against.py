"""Every mistake in every format, beside the right file: what ``probekit certify --against`` says of each."""

import json

import numpy as np
import pytest
import torch
from others import Stock, proven, write_npz, write_saelens, write_safetensors, write_vllm

from probekit.activations.foreign.against import compare, said_layers
from probekit.activations.foreign.opening import open_source
from probekit.models import load_encoder

NAMES = {"1": "blocks.0.hook_resid_post", "2": "blocks.1.hook_resid_post", "3": "blocks.2.hook_resid_post"}


@pytest.fixture(scope="module")
def gpt2(tiny_model):
    return Stock("gpt2", tiny_model("gpt2"))


@pytest.fixture(scope="module")
def sandwich(tmp_path_factory):
    import tiny

    folder = tiny.tiny_model("gemma2", tmp_path_factory.mktemp("gemma2"))
    return proven(folder), Stock("gemma2", folder)


def write(form, path, ids, arrays, transposed=False):
    """Arrays by the layers that they are said to be, in a format; ``transposed``: with its axes swapped."""
    named = {NAMES[layer]: rows for layer, rows in arrays.items()}
    if form == "vllm":
        axes = (1, 0, 2) if transposed else (0, 1, 2)
        return write_vllm(path / "vllm", ids, [*arrays.values()], axes=axes), [*arrays]
    if transposed and form != "saelens":  # (positions, texts, width)
        t = len(ids[0])
        named = {name: torch.stack(list(rows)).transpose(0, 1) for name, rows in named.items()}
        named = {name: [rows[k] for k in range(t)] for name, rows in named.items()}
    if form == "saelens":
        turned = {name: [x.T if transposed else x for x in rows] for name, rows in named.items()}
        return write_saelens(path / "saelens", ids, turned), None
    return {"npz": write_npz, "safetensors": write_safetensors}[form](path / f"a.{form}", ids, named), None


def seen(encoder, path, layers):
    return compare(encoder, open_source(path, said_layers(layers)))


MISTAKES = {
    "same": lambda s: {"1": s["1"], "2": s["2"], "3": s["3"]},
    "shifted": lambda s: {"1": s["0"], "2": s["1"], "3": s["2"]},
    "prefix missing": lambda s: {k: [x[4:] for x in s[k]] for k in "123"},
    "overwritten": lambda s: {"1": s["3"], "2": s["3"], "3": s["3"]},
    "another norm": lambda s: {"1": s["1"], "2": s["2"], "3": s["final_norm"]},
    "slice": lambda s: {k: [x[:, 8:16] for x in s[k]] for k in "123"},
    "other model": lambda s: {k: [torch.randn(x.shape, generator=torch.manual_seed(0)) for x in s[k]] for k in "123"},
}
WORDS = {
    "same": "same",
    "shifted": "shifted by one layer: it is layer 1, earlier than it says",
    "prefix missing": "a prefix is missing: only the last 5 of 9 positions are there",
    "overwritten": "overwritten after the fact: it is layer 3, a later state",
    "another norm": "another norm: it is final_norm",
    "slice": "a slice of the hidden width: columns 8 to 15 of 32 (part 2 of 4)",
    "other model": "other model or other text: correlation",
}


@pytest.mark.parametrize(
    ("form", "mistake"),
    [  # a mistake is found in the numbers, whatever the format that they were read from
        pytest.param(form, mistake, marks=[] if form == "vllm" or mistake == "shifted" else pytest.mark.slow)
        for form in ("vllm", "npz", "safetensors", "saelens")
        for mistake in MISTAKES
    ],
)
def test_each_mistake_in_each_format(form, mistake, gpt2, encoder, tmp_path):
    path, layers = write(form, tmp_path, gpt2.ids, MISTAKES[mistake](gpt2))
    found = seen(encoder, path, layers)
    assert found.format == ("arrays" if form in ("npz", "safetensors") else form)
    assert found.passed is (mistake == "same")
    at = {"another norm": 2, "overwritten": 1}.get(mistake, 1)
    finding = sorted(found, key=lambda f: f.said)[at]
    assert finding.kinds == (mistake,)
    assert finding.verdict.startswith(WORDS[mistake])
    if mistake == "other model":
        assert abs(finding.correlation) < 0.3
        assert finding.relative > 0.5
    else:
        assert finding.relative < 1e-5
        assert finding.absolute < 1e-4
    if mistake in ("another norm", "overwritten"):  # the rest of the file is right
        assert sum(f.passed for f in found) == {"another norm": 2, "overwritten": 1}[mistake]


@pytest.mark.parametrize(
    "form", [*(pytest.param(f, marks=pytest.mark.slow) for f in ("vllm", "safetensors")), "npz", "saelens"]
)
def test_swapped_axes_in_each_format(form, gpt2, encoder, tmp_path):
    path, layers = write(form, tmp_path, gpt2.ids, MISTAKES["same"](gpt2), transposed=True)
    for finding in seen(encoder, path, layers):
        assert finding.kinds == ("swapped axes",)
        assert finding.relative < 1e-5


def test_axes_of_equal_length_are_told_apart_by_the_numbers(gpt2, encoder, tiny_model, tmp_path):
    square = Stock("gpt2", tiny_model("gpt2"), lengths=(3,))  # as many pieces as layers
    for axes, kind in (((0, 1, 2), "same"), ((1, 0, 2), "swapped axes")):
        path = write_vllm(tmp_path / kind, square.ids, [square["1"], square["2"], square["3"]], axes=axes)
        assert {f.kinds for f in seen(encoder, path, "1,2,3")} == {(kind,)}


@pytest.mark.parametrize(
    ("said", "held", "kinds"),
    [
        ("blocks.1.hook_attn_out", "attn_out_post.1", "same"),
        ("blocks.1.hook_attn_out", "attn_out.1", "another norm"),
        ("blocks.1.attn.hook_out", "attn_out.1", "same"),
        ("attn_out.1", "attn_out_post.1", "another norm"),
        ("blocks.1.hook_mlp_out", "mlp_out.1", "another norm"),
        ("mlp_out.1", "mlp_out.2", "shifted"),
        ("blocks.1.hook_resid_mid", "resid_mid.1", "same"),
        ("blocks.1.hook_resid_pre", "resid_mid.1", "overwritten"),
        ("blocks.1.attn.hook_z", "z.1", "same"),
        ("z.1", "attn_out.1", "another site"),
        ("model.layers.1.output", "2", "same"),
        ("model.layers.1.input", "1", "same"),
        ("layer_1", "2", "shifted"),
        ("layer_1", "0", "shifted"),  # layer 0 is also the embeddings
        ("ln_final.hook_normalized", "3", "another norm"),
    ],
)
def test_sites_of_a_block(said, held, kinds, sandwich, tmp_path):
    encoder, stock = sandwich
    path = write_npz(tmp_path / "a.npz", stock.ids, {said: stock[held]})
    (finding,) = compare(encoder, path)
    assert finding.kinds == (kinds,)
    assert finding.relative < 1e-5


def test_what_norms_make_of_the_stream(gpt2, encoder, tmp_path):
    rows, model = gpt2["2"], gpt2.model
    with torch.no_grad():
        made = {
            "blocks.1.hook_resid_post": [x - x.mean(1, keepdim=True) for x in rows],
            "layer_2": [x * 0.37 for x in rows],
            "resid_pre.2": [model.h[2].ln_1(x) for x in rows],
            "resid_post.1": [model.ln_f(x) for x in rows],
        }
    path = write_npz(tmp_path / "a.npz", gpt2.ids, made)
    verdicts = {f.array: (f.kinds, f.verdict) for f in compare(encoder, path)}
    assert verdicts == {
        "blocks.1.hook_resid_post": (("another norm",), "another norm: it is layer 2 centred"),
        "layer_2": (("another norm",), "another norm: it is layer 2 times 0.37"),
        "resid_pre.2": (("overwritten",), "overwritten after the fact: it is layer 2 after ln_1 of block 2"),
        "resid_post.1": (("another norm",), "another norm: it is layer 2 after the final norm"),
    }


def test_the_sum_before_a_norm_that_follows_it(tiny_model, tmp_path):
    stock = Stock("bert", tiny_model("bert"))
    arrays = {"layer_1": stock["1"], "layer_2": stock["mlp_sum.1"]}
    right, wrong = compare(load_encoder(tiny_model("bert")), write_npz(tmp_path / "a.npz", stock.ids, arrays))
    assert right.kinds == ("same",)
    assert wrong.kinds == ("another norm",)
    assert wrong.verdict == "another norm: it is layer 2 before its norm"


def test_a_prefix_that_holds_something_else(tiny_model, encoder, tmp_path):
    """vLLM's slots of a cached prefix: the first positions of all but the first request."""
    stock = Stock("gpt2", tiny_model("gpt2"), lengths=(24, 24))
    layers = [[x.clone() for x in stock[k]] for k in "123"]
    for layer in layers:
        layer[1][:16] = torch.randn(16, 32, generator=torch.manual_seed(1))
    found = seen(encoder, write_vllm(tmp_path / "v", stock.ids, layers), "1,2,3")
    assert {f.kinds for f in found} == {("prefix missing",)}
    assert found.findings[0].verdict == "a prefix is missing: the first 16 of 24 positions hold something else"


@pytest.mark.parametrize("row", [0, 3, -1])
def test_one_row_that_is_not_finite_is_no_missing_prefix(gpt2, encoder, tmp_path, row):
    layers = {k: [x.clone() for x in gpt2[k]] for k in "123"}
    layers["2"][1][row] = torch.nan
    path, _ = write("npz", tmp_path, gpt2.ids, layers)
    right, wrong, last = compare(encoder, path)
    assert (right.kinds, wrong.kinds, last.kinds) == (("same",), ("not finite",), ("same",))
    position = row % len(gpt2["2"][1])
    assert wrong.verdict == f"1 row holds NaN or an infinite number, the first that of position {position} of text 1"


def test_layers_that_hold_each_other_are_swapped(gpt2, encoder, tmp_path):
    path, _ = write("npz", tmp_path, gpt2.ids, {"1": gpt2["1"], "2": gpt2["3"], "3": gpt2["2"]})
    found = compare(encoder, path)
    assert [f.kinds for f in found] == [("same",), ("swapped layers",), ("swapped layers",)]
    assert found.findings[1].verdict == "swapped layers: it is layer 3"


def test_a_slice_of_a_shifted_layer_is_both(gpt2, encoder, tmp_path):
    path = write_npz(tmp_path / "a.npz", gpt2.ids, {"layer_1": [x[:, 16:] for x in gpt2["2"]]})
    (finding,) = compare(encoder, path)
    assert finding.kinds == ("slice", "shifted")


def test_one_layer_overwritten_by_its_block(gpt2, encoder, tmp_path):
    path, _ = write("npz", tmp_path, gpt2.ids, {"1": gpt2["2"], "2": gpt2["2"], "3": gpt2["3"]})
    assert [f.kinds for f in compare(encoder, path)] == [("overwritten",), ("same",), ("same",)]


def test_without_ids_vllms_layers_are_found(gpt2, encoder, tmp_path):
    right = compare(encoder, write_vllm(tmp_path / "a", gpt2.ids, [gpt2["1"], gpt2["3"]]))
    assert [f.site for f in right] == ["1", "3"]
    assert right.passed
    aliased = compare(encoder, write_vllm(tmp_path / "b", gpt2.ids, [gpt2["3"], gpt2["3"]]))
    assert {f.kinds for f in aliased} == {("overwritten",)}
    normed = compare(encoder, write_vllm(tmp_path / "c", gpt2.ids, [gpt2["1"], gpt2["final_norm"]]))
    assert [f.kinds for f in normed] == [("same",), ("another norm",)]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_half_precision_has_its_tolerance(dtype, gpt2, encoder, tmp_path):
    arrays = {NAMES[k]: [x.to(dtype) for x in gpt2[k]] for k in "123"}
    path = write_safetensors(tmp_path / "a.safetensors", gpt2.ids, arrays)
    found = compare(encoder, path)
    assert found.passed
    assert {f.tolerance for f in found} == {{torch.float16: 5e-2, torch.bfloat16: 2e-1, torch.float64: 1e-4}[dtype]}
    arrays = {NAMES[k]: [x.to(dtype).float() for x in gpt2[k]] for k in "123"}  # rounded, and stored in float32
    rounded = compare(encoder, write_safetensors(tmp_path / "b.safetensors", gpt2.ids, arrays))
    assert rounded.passed is (dtype == torch.float64)
    assert rounded.passed or "give --dtype bfloat16" in rounded.findings[0].verdict


def test_other_weights_and_other_texts(gpt2, encoder, tmp_path):
    path, _ = write("npz", tmp_path, gpt2.ids, MISTAKES["same"](gpt2))
    other = load_encoder(encoder.folder, random_weights=3)
    assert {f.kinds for f in compare(other, path)} == {("other model",)}
    path, _ = write("npz", tmp_path, [ids[::-1].copy() for ids in gpt2.ids], MISTAKES["same"](gpt2))
    assert {f.kinds for f in compare(encoder, path)} == {("other model",)}
    wide = {"2": [torch.nn.functional.pad(x, (0, 8)) for x in gpt2["2"]]}
    found = compare(encoder, write("npz", tmp_path, gpt2.ids, wide)[0]).findings
    assert {f.verdict.rpartition("; ")[2] for f in found} == {"its vectors have 40 numbers, the layers 32"}
    path, _ = write("npz", tmp_path, [ids + 5000 for ids in gpt2.ids], MISTAKES["same"](gpt2))
    assert {f.kinds for f in compare(encoder, path)} == {("other model",)}


def test_padding_and_texts(encoder, gpt2, tiny_model, tmp_path):
    texts = ["the cat sleeps", "a dog", "the small old bird sees the garden"]
    tokens = encoder.tokenize(texts)
    ids = np.split(tokens.token_ids, np.cumsum(tokens.length)[:-1])
    longest, model = max(map(len, ids)), gpt2.model
    with torch.no_grad():
        rows = [model(torch.from_numpy(x)[None]).last_hidden_state[0] for x in ids]
    right = torch.stack([torch.cat([x, torch.full((longest - len(x), 32), torch.nan)]) for x in rows]).numpy()
    left = torch.stack([torch.cat([torch.full((longest - len(x), 32), torch.nan), x]) for x in rows]).numpy()
    np.savez(tmp_path / "texts.npz", texts=np.array(texts), final_norm=right)
    pieces = np.stack([np.concatenate([np.zeros(longest - len(x), int), x]) for x in ids])
    mask = np.stack([np.arange(longest) >= longest - len(x) for x in ids])
    np.savez(tmp_path / "left.npz", input_ids=pieces, attention_mask=mask, final_norm=left)
    for name in ("texts.npz", "left.npz"):
        assert compare(encoder, tmp_path / name).passed


def test_a_sample_is_recomputed(encoder, gpt2, tmp_path):
    path = write_npz(tmp_path / "a.npz", gpt2.ids, {"layer_1": [gpt2["1"][0], gpt2["1"][0], gpt2["1"][2]]})
    assert not compare(encoder, path).passed
    found = compare(encoder, path, limit=2)  # the first and the last
    assert found.passed
    assert (found.texts, found.of, found.pieces) == (2, 3, 18)


def test_command(gpt2, encoder, tmp_path, call):
    path, layers = write("vllm", tmp_path, gpt2.ids, MISTAKES["same"](gpt2))
    done = call("certify", encoder.folder, "--against", path, "--layers", ",".join(layers), "--json")
    assert done.status == 0
    told = json.loads(done.out)
    assert told["passed"]
    assert [f["verdict"] for f in told["findings"]] == ["same"] * 3
    wrong = call("certify", encoder.folder, "--against", path, "--layers", "0,1,2", "--limit", "1")
    assert wrong.status == 1
    assert "shifted by one layer: it is layer 1, later than it says" in " ".join(wrong.out.split())
    assert "1 of 3 texts, 9 pieces: 3 of 3 shifted." in " ".join(wrong.out.split())
    path = write_npz(tmp_path / "a.npz", gpt2.ids, {"layer_1": gpt2["1"], "blocks.0.attn.hook_pattern": gpt2["1"]})
    assert "no site: blocks.0.attn.hook_pattern." in " ".join(
        call("certify", encoder.folder, "--against", path).out.split()
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--layers", "1"], "--layers and --limit are for --against"),
        (["--against", "a.npz", "--texts", "t"], "--texts is without it"),
        (["--against", "a.npz", "--limit", "0"], "limit is 0; it must be 1 or more"),
        (["--against", "nowhere"], "nowhere: does not exist"),
        (["--against", "a.npz", "--layers", "1"], "its arrays have names"),
        (["--against", "v", "--layers", "1,2"], "hidden_states holds 3 layers, and --layers names 2"),
        (["--against", "model.pt"], "may hold a pickle, which can run code and is not opened"),
        (["--against", "x.npy"], "has no pieces beside its array"),
        (["--against", "x.txt"], "wanted safetensors of vLLM's ExampleHiddenStatesConnector"),
        (["--against", "bad.npz"], "cannot be read as npz"),
        (["--against", "bad.safetensors"], "cannot be read as safetensors"),
        (["--against", "objects.npz"], "holds Python objects, which are pickled"),
        (["--against", "dates.npz"], "attention_mask is datetime64[s]; wanted an array of numbers"),
        (["--against", "nothing.npz"], "none of its arrays (q) is understood, such as resid_post.3"),
        (["--against", "alone.npz"], "has neither pieces (token_ids, input_ids, tokens) nor texts"),
        (["--against", "flat.npz"], "wanted (texts, positions, width) for 3 texts"),
        (["--against", "long.npz"], "text 0 has 50 pieces, but"),
    ],
)
def test_bad_input(words, message, gpt2, encoder, tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    write("npz", tmp_path, gpt2.ids, {"1": gpt2["1"]})
    write_vllm(tmp_path / "v", gpt2.ids, [gpt2[k] for k in "123"])
    for name in ("model.pt", "x.npy", "x.txt", "bad.npz", "bad.safetensors"):
        (tmp_path / name).write_bytes(b"nonsense")
    x = np.zeros((3, 9, 32), np.float32)
    np.savez("objects.npz", token_ids=np.stack(gpt2.ids), layer_1=np.array([{}, x, 1], dtype=object))
    dates = np.ones((3, 9), int).astype("M8[s]")
    np.savez("dates.npz", token_ids=np.stack(gpt2.ids), attention_mask=dates, layer_1=x)
    np.savez("nothing.npz", token_ids=np.stack(gpt2.ids), q=x)
    np.savez("alone.npz", layer_1=x)
    np.savez("flat.npz", token_ids=np.stack(gpt2.ids), layer_1=x[:, 0])
    np.savez("long.npz", token_ids=np.zeros((1, 50), int), layer_1=np.zeros((1, 50, 32), np.float32))
    done = call("certify", encoder.folder, *words)
    assert done.status == 2
    assert message in done.err


def test_saelens_without_pieces(gpt2, encoder, tmp_path):
    from datasets import load_from_disk

    from probekit.errors import DataError

    folder = write_saelens(tmp_path / "a", gpt2.ids, {NAMES["1"]: gpt2["1"]})
    load_from_disk(str(folder)).remove_columns("token_ids").save_to_disk(str(tmp_path / "b"))
    with pytest.raises(DataError, match="has no column token_ids"):
        compare(encoder, tmp_path / "b")
    (folder / "data-00000-of-00002.arrow").write_bytes(b"nonsense")
    with pytest.raises(DataError, match="cannot be read as Arrow"):
        compare(encoder, folder)
