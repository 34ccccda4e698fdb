"""Which models work: tiny random models of every type in transformers, and what probekit reads of each, compared.

    python benchmarks/families.py --json /tmp/families.jsonl            all: about half an hour on one core
    python benchmarks/families.py --type llama mamba gemma3             these
    python benchmarks/families.py --json /tmp/families.jsonl --csv docs/tables/which-models.csv

Each layer is compared with what hooks of this script see in transformers' own model, run on one text at a time, and
with the hidden states that it returns. The script goes on where it was if the JSON file has some types already.
"""

from __future__ import annotations

import argparse
import csv
import inspect
import json
import logging
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.append(str(Path(__file__).parent))
import numpy as np
import tiny_models
import torch
import transformers
from torch import nn
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES, model_type_to_module_name

import probekit
from probekit.errors import ProbekitError
from probekit.models import load_encoder
from probekit.models.encoder import Batch
from probekit.models.scoring import load_scorer
from probekit.models.sites.proof import prove
from probekit.models.transformers.encoder import all_layers
from probekit.models.transformers.writing import load_writer

LENGTHS = (1, 2, 3, 5, 9, 17, 39, 100)
"""The window of attention is 4, and what reads places reads 64 at most."""
CLOSE = 1e-5
EXACT = 1e-10
SECONDS, MEMORY = 120, 8 << 30
SHOWN = ("status", "why", "path", "error", "where", "batch", "lower", "scores", "writes", "trains")
TEXT = "the cat sees a small bird"


def no_cache(model: Any) -> dict[str, bool]:
    """What keeps a decoder from storing keys and values, which some hybrids cannot do for one text."""
    return {"use_cache": False} if "use_cache" in inspect.signature(model.forward).parameters else {}


def chained(calls: list[tuple[torch.Tensor, torch.Tensor]]) -> bool:
    """Whether each module reads what the one before it returned, as blocks do, and lists of their parts do not."""
    pairs = list(zip([out for _, out in calls], [given for given, _ in calls[1:]], strict=False))
    alike = [one.shape == two.shape and torch.allclose(one, two, rtol=1e-4, atol=1e-5) for one, two in pairs]
    return not pairs or any(alike)


def part_for_texts(whole: Any) -> Any:
    """The part of transformers' model that reads a text: the whole, or what such models call it if the whole cannot."""
    if whole.config.is_encoder_decoder:
        return whole.get_encoder()
    try:
        with torch.no_grad():
            whole(input_ids=torch.tensor([[7, 8]]), **no_cache(whole))
    except (TypeError, AttributeError, ValueError):  # it wants pixels
        return getattr(whole, "text_model", None) or whole.get_decoder()
    return whole


