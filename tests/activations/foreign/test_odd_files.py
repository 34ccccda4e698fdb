"""Files that are odd in one way: what is read of them, or the sentence that says what to do."""

import shutil

import numpy as np
import pytest
import torch
from others import Stock, write_npz, write_saelens, write_vllm
from safetensors.torch import save_file

import probekit
from probekit.activations.foreign.against import compare, said_layers
from probekit.activations.foreign.opening import open_source
from probekit.errors import DataError


@pytest.fixture(scope="module")
def stock(tiny_model):
    return Stock("gpt2", tiny_model("gpt2"), lengths=(9, 9))


ORDERS = {  # of (layers, texts, positions, width)
    "layers, texts, positions, width": (0, 1, 2, 3),
    "texts, layers, positions, width": (1, 0, 2, 3),
    "texts, positions, layers, width": (1, 2, 0, 3),
}


@pytest.mark.parametrize("axes", [*ORDERS, "layers, positions, width", "positions, layers, width"])
@pytest.mark.parametrize("form", ["npz", "safetensors"])
def test_a_stack_of_layers(axes, form, stock, encoder, tmp_path):
    stack, ids = torch.stack([torch.stack(stock[k]) for k in "123"]), np.stack(stock.ids)
    if axes in ORDERS:
        stack = stack.permute(ORDERS[axes])
    else:
        stack, ids = stack[:, 0], ids[0] if form == "npz" else ids[:1]  # token_ids (t,) would be vLLM's format
        stack = stack if axes.startswith("layers") else stack.transpose(0, 1)
    path = tmp_path / f"a.{form}"
    if form == "npz":
        np.savez(path, token_ids=ids, hidden_states=stack.numpy())
    else:
        save_file({"token_ids": torch.from_numpy(ids), "hidden_states": stack.contiguous()}, path)
    source = open_source(path, said_layers("1,2,3"))
    for array, layer in zip(source.arrays, "123", strict=True):
        assert str(array.site) == layer
        for i in range(len(source)):
            assert torch.equal(array.views[0].rows(i), stock[layer][i])
    if axes == "layers, texts, positions, width":
        assert [f.site for f in compare(encoder, path)] == ["1", "2", "3"]  # found
        assert not compare(encoder, open_source(path, said_layers("0,1,2"))).passed
        with pytest.raises(DataError, match="hidden_states holds 3 layers, and --layers names 2"):
            open_source(path, said_layers("1,2"))


def test_a_stack_with_padding(stock, tmp_path):
    stack = torch.stack([torch.stack(stock[k]) for k in "12"]).numpy()
    mask = np.ones((2, 9), int)
    mask[1, 6:] = 0
    np.savez(tmp_path / "a.npz", input_ids=np.stack(stock.ids), attention_mask=mask, hidden_states=stack[:, :, :, :])
    with pytest.raises(DataError, match=r"is \(2, 2, 9, 32\), for 2 texts of 9 positions: may be .* or \(texts, layer"):
        open_source(tmp_path / "a.npz")
    three = np.concatenate([stack, stack[:1]])
    np.savez(tmp_path / "b.npz", input_ids=np.stack(stock.ids), attention_mask=mask, hidden_states=three)
    source = open_source(tmp_path / "b.npz")
    assert torch.equal(source.arrays[1].views[0].rows(1), stock["2"][1][:6])
    np.savez(tmp_path / "c.npz", input_ids=np.stack(stock.ids), hidden_states=three[:, :, :5])
    with pytest.raises(DataError, match="wanted .*Write an array for each layer: layer_0, layer_1"):
        open_source(tmp_path / "c.npz")


