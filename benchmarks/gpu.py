"""What a GPU gives: layers against transformers', rates of caching and training, one card with device_map, memory.

    python benchmarks/gpu.py --json gpu.json              on one H100 or H200, at most 8 minutes
    python benchmarks/gpu.py --json gpu.json --dry-run    tiny sizes on the CPU: does everything run?
    python benchmarks/gpu.py --table gpu.json             the table of docs/performance-methods.md, of an earlier run

It reads nothing from a network: all models have random weights, made here. On a bare machine whose Python has PyTorch,
transformers, accelerate, peft, h5py, numba, pandas, pyarrow and scikit-learn, the rest travels as wheels, 60 MB
(15 MB if only libh5zstd stays of hdf5plugin's plugins):

    W="datasets dill multiprocess hdf5plugin loky nltk optuna alembic sqlalchemy colorlog mako greenlet pydantic"
    W="$W pydantic-core typing-inspection annotated-types cyclopts rich-rst docstring-parser docutils"
    python3 -m pip download --no-deps --only-binary=:all: --python-version 3.12 --implementation cp \\
        --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 -d .whl $W

and there, in the root of the repository:

    python3 -m pip install -q --no-index --no-deps --target /tmp/site .whl/*.whl
    PYTHONPATH=$PWD:/tmp/site python3 benchmarks/gpu.py --json ${OUT:-.}/gpu.json

Each part runs in a process of its own, with its own limit of time; an error of one is written into the JSON in place of
its numbers, and the others run. The JSON is written again after each part. Parts:

layers      six families in float32 and bfloat16: the largest relative difference of a layer's vector from
            transformers', one text at a time in the same precision, for texts of several lengths in a batch (no TF32)
cache-1b    Llama of 1 B parameters in bfloat16, made on the device: word pieces a second of `cache_activations` (all
cache-8b    layers; pooled, then tokens), beside transformers' forward pass of the same texts, sorted and padded
training    BERT-base: examples a second of `probekit train`, and of a bare Trainer (with peft's LoRA; bottleneck
            adapters are ours on both sides), one epoch of 512 pairs
device-map  a model read with device_map="auto" on one card: its layers against the same model read onto the card
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

ROOT = Path(__file__).parents[1]
LIMIT = 460
"""Seconds for all parts together."""
FAMILIES = ("bert", "roberta", "gpt2", "llama", "qwen3", "t5")
PAIRS = 512


def device(dry: bool) -> str:
    return "cpu" if dry else "cuda"


def tiny() -> Any:
    """The tests' tiny models and tokenizers."""
    sys.path.insert(0, str(ROOT / "tests"))
    import tiny

    return tiny


def texts(n: int, words: int, seed: int = 0) -> list[str]:
    """Random texts of about ``words`` words, some much longer."""
    rng = np.random.default_rng(seed)
    known = [word for word in tiny().WORDS if word.isalpha()]
    lengths = np.clip(rng.lognormal(np.log(words), 0.6, n), 1, 8 * words).astype(int)
    return [" ".join(rng.choice(known, k)) for k in lengths]


def peak() -> float | None:
    """The most memory of the card that was taken since the last call, GiB; None without one."""
    import torch

    if not torch.cuda.is_available():
        return None
    most = torch.cuda.max_memory_allocated() / 2**30
    torch.cuda.reset_peak_memory_stats()
    return round(most, 2)


def seconds(run: Callable[[], Any]) -> float:
    """The time of a call, until the device is through."""
    import torch

    start = time.perf_counter()
    run()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start


