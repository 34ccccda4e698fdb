"""From texts to the means of every layer, or of four sites of every block, beside the other tools, in one run.

    python benchmarks/sites.py --model minilm --model FOLDER … --python nnterp=OTHER/bin/python
    python benchmarks/sites.py --make FOLDER           writes a random GPT-2 small and a Llama of 4 layers, width 512
    python benchmarks/sites.py --rows 64 --rounds 1    a look at whether everything runs

Each way runs in a process of its own on one core, the ways take turns, and a ratio compares two of the same round. The
other tools get batches of 32 texts as they come, and batches sorted by length; they keep the means in memory, probekit
writes them to a file with digests. --python runs a way by another interpreter, where a tool needs other versions.
What a tool does not offer is left out: nnterp has neither encoders nor z. Language-model heads run where a tool has no
other way (nnterp, TransformerLens).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

SITES = ("resid_post", "attn_out", "mlp_out", "z")
PADDED_TOKENS = 2048  # of a batch sorted by length, padding counted
States = Callable[[dict[str, Any]], dict[str, Any]]
"""From padded inputs to hidden states by site, (b, t, d)."""


def parts_of(model: Any, output: str = "output") -> list[dict[str, Any]]:
    """The modules of each block of BERT, GPT-2 or Llama: block, attn_out, mlp_out, and what z enters."""
    kind = model.config.model_type
    if kind == "bert":
        found = []
        for block in model.encoder.layer:
            attention, mlp = getattr(block.attention, output).dense, getattr(block, output).dense
            found.append({"block": block, "attn_out": attention, "mlp_out": mlp, "z": attention})
        return found
    if kind == "gpt2":
        return [{"block": b, "attn_out": b.attn, "mlp_out": b.mlp, "z": b.attn.c_proj} for b in model.h]
    return [{"block": b, "attn_out": b.self_attn, "mlp_out": b.mlp, "z": b.self_attn.o_proj} for b in model.layers]


def of_transformers(folder: str, *, every: bool) -> States:
    """``output_hidden_states``; other sites by forward hooks."""
    from transformers import AutoModel

    model, found = AutoModel.from_pretrained(folder).eval(), {}
    if every:
        for k, parts in enumerate(parts_of(model)):
            for name in ("attn_out", "mlp_out"):
                parts[name].register_forward_hook(lambda _, x, y, n=f"{name}.{k}": found.update({n: first(y)}))
            parts["z"].register_forward_pre_hook(lambda _, x, n=f"z.{k}": found.update({n: x[0]}))
        blocks = [parts["block"] for parts in parts_of(model)]
        for k, block in enumerate(blocks):  # the last of hidden_states is after the final norm
            block.register_forward_hook(lambda _, x, y, n=f"resid_post.{k}": found.update({n: first(y)}))

    def states(inputs: dict[str, Any]) -> dict[str, Any]:
        found.clear()
        hidden = model(**inputs, output_hidden_states=not every).hidden_states
        return dict(found) if every else {f"resid_post.{k - 1}": h for k, h in enumerate(hidden)}

    return states


def first(output: Any) -> Any:
    return output[0] if isinstance(output, tuple) else output


def of_nnsight(folder: str, *, every: bool) -> States:
    from nnsight import NNsight
    from transformers import AutoModel

    model = NNsight(AutoModel.from_pretrained(folder).eval())
    blocks = parts_of(model, "E_output")  # a module named output has this name in nnsight

    def states(inputs: dict[str, Any]) -> dict[str, Any]:
        with model.trace(**inputs):
            found = {}.save()
            for k, parts in enumerate(blocks):
                if every:
                    found[f"z.{k}"] = parts["z"].input
                    found[f"attn_out.{k}"] = first(parts["attn_out"].output)
                    found[f"mlp_out.{k}"] = first(parts["mlp_out"].output)
                found[f"resid_post.{k}"] = first(parts["block"].output)
        return found

    return states


def of_nnterp(folder: str, *, every: bool) -> States:
    from nnterp import StandardizedTransformer

    model = StandardizedTransformer(folder, device_map="cpu")

    def states(inputs: dict[str, Any]) -> dict[str, Any]:
        with model.trace(inputs):
            found = {}.save()
            for k in range(model.num_layers):
                if every:
                    found[f"attn_out.{k}"] = model.attentions_output[k]
                    found[f"mlp_out.{k}"] = model.mlps_output[k]
                found[f"resid_post.{k}"] = model.layers_output[k]
        return found

    return states


def of_transformer_lens(folder: str, *, every: bool) -> States:
    import torch
    from transformer_lens.model_bridge import TransformerBridge

    bridge = TransformerBridge.boot_transformers(folder, device="cpu", dtype=torch.float32)
    points = {"resid_post": "hook_resid_post"}
    if every:
        points |= {"attn_out": "hook_attn_out", "mlp_out": "hook_mlp_out", "z": "attn.hook_z"}
        if bridge.original_model.config.model_type == "bert":
            points["attn_out"] = "attn.o.hook_out"  # its hook_attn_out of BERT is after the sum and its norm
    wanted = [f"blocks.{k}.{point}" for k in range(bridge.cfg.n_layers) for point in points.values()]

    def states(inputs: dict[str, Any]) -> dict[str, Any]:
        _, cache = bridge.run_with_cache(
            inputs["input_ids"], attention_mask=inputs["attention_mask"], names_filter=wanted
        )
        return {f"{name}.{k}": cache[f"blocks.{k}.{point}"].flatten(2)
                for k in range(bridge.cfg.n_layers) for name, point in points.items()}  # fmt: skip

    return states


TOOLS: dict[str, Callable[..., States]] = {
    "transformers": of_transformers, "nnsight": of_nnsight, "nnterp": of_nnterp, "TransformerLens": of_transformer_lens,
}  # fmt: skip


def batches(texts: list[str], tokenizer: Any, *, ordered: bool) -> Iterator[list[int]]:
    """Numbers of the texts of a batch: 32 as they come, or sorted by length, ``PADDED_TOKENS`` together."""
    if not ordered:
        yield from (list(range(i, min(i + 32, len(texts)))) for i in range(0, len(texts), 32))
        return
    length = [len(ids) for ids in tokenizer(texts, truncation=True).input_ids]
    part: list[int] = []
    for i in sorted(range(len(texts)), key=length.__getitem__):
        if part and (len(part) + 1) * length[i] > PADDED_TOKENS:
            yield part
            part = []
        part.append(i)
    yield part


class Tool:
    """Keeps the means in memory."""

    def __init__(self, tool: str, folder: str, every: bool, ordered: bool) -> None:
        from transformers import AutoTokenizer

        self.tokenizer, self.states = AutoTokenizer.from_pretrained(folder), TOOLS[tool](folder, every=every)
        self.ordered, self.found = ordered, dict[str, np.ndarray]()

    def __call__(self, texts: list[str]) -> None:
        import torch

        self.found, tokenizer = {}, self.tokenizer
        with torch.inference_mode():
            for part in batches(texts, tokenizer, ordered=self.ordered):
                inputs = dict(tokenizer([texts[i] for i in part], padding=True, truncation=True, return_tensors="pt"))
                mask = inputs["attention_mask"][..., None]
                for name, hidden in self.states(inputs).items():
                    into = self.found.setdefault(name, np.empty((len(texts), hidden.shape[-1]), np.float32))
                    into[part] = ((hidden * mask).sum(1) / mask.sum(1)).numpy()

    def means(self) -> dict[str, np.ndarray]:
        return self.found


class Probekit:
    """Writes the means to a cache, and reads them there."""

    def __init__(self, folder: str, every: bool, work: str) -> None:
        from probekit.models import load_encoder

        sites = {"sites": ",".join(SITES)} if every else {}
        self.encoder, self.out = load_encoder(folder, device="cpu", **sites), Path(work) / "cache.h5"

    def __call__(self, texts: list[str]) -> None:
        from probekit import cache_activations
        from probekit.tasks.task import Example, Split, Task, TaskKind

        examples = tuple(Example(str(i), text, label=0) for i, text in enumerate(texts))
        task = Task("benchmark", TaskKind.CLASSIFICATION, {"all": Split("all", examples)}, ("none",))
        cache_activations(self.encoder, task, "all", pooling=["mean-all"], out=self.out, overwrite=True).close()

    def means(self) -> dict[str, np.ndarray]:
        from probekit import ActivationCache

        with ActivationCache(self.out) as cache:
            names = {n: n if "." in n else f"resid_post.{int(n) - 1}" for n in cache.layers if n != "final_norm"}
            return {to: np.array(cache.layer(name)) for name, to in names.items()}


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Wall and CPU seconds of one pass after a short one; the means go to a file."""
    import torch

    torch.set_num_threads(1)
    texts = json.loads(Path(job["texts"]).read_text())
    way = (job["folder"], job["every"])
    run = Probekit(*way, job["work"]) if job["tool"] == "probekit" else Tool(job["tool"], *way, job["ordered"])
    run(texts[:: max(1, len(texts) // 64)])
    wall, cpu = time.perf_counter(), time.process_time()
    run(texts)
    found = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    np.savez(job["out"], **run.means())
    return found


def apart(job: dict[str, Any], python: str) -> dict[str, Any] | None:
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [python, __file__, "--job", json.dumps(job)], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        print(f"{job['tool']} failed: {done.stderr.strip().splitlines()[-1][:300]}", file=sys.stderr)
        return None
    return json.loads(done.stdout.splitlines()[-1])


def compare(model: str, texts: list[str], every: bool, rounds: int, pythons: dict[str, str], only: list[str]) -> None:
    """One table: rates, ratios in the same round, and the largest difference of a mean from probekit's."""
    ways = [("probekit", False)] + [(tool, ordered) for tool in only for ordered in (False, True)]
    seconds: dict[tuple[str, bool], list[dict[str, float]]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory() as work:
        (Path(work) / "texts.json").write_text(json.dumps(texts))
        for turn in range(rounds):
            for tool, ordered in list(seconds):
                job = {"tool": tool, "folder": model, "every": every, "ordered": ordered, "work": work,
                       "texts": f"{work}/texts.json", "out": f"{work}/{tool}-{ordered}.npz"}  # fmt: skip
                one = apart(job, pythons.get(tool, sys.executable))
                if one is None:
                    del seconds[tool, ordered]
                else:
                    seconds[tool, ordered].append(one)
                    print(f"round {turn + 1}: {tool} {one}", file=sys.stderr, flush=True)
        from transformers import AutoConfig

        pieces = counted(model, texts)
        print(f"\n{Path(model).name}, {'four sites of every block' if every else 'every layer'}: {len(texts):,} texts, "
              f"{pieces:,} pieces\n")  # fmt: skip
        print("| way | pieces/CPU-s | pieces/s | probekit is, CPU | wall | largest difference |")
        print("|---|---|---|---|---|---|")
        ours = seconds["probekit", False]
        right = np.load(f"{work}/probekit-False.npz")
        normed = AutoConfig.from_pretrained(model).model_type != "bert"
        for (tool, ordered), times in seconds.items():
            means = np.load(f"{work}/{tool}-{ordered}.npz")
            both = set(means.files) & set(right.files)
            if tool == "transformers" and not every and normed:
                both -= {f"resid_post.{max(int(name.split('.')[1]) for name in both)}"}  # it is after the final norm
            off = max(float(np.abs(means[n] - right[n]).max()) for n in both)
            ratio = {of: median(t[of] / o[of] for t, o in zip(times, ours, strict=True)) for of in ("cpu", "wall")}
            how = "" if tool == "probekit" else ", sorted by length" if ordered else ", batches of 32 as they come"
            rates = [f"{pieces / median(t[of] for t in times):,.0f}" for of in ("cpu", "wall")]
            print(f"| {tool}{how} | {' | '.join(rates)} | {ratio['cpu']:.2f} x | {ratio['wall']:.2f} x | {off:.1e} |")


def counted(model: str, texts: list[str]) -> int:
    from transformers import AutoTokenizer

    return sum(map(len, AutoTokenizer.from_pretrained(model)(texts, truncation=True).input_ids))


def make(folder: Path) -> None:
    """A random GPT-2 small and a Llama of 4 layers, width 512, with MiniLM's word pieces."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    from probekit.models.find import minilm_folder

    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "bos_token": "[CLS]", "eos_token": "[SEP]"}
    file = str(Path(minilm_folder()) / "tokenizer.json")
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=file, model_max_length=512, **special)
    ids = {"vocab_size": len(tokenizer), "bos_token_id": 101, "eos_token_id": 102}
    torch.manual_seed(0)
    models = {
        "gpt2-small": GPT2LMHeadModel(GPT2Config(**ids)),
        "llama-4x512": LlamaForCausalLM(LlamaConfig(
            hidden_size=512, intermediate_size=1408, num_hidden_layers=4, num_attention_heads=8, pad_token_id=0, **ids
        )),
    }  # fmt: skip
    for name, model in models.items():
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--model", action="append", help="folder of a model; may be repeated (default: MiniLM)")
    parser.add_argument("--texts", type=Path, help="one text a line; SST-2 and UD of the shared data by default")
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", action="append", choices=list(TOOLS), help="may be repeated")
    parser.add_argument("--python", action="append", default=[], metavar="TOOL=PATH", help="another interpreter")
    parser.add_argument("--make", type=Path, metavar="FOLDER", help="write two random decoders and end")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        print(json.dumps(measure(json.loads(args.job))))
        return
    if args.make:
        make(args.make)
        return
    from probekit.models.find import resolve_model

    if args.texts:
        texts = [line for line in args.texts.read_text().splitlines() if line][: args.rows]
    else:
        from cache import SHARED, real_texts

        if not SHARED.is_dir():
            raise SystemExit(f"skipped: the shared data sets are not at {SHARED}; give --texts FILE.")
        texts = [t for t in real_texts(4 * args.rows) if isinstance(t, str)][: args.rows]
    print(f"{platform.processor() or platform.machine()}, one core, {args.rounds} rounds")
    pythons = dict(given.split("=", 1) for given in args.python)
    for model in args.model or ["minilm"]:
        folder = str(resolve_model(model))
        for every in (False, True):
            compare(folder, texts, every, args.rounds, pythons, args.only or list(TOOLS))


if __name__ == "__main__":
    main()