def test_long_texts_are_cut_as_the_model_reads_them(stock, encoder, tmp_path):
    texts = ["the cat sees a dog " * 12, "a bird"]
    tokens = encoder.tokenize(texts)
    ids = np.split(tokens.token_ids.astype(np.int64), np.cumsum(tokens.length)[:-1])
    assert tokens.truncated.tolist() == [True, False]
    with torch.no_grad():
        rows = [stock.model(torch.from_numpy(x)[None], output_hidden_states=True).hidden_states[1][0] for x in ids]
    padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).numpy()
    np.savez(tmp_path / "a.npz", texts=np.array(texts), layer_1=padded)
    assert compare(encoder, tmp_path / "a.npz").passed
    for certify in (0, 2):
        cache = probekit.import_activations(
            tmp_path / "a.npz", model=encoder.folder, certify=certify, out=tmp_path / f"{certify}.h5"
        )
        start = cache.index("start")
        assert [cache.index("token_ids")[a:][: len(x)].tolist() for a, x in zip(start, ids, strict=True)] == [
            x.tolist() for x in ids
        ]
        assert cache.truncated.tolist() == [True, False]
        np.testing.assert_array_equal(cache.tokens(1)[0], rows[0])


def test_pieces_that_are_none(stock, encoder, tmp_path):
    padded = np.stack(stock.ids)
    padded[1, 6:] = -100
    np.savez(tmp_path / "a.npz", token_ids=padded, layer_1=torch.stack(stock["1"]).numpy())
    for run in (compare, lambda e, p: probekit.import_activations(p, model=e.folder, certify=0, out=tmp_path / "c.h5")):
        with pytest.raises(DataError, match="text 1 has the piece -100; wanted whole numbers.*write an attention"):
            run(encoder, tmp_path / "a.npz")
    (finding,) = compare(encoder, write_npz(tmp_path / "b.npz", [x + 5000 for x in stock.ids], {"layer_1": stock["1"]}))
    assert finding.kinds == ("other model",)
    assert f"and {encoder.name} has {encoder.model.config.vocab_size} pieces" in finding.verdict


@pytest.mark.parametrize(
    ("dtype", "message"),
    [
        (np.int8, "layer_1 is int8; wanted one of float64, float32, float16, bfloat16"),
        (np.complex64, "layer_1 is complex64"),
        (np.longdouble, "layer_1 is .*128"),
        ("V2", "void16.*numpy.savez does not keep bfloat16: write .safetensors"),
        ("U3", "layer_1 is str96"),
    ],
)
def test_precisions_that_are_none(dtype, message, stock, tmp_path):
    np.savez(tmp_path / "a.npz", token_ids=np.stack(stock.ids), layer_1=np.zeros((2, 9, 32), dtype))
    with pytest.raises(DataError, match=message):
        open_source(tmp_path / "a.npz")


def test_pieces_beside_texts_are_what_is_read(stock, encoder, tmp_path):
    held = {"token_ids": np.stack(stock.ids), "layer_1": torch.stack(stock["1"]).numpy()}
    np.savez(tmp_path / "a.npz", texts=np.array(["a", "b", "c"]), **held)
    found = compare(encoder, tmp_path / "a.npz")
    assert found.passed
    assert found.of == 2


def test_vectors_that_are_none(stock, encoder, tmp_path):
    x, ids, out = torch.stack(stock["1"]).numpy(), np.stack(stock.ids), tmp_path / "c.h5"

    def imported(**arrays):
        np.savez(tmp_path / "a.npz", **arrays)
        probekit.import_activations(tmp_path / "a.npz", model=encoder.folder, certify=0, out=out)

    for values in (x * np.nan, x.astype(float) * 1e300):
        with pytest.raises(DataError, match=r"layer 1 of example '0' .* is NaN or infinite \(float64 is stored as fl"):
            imported(token_ids=ids, layer_1=values)
    with pytest.raises(DataError, match="layer_1, text 0: 0 columns; wanted one or more"):
        imported(token_ids=ids, layer_1=x[..., :0])
    with pytest.raises(DataError, match=r"layer_1 has the shape \(2, 9, 32\); wanted .* for 1 texts"):
        imported(texts=np.array(["the cat"]), layer_1=x)
    assert not list(tmp_path.glob("c.h5*"))
    np.savez(tmp_path / "b.npz", token_ids=ids, layer_1=x * np.nan, layer_2=x * 0, layer_3=x.astype(float) * 1e300)
    said = ["some of its numbers are NaN or infinite", "no correlation with layer 2", ""]
    for finding, words in zip(compare(encoder, tmp_path / "b.npz"), said, strict=True):
        assert finding.verdict.startswith(f"other model or other text: {words}")