def layers(work: Path, dry: bool) -> dict[str, Any]:
    import torch
    from transformers import AutoModel

    from probekit.models import load_encoder
    from probekit.models.encoder import Batch
    from probekit.models.transformers.encoder import all_layers, relative_error

    wide = {"hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 6, "num_attention_heads": 8}
    named = {"gpt2": {"n_embd": 512, "n_layer": 6, "n_head": 8}, "t5": {"d_model": 512, "d_ff": 1024, "num_layers": 6}}
    found: dict[str, Any] = {}
    for family in ("bert", "llama") if dry else FAMILIES:
        more = {} if dry else named.get(family, wide) | {"initializer_range": 0.02, "initializer_factor": 1.0}
        folder = tiny().tiny_model(family, work / family, **more)
        for dtype in ("float32", "bfloat16"):
            encoder = load_encoder(folder, device=device(dry), dtype=dtype)
            own = AutoModel.from_pretrained(folder, dtype=getattr(torch, dtype)).eval().to(device(dry))
            own = own.get_encoder() if own.config.is_encoder_decoder else own
            tokens = encoder.tokenize(texts(8, 6) + ["cat"] * 2)
            ends, order = np.cumsum(tokens.length), np.argsort(tokens.length, kind="stable")
            parts = [slice(ends[i] - tokens.length[i], ends[i]) for i in order]
            ids = [tokens.token_ids[part] for part in parts]
            if encoder.mixed_lengths:
                batch = Batch(np.concatenate(ids), np.zeros(ends[-1], np.uint8), tokens.length[order])
                ours = list(all_layers(encoder, batch).split(tokens.length[order].tolist(), 1))
            else:
                ours = [all_layers(encoder, Batch(x, np.zeros(len(x), np.uint8), np.array([len(x)]))) for x in ids]
            worst = 0.0
            for some, rows in zip(ids, ours, strict=True):
                given = torch.tensor(some[None].astype(np.int64), device=device(dry))
                with torch.inference_mode():
                    states = own(input_ids=given, output_hidden_states=True).hidden_states
                for layer in range(encoder.depth):
                    worst = max(worst, relative_error(rows[layer], states[layer][0].cpu()))
                worst = max(worst, relative_error(rows[-1], states[-1][0].cpu()))
            found[f"{family}, {dtype}"] = {"largest difference": worst, "path": encoder.spec["path"]}
    return found | {"peak GiB": peak()}


def llama(size: str, work: Path, dry: bool) -> tuple[Any, Path]:
    """A Llama with random weights, made on the device, and a folder with its configuration and tokenizer."""
    import torch
    from transformers import AutoModel, LlamaConfig

    shapes = {
        "1b": {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16},  # as Llama 3.2
        "8b": {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32},  # as Llama 3.1
    }
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2} if dry else shapes[size]
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2} if dry else {
        "num_attention_heads": 32, "num_key_value_heads": 8}  # fmt: skip
    tokenizer, folder = tiny().tiny_tokenizer("llama"), work / f"llama-{size}"
    tokenizer.model_max_length = 4096
    tokenizer.save_pretrained(folder)
    config = LlamaConfig(
        **shape, **heads, vocab_size=len(tokenizer) if dry else 128256, max_position_embeddings=4096, bos_token_id=0,
        eos_token_id=0, use_cache=False,
    )  # fmt: skip
    config.save_pretrained(folder)
    torch.manual_seed(0)
    with torch.device(device(dry)):
        net = AutoModel.from_config(config, dtype=torch.bfloat16)
    return net.eval().requires_grad_(requires_grad=False), folder


