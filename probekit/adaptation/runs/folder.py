"""The folder of a run: its card, its checkpoints, and its lock.

RUN/                   a model folder of the trained encoder (fine-tuning), with the head and the card
    model.safetensors  the encoder, and the head if a transformers class has it, by the library's names
    probekit.json      the card: format, run, model, task, data digests, arguments, seed, metrics, versions
    head.safetensors   weights of the head, of the scalar mix, and of a pooler that the library's class lacks
    adapter_config.json, adapter_model.safetensors, changed.safetensors
                       instead of model.safetensors if a method trains few weights: these, as peft or by their names
    outputs.json       the output words of decoders, by objective
    rows.parquet       dev metrics, losses and mix weights along training, as rows
        dev.examples.parquet   predictions of the kept weights for each example of dev; test.examples.parquet: of test
    step-10/ …         the same folder at earlier steps (--save-at)
    .resume/           while the run is unfinished: the checkpoints for resuming
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from probekit.adaptation.heads.library import BARE, Layout
from probekit.adaptation.options import Hyperparameters
from probekit.adaptation.runs.digests import check_weights, digests_of
from probekit.errors import CacheBusy, ModelError, UsageError
from probekit.files import FileKind, draft, lock, read_json, remove, remove_unfinished, write, writer_of
from probekit.models.adapted.library import name_in_model
from probekit.models.adapted.record import ADAPTER_CONFIG, ADAPTER_WEIGHTS, CHANGED_WEIGHTS, LIBRARY, adapted
from probekit.models.folder import save_tensors, text_values
from probekit.models.identity import CARD, RUN_FORMAT
from probekit.runtime import processes

HEAD = "head.safetensors"
WEIGHTS = "model.safetensors"
RESUME = ".resume"
ROWS = "rows.parquet"
_COPIED = (
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
    "spiece.model",
    "spm.model",
    "sentencepiece.bpe.model",
    "sentencepiece.model",
)


def _is_card(path: Path) -> bool:
    card = json.loads(path.read_text(encoding="utf-8"))
    return isinstance(card, dict) and str(card.get("format", "")).startswith(RUN_FORMAT.partition("/")[0])


RUN_CARD = FileKind("the card of a run", _is_card)


def read_card(folder: str | Path) -> dict[str, Any]:
    """The card of a run or of one of its checkpoints; raises ModelError if it is missing or damaged."""
    path = Path(folder) / CARD
    if not path.is_file():
        if seeds := sorted(Path(folder).glob(f"seed-*/{CARD}")):
            raise ModelError(f"{folder} holds the runs of several seeds; give one of them, such as {seeds[0].parent}.")
        raise ModelError(f"{folder} is not a run: it has no {CARD}, which probekit train writes.")
    try:
        card = read_json(path)
        if card["format"] != RUN_FORMAT:
            raise ModelError(f"{path} has the format {card['format']!r}; this version reads {RUN_FORMAT!r}.")
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{path} cannot be read as the card of a run ({error}); train it again.") from error
    return dict(card)


def write_card(folder: Path, card: Mapping[str, Any]) -> None:
    """Write the card atomically."""
    if processes()[0]:
        return
    write(folder / CARD, json.dumps(card, indent=2, ensure_ascii=False, default=str) + "\n", RUN_CARD)


def save_folder(
    folder: Path, state: Mapping[str, torch.Tensor], card: Mapping[str, Any], source: Path | None, layout: Layout = BARE
) -> None:
    """Write trained weights to ``folder``, atomically if it does not exist yet.

    Parameters
    ----------
    state : Mapping[str, torch.Tensor]
        Weights by name; those of the encoder begin with "encoder."
    source : Path | None
        The pretrained model's folder, whose configuration and tokenizer are copied; None without an encoder.
    layout : Layout, default BARE
        The layout of the weights in the model's file, and the labels for config.json.
    """
    if processes()[0]:
        return
    with draft(folder) as new:
        model, beside_it = layout.weights(state)
        if source is not None:
            for file in {f for pattern in _COPIED for f in source.glob(pattern)}:
                shutil.copyfile(file, new / file.name)
            _describe(new, layout.config)
            save_tensors(_unshared(model), new / layout.written, format="pt")
            for name, content in layout.documents.items():
                (new / name).write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        save_tensors(_unshared(beside_it), new / HEAD)
        write_card(new, {**card, "digests": digests_of(new)})
        if folder.exists():
            for file in sorted(new.iterdir(), key=lambda f: f.name == CARD):
                file.replace(folder / file.name)
        else:
            new.replace(folder)


def save_averaged(
    folder: Path, state: Mapping[str, Mapping[str, torch.Tensor]], card: Mapping[str, Any], source: Path
) -> None:
    """Write tensors, by file and name, as the run of ``card`` into a new folder, or the same one again; its card last.

    Parameters
    ----------
    source : Path
        A run of the same architecture, whose configuration and tokenizer are copied.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for file in {f for pattern in _COPIED for f in source.glob(pattern)}:
        shutil.copyfile(file, folder / file.name)
    for name, tensors in state.items():
        save_tensors(tensors, folder / name, **({"format": "pt"} if name == WEIGHTS else {}))
    write_card(folder, {**card, "digests": digests_of(folder)})