def test_files_that_do_not_fit_together(stock, tmp_path):
    for form in ("vllm", "arrays"):
        (tmp_path / form).mkdir()
        for name, width in (("1", 32), ("2", 16)):
            vllm = {"token_ids": torch.arange(9), "hidden_states": torch.ones(9, 2, width)}
            arrays = {"token_ids": torch.arange(9)[None], "layer_1": torch.ones(1, 9, width)}
            save_file(vllm if form == "vllm" else arrays, tmp_path / form / f"{name}.safetensors")
    with pytest.raises(DataError, match="the files have 16 to 32 columns; give those of one run"):
        open_source(tmp_path / "vllm")
    with pytest.raises(DataError, match="layer_1 has 2 widths in its files"):
        open_source(tmp_path / "arrays")
    save_file({"token_ids": torch.ones(2, 9).bfloat16(), "layer_1": torch.ones(2, 9, 4)}, tmp_path / "a.safetensors")
    with pytest.raises(DataError, match=r"token_ids is bfloat16 \(2, 9\); wanted whole numbers"):
        open_source(tmp_path / "a.safetensors")
    save_file({"token_ids": torch.arange(9), "hidden_states": torch.ones(9, 0, 4)}, tmp_path / "b.safetensors")
    with pytest.raises(DataError, match="holds no layer"):
        open_source(tmp_path / "b.safetensors")
    save_file({"layer_1": torch.ones(2, 9, 4)}, tmp_path / "c.safetensors", metadata={"texts": "the cat"})
    with pytest.raises(DataError, match="cannot be read as JSON, which the texts in its metadata must be"):
        open_source(tmp_path / "c.safetensors")
    torch.save({"layer_1": torch.ones(2)}, tmp_path / "d.npz")
    with pytest.raises(DataError, match=r"data.pkl in it is no numpy array. Write arrays with numpy.savez"):
        open_source(tmp_path / "d.npz")


def test_vllms_folder(stock, tmp_path):
    folder = write_vllm(tmp_path / "v", stock.ids, [stock["1"], stock["2"]])
    first = next(folder.iterdir())
    (folder / f"{first.name}.lock").touch()  # vLLM leaves these
    assert len(open_source(folder)) == 2
    with pytest.raises(DataError, match="writes layers in ascending order, whatever order it is given: --layers 1,2"):
        open_source(folder, said_layers("2,1"))
    (folder / "9-0a1b.safetensors.lock").touch()
    with pytest.raises(DataError, match="1 requests have no file: vLLM still writes them, or they were aborted"):
        open_source(folder)
    states = torch.zeros(4, 2, 32)
    save_file({"token_ids": torch.zeros(4), "hidden_states": states}, tmp_path / "a.safetensors")
    with pytest.raises(DataError, match="token_ids is F32; wanted whole numbers"):
        open_source(tmp_path / "a.safetensors")


def test_saelens_shards(stock, tmp_path):
    for number in range(3):
        write_saelens(tmp_path / "s" / f"shard_{number:06d}", stock.ids, {"blocks.0.hook_resid_post": stock["1"]}, 1)
    assert len(open_source(tmp_path / "s")) == 6
    (tmp_path / "s" / "shard_000001" / "state.json").rename(tmp_path / "state.json")
    with pytest.raises(DataError, match="shard_000001: has no state.json, so its run was interrupted"):
        open_source(tmp_path / "s")
    shutil.rmtree(tmp_path / "s" / "shard_000001")
    with pytest.raises(DataError, match=r"its shards go up to shard_000002, but number 1 is missing"):
        open_source(tmp_path / "s")
    last = tmp_path / "s" / "shard_000002"
    next(last.glob("*.arrow")).unlink()
    with pytest.raises(DataError, match="cannot be read as Arrow"):
        open_source(last)