def cache(size: str, work: Path, dry: bool) -> dict[str, Any]:
    import torch

    import probekit
    from probekit.models import load_encoder

    net, folder = llama(size, work, dry)
    spec = {
        "model": f"llama-{size}", "revision": None, "weights_digest": "0" * 32, "tokenizer_digest": "0" * 32,
        "random_weights": None, "model_type": "llama", "class": type(net).__name__, "dtype": "bfloat16",
        "device": device(dry), "cut_at": None,
    }  # fmt: skip
    with patch("probekit.models.transformers.encoder.load_described", return_value=(net, folder, spec)):
        encoder = load_encoder(folder, dtype="bfloat16", device=device(dry))
    given = texts(12 if dry else 400 if size == "8b" else 2000, 5 if dry else 60)  # 4.4 pieces a word
    few = given[: 6 if dry else 20 if size == "8b" else 60]
    length = {"pooled": encoder.tokenize(given).length, "tokens": encoder.tokenize(few).length}
    found: dict[str, Any] = {"parameters": sum(p.numel() for p in net.parameters()), "path": encoder.spec["path"]}
    peak()
    for name, some, how in (("pooled", given, {}), ("tokens", few, {"tokens": True})):
        (work / f"{name}.txt").write_text("\n".join(some) + "\n")
        for _ in range(2):  # the first run warms up; the second counts
            out = work / f"{size}.{name}.h5"
            out.unlink(missing_ok=True)
            took = seconds(
                lambda n=name, o=out, h=how: probekit.cache_activations(encoder, work / f"{n}.txt", out=o, **h)
            )
        found[name] = {"pieces/s": int(length[name].sum()) / took, "seconds": took, "peak GiB": peak()}
        print(json.dumps(found), flush=True)  # what there is if time runs out
    tokens, most = encoder.tokenize(given), 512 if dry else 16384
    ends, order = np.cumsum(tokens.length), np.argsort(tokens.length, kind="stable").tolist()
    net.set_attn_implementation("sdpa")

    def stock() -> None:
        some: list[int] = []
        for i in [*order, None]:
            if some and (i is None or (len(some) + 1) * tokens.length[i] > most):
                width = int(tokens.length[some].max())
                ids, mask = (torch.zeros(len(some), width, dtype=torch.long) for _ in range(2))
                for row, j in enumerate(some):
                    ids[row, : tokens.length[j]] = torch.from_numpy(
                        tokens.token_ids[ends[j] - tokens.length[j] : ends[j]].astype(np.int64)
                    )
                    mask[row, : tokens.length[j]] = 1
                with torch.inference_mode():
                    net(input_ids=ids.to(net.device), attention_mask=mask.to(net.device))
                some = []
            if i is not None:
                some.append(i)

    stock()
    took = seconds(stock)
    found["stock forward"] = {"pieces/s": int(ends[-1]) / took, "seconds": took, "peak GiB": peak()}
    return found


def training(work: Path, dry: bool) -> dict[str, Any]:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    from fine_tuning import Job, here

    base = {} if dry else {
        "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
        "initializer_range": 0.02, "max_position_embeddings": 128,
    }  # fmt: skip
    folder = tiny().tiny_model("bert", work / "bert", **base)
    found: dict[str, Any] = {}
    for way in ("full", "lora", "adapter"):
        for side in ("bare Trainer", "probekit"):
            rows, size = (16, 8) if dry else (PAIRS, 32)
            if not found:  # what is loaded and compiled once counts for neither side
                here(Job(side, str(folder), str(work), None, size, size, way, device(dry)))
            done = here(Job(side, str(folder), str(work), None, rows, size, way, device(dry)))
            found[f"{way}, {side}"] = {"examples/s": done["wall"], "steps": done["steps"], "peak GiB": peak()}
    return found


def device_map(work: Path, dry: bool) -> dict[str, Any]:
    from probekit.models import load_encoder
    from probekit.models.encoder import Batch
    from probekit.models.transformers.encoder import all_layers, relative_error

    net, folder = llama("1b", work, dry)
    net.save_pretrained(folder)
    del net
    ids = np.arange(1, 40)
    batch, states = Batch(ids, np.zeros(len(ids), np.uint8), np.array([len(ids)])), []
    for spread in ({"device_map": {"": "cpu"} if dry else "auto"}, {}):
        encoder = load_encoder(folder, dtype="bfloat16", device=device(dry), onednn=False, **spread)
        states.append(all_layers(encoder, batch))
        del encoder
    return {"largest difference": relative_error(*states), "peak GiB": peak()}