def _describe(folder: Path, changes: Mapping[str, Any]) -> None:
    """Update config.json, which is that of a model of texts from now on; None removes a key."""
    config = {k: v for k, v in {**text_values(folder), **changes}.items() if v is not None or k not in changes}
    (folder / "config.json").write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def load_weights(folder: Path, *, encoder: bool = True) -> dict[str, torch.Tensor]:
    """The weights that :func:`save_folder` wrote, by the same names, with or without those of the encoder.

    Raises ModelError if they do not match their digests.
    """
    if not (folder / HEAD).is_file():
        raise ModelError(f"{folder} has no {HEAD}; was its training interrupted? Run its command again.")
    check_weights(folder, read_card(folder))
    state = load_file(folder / HEAD)
    if encoder and (run := adapted(folder)) is not None:
        rename = name_in_model if run.method in LIBRARY else str
        state |= {f"encoder.{rename(name)}": weight for name, weight in load_file(run.weights).items()}
    elif encoder and (folder / WEIGHTS).is_file():
        prefix = read_card(folder)["prefix"]
        weights = {name: w for name, w in load_file(folder / WEIGHTS).items() if name.startswith(prefix)}
        state |= {f"encoder.{name.removeprefix(prefix)}": w for name, w in weights.items()}
    return dict(state)


def kept(out: Path) -> Path:
    """The folder of the kept weights until the run is finished."""
    return out / RESUME / "kept"


def publish(out: Path, card: Mapping[str, Any]) -> None:
    """Move the kept weights and, last, the card to the run's folder; then remove the checkpoints for resuming.

    If this is interrupted, ``begin`` completes it. TensorBoard logs, "runs", are kept.

    Raises
    ------
    ModelError
        If the weights are not those of the kept step.
    """
    if not processes()[0]:
        waiting = read_card(kept(out))
        card = {**card, "digests": waiting.get("digests"), "prefix": waiting["prefix"]}
        check_weights(out, card, kept(out))
        if waiting["step"] != card["step"]:  # repeated training may end differently on a GPU
            raise ModelError(
                f"{kept(out)} holds the weights of step {waiting['step']}, but step {card['step']} was the best. "
                "Train it again with --overwrite."
            )
        write_card(kept(out), card)
        for file in (*kept(out).iterdir(), *(out / RESUME).glob("runs")):
            if file.name != CARD:
                file.replace(out / file.name)
        write_card(out, card)
        remove_unfinished(out, lambda name: _is_of_run(name) or _is_step(name), held=True)
        shutil.rmtree(out / RESUME)
    if torch.distributed.is_initialized():
        torch.distributed.barrier()