def own_layers(model: Any, ids: torch.Tensor, depth: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The layers of one text (t,) as this script's hooks see them, and the hidden states that the model returns.

    The hooks see what each item of the one list of ``depth`` modules is given, and what the last one returns. The last
    hidden state follows, if it is another one. Empty if there is no such list.
    """
    lists = [part for name, part in model.named_modules() if isinstance(part, nn.ModuleList) and "vision" not in name]
    seen: dict[int, list[tuple[torch.Tensor, torch.Tensor]]] = {}
    handles = []
    for i, part in enumerate(lists):
        for item in part:

            def keep(_: Any, args: Any, kwargs: Any, out: Any, i: int = i) -> None:
                given = args[0] if args else kwargs.get("hidden_states")
                first = out[0] if isinstance(out, tuple | list) else getattr(out, "last_hidden_state", out)
                if isinstance(given, torch.Tensor) and isinstance(first, torch.Tensor):
                    seen.setdefault(i, []).append((given.clone(), first.clone()))

            handles.append(item.register_forward_hook(keep, with_kwargs=True))
    try:
        with torch.no_grad():
            out = model(input_ids=ids[None], output_hidden_states=True, **no_cache(model))
    except Exception as problem:
        raise LookupError(f"transformers' own model does not run on a text: {problem}") from problem
    for handle in handles:
        handle.remove()
    states = [x.reshape(-1, x.shape[-1]) for x in (getattr(out, "hidden_states", None) or ())]
    if getattr(out, "last_hidden_state", None) is not None:
        states = [*states[:-1], out.last_hidden_state.reshape(-1, out.last_hidden_state.shape[-1])]
    chains = (one for one in seen.values() if len(one) == depth and chained(one))
    calls = next(chains, [])
    ends = [calls[-1][1]] if calls else []
    layers = [x.reshape(-1, x.shape[-1])[: len(ids)] for x in (*(given for given, _ in calls), *ends)]  # no padding
    return layers, states


def error(found: torch.Tensor, right: torch.Tensor) -> float:
    """The largest relative error of a vector; infinite for another shape."""
    if found.shape != right.shape:
        return float("inf")
    size = right.double().norm(dim=-1).clamp_min(1e-30)
    return float(((found.double() - right.double()).norm(dim=-1) / size).nan_to_num(float("inf")).max())


def batches(encoder: Any) -> list[Batch]:
    """One text of each length, shortest first."""
    rng, top = np.random.default_rng(0), min(200, encoder.model.config.vocab_size)
    lengths = sorted({min(k, encoder.max_length) for k in LENGTHS})
    return [Batch(rng.integers(6, top, size=k), np.zeros(k, np.uint8), np.array([k])) for k in lengths]


def joined(parts: list[Batch]) -> Batch:
    return Batch(*(np.concatenate([getattr(p, f) for p in parts]) for f in ("token_ids", "type_ids", "length")))


def worst_layer(encoder: Any, own: Any) -> tuple[float, str]:
    """The largest error of a layer of a text alone, and where it is."""
    worst, what = 0.0, ""
    for batch in batches(encoder):
        ours = all_layers(encoder, batch)
        layers, states = own_layers(own, torch.tensor(batch.token_ids.astype(np.int64)), encoder.depth)
        given = len(states) == encoder.depth + 1
        begins = int(given and bool(layers) and error(states[0], layers[1]) < error(states[0], layers[0]))
        if not layers and not given:
            return float("nan"), "nothing to compare with"
        for i, (site, rows) in enumerate(zip(encoder.sites, ours, strict=True)):
            last = i == len(encoder.sites) - 1
            right = {}
            if i <= encoder.depth and layers:
                right["hooks"] = layers[i]
            if given and (begins <= i < encoder.depth or (last and encoder.final_norm) or (last and not layers)):
                right["hidden_states"] = states[i - begins if i < encoder.depth else -1]
            elif last and states and (encoder.final_norm or not layers):
                right["last hidden state"] = states[-1]
            for name, truth in right.items():
                if (off := error(rows, truth)) > worst:
                    worst, what = off, f"layer {site}, {len(rows)} pieces, {name}"
            if not right:
                return float("nan"), f"layer {site} has nothing to be compared with"
    return worst, what


def worst_batch(encoder: Any) -> float:
    """The largest error of a text in a batch, from the text alone."""
    parts = batches(encoder)
    alone = [all_layers(encoder, part) for part in parts]
    if encoder.mixed_lengths:
        together = all_layers(encoder, joined(parts)).split([int(p.length[0]) for p in parts], dim=1)
    else:
        others = [Batch(p.token_ids[::-1].copy(), p.type_ids, p.length) for p in parts]
        together = [
            all_layers(encoder, joined([other, part]))[:, len(part.token_ids) :]
            for other, part in zip(others, parts, strict=True)
        ]
    return max(error(one, two) for one, two in zip(together, alone, strict=True))


class Case:
    """A tiny model on the disk, as probekit reads it and as transformers does."""

    def __init__(self, folder: Path, head: str) -> None:
        self.folder, self.head = folder, head

    @cached_property
    def encoder(self) -> Any:
        """Its layers, by probekit."""
        return load_encoder(self.folder)

    @cached_property
    def own(self) -> Any:
        """The whole model, by transformers."""
        name = json.loads((self.folder / "config.json").read_text())["architectures"][0]
        try:
            return getattr(transformers, name).from_pretrained(self.folder).eval()
        except Exception as problem:
            raise LookupError(f"transformers does not read what it has written: {problem}") from problem

    @cached_property
    def speaker(self) -> Any:
        """The part of it that predicts the pieces of a text."""
        part = part_for_texts(self.own)
        return self.own if part is self.own else getattr(self.own, "language_model", None) or part

    def layers(self) -> dict[str, Any]:
        """Whether each layer is right, alone and in a batch."""
        encoder, own = self.encoder, part_for_texts(self.own)
        off, what = worst_layer(encoder, own)
        found: dict[str, Any] = {"where": what, "error": off}
        if off > CLOSE:  # rounding, or something else?
            exact: Any = load_encoder(self.folder, onednn=False)
            exact.model.double()
            for model in (exact.model, own):
                model.set_experts_implementation("eager")  # the others know no float64
            off, found["where"] = worst_layer(exact, own.double())
            found["error64"] = off
            off = off if off > EXACT else 0.0
            own.float()
        found |= {"batch": (apart := worst_batch(encoder)), "path": encoder.spec["path"]}
        status = "unknown" if off != off else "right" if max(off, apart) <= CLOSE else "WRONG"
        return found | {"status": status, "left": encoder.spec.get("left_out"), "layers": [*map(str, encoder.sites)]}

    def lower(self) -> str:
        """Whether layers have the same bits where the weights of the blocks after them are not read."""
        last = self.encoder.depth - 2
        part: Any = load_encoder(self.folder, last=max(0, last))
        if part.last is None:
            return "whole"
        kept, texts = range(part.last + 1), batches(self.encoder)
        given = [joined(texts)] if part.mixed_lengths else texts
        pairs = [[all_layers(one, batch, wanted=kept) for one in (part, self.encoder)] for batch in given]
        same = part.mixed_lengths == self.encoder.mixed_lengths and all(torch.equal(*pair) for pair in pairs)
        return "right" if same else f"WRONG: off by {max(error(*pair) for pair in pairs)}"

    def sites(self) -> list[str]:
        """The sites that are proven in every block that has them."""
        proofs = prove(self.encoder).proofs
        proven = {site.name for site, proof in proofs.items() if not proof.refusal}
        wrong = {site.name for site, proof in proofs.items() if proof.refusal and not proof.lacking}
        return sorted(proven - wrong)

    @torch.no_grad()
    def own_score(self) -> float:
        """The summed log-probability of a text by transformers' own model."""
        tokenizer = transformers.AutoTokenizer.from_pretrained(self.folder)
        ids, total = tokenizer(TEXT)["input_ids"], 0.0
        if self.head == "causal":
            ids = [tokenizer.bos_token_id, *ids]
            log_p = self.speaker(input_ids=torch.tensor([ids]), **no_cache(self.speaker)).logits[0].log_softmax(-1)
            return sum(float(log_p[t, ids[t + 1]]) for t in range(len(ids) - 1))
        for t in range(1, len(ids) - 1):
            given = [*ids[:t], tokenizer.mask_token_id, *ids[t + 1 :]]
            logits = self.speaker(input_ids=torch.tensor([given])).logits
            total += float(logits[0, t].log_softmax(-1)[ids[t]])
        return total

    def scores(self) -> str:
        """Score a text, and compare the score."""
        score = load_scorer(self.folder).score([TEXT], ["log-probability" if self.head == "causal" else "pll"])
        found, right = float(next(iter(score.values()))[0, 0]), self.own_score()
        return "right" if abs(found - right) <= 1e-4 * abs(right) else f"WRONG: {found} is not {right}"

    def writes(self) -> str:
        """Four pieces, written, and those that transformers' own model finds likeliest."""
        prompt = np.arange(20, 27, dtype=np.int32)
        ids = prompt.tolist()
        with torch.no_grad():
            for _ in range(4):
                logits = self.speaker(input_ids=torch.tensor([ids]), **no_cache(self.speaker)).logits
                ids.append(int(logits[0, -1].argmax()))
        writer = load_writer(str(self.folder), self.folder, self.encoder)
        with writer.ready():
            found = writer.write([prompt], 4, lambda rows, logits: logits.argmax(-1).numpy())[0].tolist()
        return "right" if found == ids[7 : 7 + len(found)] and found else f"WRONG: {found} is not {ids[7:]}"

    def trains(self) -> str:
        """A step of fine-tuning, after which the layers that are read are others."""
        lines = (f"the {animal} {verb}\t{verb}\n" for animal in ("cat", "dog") for verb in ("sleeps", "runs", "sees"))
        (self.folder / "texts.tsv").write_text("text\tlabel\n" + "".join(lines))
        (self.folder / "task.toml").write_text('[splits]\ntrain = "texts.tsv"\ndev = "texts.tsv"\n')
        how: dict[str, Any] = {"epochs": 1, "learning_rate": 1e-2, "progress": False}
        run = probekit.train(self.folder / "task.toml", self.folder, self.folder / "run", **how)
        batch = batches(self.encoder)[3]
        one, two = (all_layers(encoder, batch) for encoder in (self.encoder, load_encoder(run.path)))
        return "right" if one.shape == two.shape and error(one, two) > 1e-4 else f"WRONG: changed {error(one, two)}"


def guarded(check: Callable[[], Any]) -> Any:
    """What a check returns, or why it did not."""
    try:
        return check()
    except ProbekitError as problem:
        return f"refused: {problem}"
    except LookupError as problem:
        if isinstance(problem, IndexError | KeyError):
            return told(problem)
        return f"unknown: {problem}"
    except Exception as problem:
        return told(problem)


def told(problem: Exception) -> str:
    """An error that is no sentence, and where it was."""
    place = traceback.extract_tb(problem.__traceback__)[-1]
    return f"TRACEBACK: {type(problem).__name__}: {str(problem)[:200]} ({Path(place.filename).name}:{place.lineno})"


def examine(kind: str, folder: Path, *, train: bool = True) -> dict[str, Any]:
    """All checks of one type."""
    row: dict[str, Any] = {"type": kind, "folder": model_type_to_module_name(kind)}
    try:
        head = tiny_models.save_tiny(kind, folder)
    except Exception as problem:
        return row | {"status": "unknown", "why": f"{type(problem).__name__}: {' '.join(str(problem).split())[:200]}"}
    row |= {"class": json.loads((folder / "config.json").read_text())["architectures"][0], "head": head}
    case = Case(folder, head)
    found = guarded(case.layers)
    if isinstance(found, str):
        return row | {"status": found.partition(":")[0], "why": found.partition(": ")[2]}
    row |= found | {"lower": guarded(case.lower), "sites": guarded(case.sites)}
    if head:
        row["scores"] = guarded(case.scores)
    if head == "causal":
        row["writes"] = guarded(case.writes)
    if train:
        row["trains"] = guarded(case.trains)
    return row


def alone(kind: str, *, train: bool = True) -> dict[str, Any]:
    """Examine a type in a process of its own, with limits of time and memory."""
    reads, writes = os.pipe()
    if (child := os.fork()) == 0:
        os.close(reads)
        signal.alarm(SECONDS)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        scratch = Path(tempfile.mkdtemp(prefix="families-"))
        try:
            row = examine(kind, scratch / kind, train=train)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        with os.fdopen(writes, "w") as pipe:
            pipe.write(json.dumps(row, default=str))
        os._exit(0)
    os.close(writes)
    with os.fdopen(reads) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    if not text:
        why = f"the process ended with the signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "it ended"
        return {"type": kind, "folder": model_type_to_module_name(kind), "status": "unknown", "why": why}
    found: dict[str, Any] = json.loads(text)
    return found


def known(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of an earlier run."""
    if path.is_file():
        yield from map(json.loads, path.read_text(encoding="utf-8").splitlines())


COLUMNS = ("Family", "Type", "Layers", "Runs", "Sites", "Scores", "Generation", "Note")


def count(row: dict[str, Any]) -> str:
    """The number of kinds of sites that are proven."""
    sites = row.get("sites", "–")
    return str(len(sites)) if isinstance(sites, list) else sites.partition(":")[0]


def line(row: dict[str, Any]) -> list[str]:
    """A row of the table of the documentation."""
    notes, cells = [], []
    for key in ("scores", "writes"):
        word, _, why = str(row.get(key, "–")).partition(": ")
        cells.append("yes" if word == "right" else word)
        notes += [why] if word == "refused" and why not in notes else []
    if row["status"] != "right":
        notes = [row.get("why") or row.get("where") or ""]
    if row.get("left"):
        notes.insert(0, f"Left out: {', '.join(row['left'])}.")
    text = re.sub(r"\S*families-\w+/[\w./-]+", "MODEL", " ".join(" ".join(notes).split()))
    runs = row.get("path", "–").partition("+")[0]
    status = "unknown" if "its own code fails" in row.get("why", "") else row["status"]  # perhaps the size is wrong
    return [row["folder"], row["type"], status, runs, count(row), *cells, text]


def reads_text(kind: str) -> bool:
    """Whether the configuration of a type has a vocabulary, of texts or of what is read like them."""
    try:
        config = transformers.AutoConfig.for_model(kind)
        tiny_models.model_class(config)
        return isinstance(getattr(config.get_text_config(), "vocab_size", None), int) or kind in tiny_models.OVERRIDES
    except Exception:  # transformers has many
        return False


def write_table(rows: list[dict[str, Any]], path: Path) -> None:
    """Write the table of the documentation."""
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *map(line, rows)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--type", nargs="+", default=None)
    parser.add_argument("--json", type=Path, help="where the rows are kept, and read from")
    parser.add_argument("--csv", type=Path, help="the table of the documentation")
    parser.add_argument("--fast", action="store_true", help="without training")
    parser.add_argument("--again", nargs="*", default=[], help="statuses that are examined again")
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    rows = {row["type"]: row for row in known(given.json)} if given.json else {}
    for kind in given.type or filter(reads_text, sorted(CONFIG_MAPPING_NAMES)):
        lacks = not given.fast and rows.get(kind, {}).get("status") == "right" and "trains" not in rows[kind]
        if kind in rows and rows[kind]["status"] not in given.again and not lacks:
            continue
        begin = time.time()
        rows[kind] = row = alone(kind, train=not given.fast) | {"seconds": 0}
        row["seconds"] = round(time.time() - begin, 1)
        shown = " ".join(f"{key}={row[key]}"[:150] for key in SHOWN if key in row)
        print(f"{kind} [{row['seconds']} s] {shown} sites={count(row)}", flush=True)
        if given.json:
            given.json.write_text("".join(json.dumps(rows[k]) + "\n" for k in sorted(rows)), encoding="utf-8")
    if given.csv:
        write_table([rows[kind] for kind in sorted(rows, key=lambda k: (rows[k]["folder"], k))], given.csv)
    counts: dict[str, int] = {}
    for row in rows.values():
        counts[row["status"]] = counts.get(row["status"], 0) + 1
    print(counts)


if __name__ == "__main__":
    main()