PARTS: dict[str, tuple[Callable[[Path, bool], dict[str, Any]], int]] = {
    "layers": (layers, 90),
    "cache-1b": (lambda work, dry: cache("1b", work, dry), 90),
    "training": (training, 120),
    "device-map": (device_map, 60),
    "cache-8b": (lambda work, dry: cache("8b", work, dry), 150),
}
"""The parts in order, and the most seconds of each."""


def machine() -> dict[str, Any]:
    import torch
    import transformers

    card = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {"card": card, "torch": torch.__version__, "transformers": transformers.__version__,
            "python": platform.python_version()}  # fmt: skip


def apart(name: str, left: float, *, dry: bool) -> dict[str, Any]:
    """What a part found, in a process of its own, or why it found nothing."""
    limit = min(PARTS[name][1] if name in PARTS else LIMIT, left) if not dry else LIMIT
    if limit < 10:
        return {"error": "no time was left"}
    command = [sys.executable, __file__, "--part", name, *(["--dry-run"] if dry else [])]
    # CUDA's own matrix products of float32 in TF32 would be another model
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "NVIDIA_TF32_OVERRIDE": "0", "PYTHONPATH": os.pathsep.join(
        [str(ROOT), os.environ.get("PYTHONPATH", "")])}  # fmt: skip
    start = time.monotonic()
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=limit, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr.strip()[-2000:] or f"exit status {done.returncode}")
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired as error:
        said, where = (str(x or b"", "utf-8") if not isinstance(x, str) else x for x in (error.stdout, error.stderr))
        found = json.loads((said.splitlines() or ["{}"])[-1]) | {
            "error": f"stopped after {limit:.0f} s",
            "at": where[-3000:],
        }
    except (RuntimeError, ValueError, IndexError) as error:
        found = {"error": str(error)[-2000:]}
    return found | {"took": round(time.monotonic() - start, 1)}


def table(found: dict[str, Any]) -> str:
    """The table that docs/performance-methods.md shows."""
    about = found["machine"]
    lines = [f"{about.get('card')}, torch {about.get('torch')}, transformers {about.get('transformers')}.", ""]
    lines += ["| Part | What | Value | Peak GiB |", "|---|---|---|---|"]
    for part, values in found["parts"].items():
        if "error" in values:
            lines.append(f"| {part} | failed: {values['error'].splitlines()[-1][:80]} | | |")
        every = values.get("peak GiB")
        if isinstance(values.get("largest difference"), float):
            lines.append(f"| {part} | largest difference | {values['largest difference']:.1e} | {every} |")
        for what, of in values.items():
            if isinstance(of, dict):
                name, value = next(iter(of.items()))
                shown = f"{value:.1e}" if "difference" in name else f"{value:,.0f} {name}"
                lines.append(f"| {part} | {what} | {shown} | {of.get('peak GiB', every)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--json", type=Path, default=Path("gpu.json"), help="the file to write")
    parser.add_argument("--dry-run", action="store_true", help="tiny sizes, on the CPU")
    parser.add_argument("--only", nargs="+", default=[*PARTS], help="these parts")
    parser.add_argument("--table", type=Path, help="print the table of an earlier run")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.table:
        print(table(json.loads(args.table.read_text())))
        return
    if args.part == "machine":
        print(json.dumps(machine()))
        return
    if args.part:
        faulthandler.dump_traceback_later(PARTS[args.part][1] - 5)
        with tempfile.TemporaryDirectory(prefix="probekit-gpu-") as work:
            print(json.dumps(PARTS[args.part][0](Path(work), args.dry_run)))
        return
    start, found = time.monotonic(), {"machine": apart("machine", 60, dry=args.dry_run), "parts": {}}
    if not args.dry_run and found["machine"].get("card") is None:
        raise SystemExit("there is no GPU here; --dry-run runs on the CPU.")
    for name in args.only:
        print(f"{name} …", flush=True)
        found["parts"][name] = apart(name, LIMIT - (time.monotonic() - start), dry=args.dry_run)
        args.json.write_text(json.dumps(found, indent=1) + "\n")
    print(table(found))


if __name__ == "__main__":
    main()