def _unshared(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same tensors on the CPU, without shared memory, as safetensors requires."""
    seen: set[int] = set()
    out = {}
    for name, tensor in state.items():
        here = tensor.detach().to("cpu").contiguous()
        out[name] = here.clone() if here.data_ptr() in seen else here
        seen.add(here.data_ptr())
    return out


def begin(out: Path, identity: Mapping[str, Any], *, overwrite: bool) -> dict[str, Any] | None:
    """Prepare ``out`` for the run that ``identity`` describes, and return its card if it is already finished.

    Another run is replaced if it is of no use, because it ended before its first checkpoint or its loss was not finite.

    Raises
    ------
    UsageError
        If the folder holds another run, or other files.
    """
    if not processes()[0]:
        remove_unfinished(out, lambda name: name == CARD or _is_step(name), held=True)
    if (out / CARD).is_file() and not overwrite:
        card = read_card(out)
        earlier = _defaults() | card.get("identity", {})
        if isinstance(earlier.get("model"), dict) and earlier.get("layers") and "only" not in earlier["model"]:
            # from before caches could hold some layers; the head's layers, which are compared too, are those it read
            earlier, identity = (
                {**one, "model": {**one["model"], "only": None, "layers": None}} for one in (earlier, identity)
            )
        if different := [k for k in identity if _known(earlier.get(k)) != _known(identity[k])]:
            if _spent(out, card):
                _clear(out)
                return None
            plain = [name for name in different if not isinstance(identity[name], dict)]  # digests are not informative
            k = min(plain or different, key=lambda name: name == "data")
            what = f"its {k} is {earlier.get(k)!r}, not {identity[k]!r}" if k != "data" else "its data are different"
            raise UsageError(
                f"the folder {str(out)!r} holds another run: {what}. Give another --out, or replace that run with "
                "--overwrite."
            )
        if processes()[0]:
            return card if card["complete"] else None
        if not card["complete"] and (kept(out) / CARD).is_file() and "total_steps" in (last := read_card(kept(out))):
            publish(out, last)
            return last
        for left in (out / RESUME,) if card["complete"] else _steps(out, hidden=True):
            remove(left)
        return card if card["complete"] else None
    if processes()[0]:
        return None
    if out.exists() and any(f.name != ".lock" for f in out.iterdir()):
        if not overwrite:
            raise UsageError(f"{out} is a folder with other files; give another --out.")
        if not (out / CARD).is_file():
            raise UsageError(f"{out} does not hold a run and is not deleted; give another --out.")
        if strange := foreign(out):
            raise UsageError(
                f"{out} holds {strange}, which does not belong to a run, so nothing is deleted; give another --out."
            )
        remove_run(out, keep=(".lock",))
    return None


def _defaults() -> dict[str, Any]:
    """The defaults of hyperparameters, for those that the identity of an older run lacks."""
    return {f.name: f.default for f in fields(Hyperparameters)}


def _known(value: Any) -> Any:
    """A description of a model without None values; layers by their names."""
    if isinstance(value, dict):
        return {k: v for k, v in value.items() if v is not None}
    return [str(one) for one in value] if isinstance(value, list) else value


def _spent(out: Path, card: Mapping[str, Any]) -> bool:
    """Whether an unfinished run is useless: it failed, or it cannot be resumed and has no checkpoints."""
    left = [*out.glob(f"{RESUME}/checkpoint-*/trainer_state.json"), *out.glob("step-*")]
    return not card["complete"] and ("failed" in card or not left)


def _clear(out: Path) -> None:
    """Remove an unfinished run, its card last, but no other files in its folder."""
    if processes()[0]:
        return
    for left in (out / RESUME, *_steps(out), *_steps(out, hidden=True)):
        remove(left)
    (out / CARD).unlink()


def _steps(out: Path, *, hidden: bool = False) -> list[Path]:
    """The folders of checkpoints; hidden ones are those that a killed process was writing.

    A name is not proof: they hold nothing but files of a run.
    """
    name = r"\.step-\d+\.\d+(-\d+)?" if hidden else r"step-\d+"
    found = (f for f in out.iterdir() if re.fullmatch(name, f.name) and f.is_dir() and not f.is_symlink())
    return [f for f in found if all(_is_of_run(g.name) and g.is_file() and not g.is_symlink() for g in f.iterdir())]


def _is_step(name: str) -> bool:
    return re.fullmatch(r"step-\d+", name) is not None


FILES = (
    *(CARD, HEAD, WEIGHTS, ROWS, f"{ROWS}.json", "rows.json", "*.examples.parquet", "outputs.json"),
    *(ADAPTER_CONFIG, ADAPTER_WEIGHTS, CHANGED_WEIGHTS),
    *(".lock", ".tmp??????"),
    *_COPIED,
)
"""Files in the folder of a run, besides the folders of checkpoints, ``.resume`` and TensorBoard's ``runs``."""


def foreign(out: Path) -> str:
    """The name of something in the folder that does not belong to a run; "" if there is none."""
    ours = {RESUME, *(f.name for hidden in (False, True) for f in _steps(out, hidden=hidden))}
    for file in sorted(out.iterdir()):
        name = (writer_of(file.name) or (file.name,))[0]  # also files of a killed process
        if file.is_symlink():
            return f"the link {file.name}"
        if file.is_dir():
            if file.name == "runs":  # TensorBoard's, one folder per start
                logs = [f for f in file.rglob("*") if f.is_symlink() or not f.is_dir()]
                if others := [f for f in logs if f.is_symlink() or not f.name.startswith("events.out.tfevents.")]:
                    return str(others[0].relative_to(out))
            elif file.name not in ours:
                return f"the folder {file.name}"
            elif file.name != RESUME and (strange := [f.name for f in file.iterdir() if not _is_of_run(f.name)]):
                return f"{file.name}/{strange[0]}"
        elif not _is_of_run(name):
            return file.name
    return ""


def _is_of_run(name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in FILES)


def remove_run(out: Path, keep: Sequence[str] = ()) -> None:
    """Delete the files of a run, its card last, and the folder if it is then empty."""
    if not out.is_dir() or out.is_symlink():
        return
    remove_unfinished(out, lambda name: _is_of_run(name) or _is_step(name), held=True)
    left = [f for f in out.iterdir() if f.name not in keep and not f.is_symlink()]
    steps = [*_steps(out), *_steps(out, hidden=True)]
    ours = [f for f in left if f in steps or f.name in (RESUME, "runs") or (f.is_file() and _is_of_run(f.name))]
    for file in sorted(ours, key=lambda f: f.name == CARD):  # the card marks it as a run
        remove(file)
    with suppress(OSError):
        out.rmdir()


@contextmanager
def locked_run(out: Path) -> Iterator[None]:
    """Lock the folder of a run; raises CacheBusy if another process holds it. Under torchrun, rank 0 holds the lock."""
    out.mkdir(parents=True, exist_ok=True)
    if processes()[0]:
        yield
        return
    busy = CacheBusy(f"another process is writing to {out}; wait for it, or give another --out.")
    with lock(out / ".lock", busy):
        try:
            yield
        finally:
            (out / ".lock").unlink(missing_ok=True)
            if not any(out.iterdir()):
                out.rmdir()
