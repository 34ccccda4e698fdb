"""The folder of a run: its card, the model folders along the way, and who may write in it.

RUN/                   a model folder of the trained encoder (fine-tuning), with the head and the card
    model.safetensors  the encoder; and the head by the library's names, where a class of transformers has it
    probekit.json      the card: format, run, model, task, data digests, arguments, seed, metrics, versions
    head.safetensors   weights of the head, of the scalar mix, and of a pooler that the library's class lacks
    rows.parquet       dev metrics, losses and mix weights along training, as rows
        dev.examples.parquet   what the kept weights say of each example of dev (and of test)
    step-10/ …         the same folder at earlier steps (--save-at)
    .resume/           while the run lasts: what an interrupted run goes on from
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from probekit.adaptation.heads.library import BARE, Layout
from probekit.adaptation.runs.digests import check_weights, digests_of
from probekit.errors import CacheBusy, ModelError, UsageError
from probekit.files import FileKind, beside, lock, read_json, remove, remove_unfinished, write, writer_of
from probekit.models.folder import save_tensors
from probekit.models.identity import CARD, RUN_FORMAT
from probekit.runtime import processes

__all__ = [
    "HEAD",
    "RESUME",
    "ROWS",
    "begin",
    "kept",
    "load_weights",
    "locked_run",
    "publish",
    "read_card",
    "remove_run",
    "save_folder",
    "write_card",
]

HEAD = "head.safetensors"
WEIGHTS = "model.safetensors"
RESUME = ".resume"
ROWS = "rows.parquet"
_COPIED = (
    "config.json",
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
    "*.model",
)


def _is_card(path: Path) -> bool:
    told = json.loads(path.read_text(encoding="utf-8"))
    return isinstance(told, dict) and str(told.get("format", "")).startswith(RUN_FORMAT.partition("/")[0])


RUN_CARD = FileKind("the card of a run", _is_card)


def read_card(folder: str | Path) -> dict[str, Any]:
    """The card of a run or of one of its checkpoints; raises ModelError where there is none, or it is damaged."""
    path = Path(folder) / CARD
    if not path.is_file():
        raise ModelError(f"{folder} is no run: it has no {CARD}; probekit train writes one.")
    try:
        card = read_json(path)
        if card["format"] != RUN_FORMAT:
            raise ModelError(f"{path} is of format {card['format']!r}; this version reads {RUN_FORMAT!r}.")
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{path} cannot be read as the card of a run ({error}); train it again.") from error
    return dict(card)


def write_card(folder: Path, card: Mapping[str, Any]) -> None:
    """Write the card; it appears whole."""
    if processes()[0]:
        return
    write(folder / CARD, json.dumps(card, indent=2, ensure_ascii=False, default=str) + "\n", RUN_CARD)


def save_folder(
    folder: Path, state: Mapping[str, torch.Tensor], card: Mapping[str, Any], source: Path | None,
    layout: Layout = BARE,
) -> None:  # fmt: skip
    """Write what was trained into ``folder``, which appears whole unless it is there already.

    Parameters
    ----------
    state : Mapping[str, torch.Tensor]
        Weights by name; those of the encoder begin with "encoder."
    source : Path | None
        The pretrained model's folder, whose configuration and tokenizer go along; None where there is no encoder.
    layout : Layout, default BARE
        How the weights lie in the model's file, and what its config.json says of the labels.
    """
    if processes()[0]:
        return
    with beside(folder) as new:
        new.mkdir(parents=True)
        model, beside_it = layout.weights(state)
        if source is not None:
            for file in {f for pattern in _COPIED for f in source.glob(pattern)}:
                shutil.copyfile(file, new / file.name)
            _describe(new / "config.json", layout.config)
            save_tensors(_unshared(model), new / WEIGHTS, format="pt")
        save_tensors(_unshared(beside_it), new / HEAD)
        write_card(new, {**card, "digests": digests_of(new)})
        if folder.exists():
            for file in sorted(new.iterdir(), key=lambda f: f.name == CARD):
                file.replace(folder / file.name)
        else:
            new.replace(folder)


def _describe(path: Path, told: Mapping[str, Any]) -> None:
    """Say in a config.json what is told, and no longer what is None."""
    config = {k: v for k, v in {**read_json(path), **told}.items() if v is not None or k not in told}
    path.write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def load_weights(folder: Path, *, encoder: bool = True) -> dict[str, torch.Tensor]:
    """The weights that :func:`save_folder` wrote, by the same names; those of the encoder if wanted.

    Raises ModelError where they are not those that were written.
    """
    if not (folder / HEAD).is_file():
        raise ModelError(f"{folder} has no {HEAD}; was its training interrupted? Run its command again.")
    check_weights(folder, read_card(folder))
    state = load_file(folder / HEAD)
    if encoder and (folder / WEIGHTS).is_file():
        prefix = read_card(folder)["prefix"]
        own = {name: w for name, w in load_file(folder / WEIGHTS).items() if name.startswith(prefix)}
        state |= {f"encoder.{name.removeprefix(prefix)}": w for name, w in own.items()}
    return dict(state)


def kept(out: Path) -> Path:
    """Where the weights that are kept wait until the run is finished."""
    return out / RESUME / "kept"


def publish(out: Path, card: Mapping[str, Any]) -> None:
    """Move the weights that were kept to where they belong, and the card last; then remove what was for going on.

    Where that is interrupted, ``begin`` does the rest. Logs of TensorBoard, "runs", stay.

    Raises
    ------
    ModelError
        The weights are not those that were kept.
    """
    if not processes()[0]:
        waiting = read_card(kept(out))
        card = {**card, "digests": waiting.get("digests"), "prefix": waiting["prefix"]}
        check_weights(out, card, kept(out))
        if waiting["step"] != card["step"]:  # training again may end otherwise, on a GPU
            raise ModelError(
                f"{kept(out)} holds the weights of step {waiting['step']}, and step {card['step']} was the best. "
                "Train it again with --overwrite."
            )
        write_card(kept(out), card)
        for file in (*kept(out).iterdir(), *(out / RESUME).glob("runs")):
            if file.name != CARD:
                file.replace(out / file.name)
        write_card(out, card)
        remove_unfinished(out, _is_of_run, held=True)
        shutil.rmtree(out / RESUME)
    if torch.distributed.is_initialized():
        torch.distributed.barrier()


def _unshared(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same tensors on the CPU, none of which shares memory with another, as safetensors asks."""
    seen: set[int] = set()
    out = {}
    for name, tensor in state.items():
        here = tensor.detach().to("cpu").contiguous()
        out[name] = here.clone() if here.data_ptr() in seen else here
        seen.add(here.data_ptr())
    return out


def begin(out: Path, identity: Mapping[str, Any], *, overwrite: bool) -> dict[str, Any] | None:
    """Make ``out`` ready for the run that ``identity`` describes, and return its card where it is finished already.

    Another run that is of no more use, because it ended before its first checkpoint or its loss was no number, is
    replaced.

    Raises
    ------
    UsageError
        If the folder holds any other run, or something else.
    """
    if not processes()[0]:
        remove_unfinished(out, CARD.__eq__, held=True)
    if (out / CARD).is_file() and not overwrite:
        card = read_card(out)
        told = _ABSENT | card.get("identity", {})
        if isinstance(told.get("model"), dict) and told.get("layers") and "only" not in told["model"]:
            # of before caches could hold some layers: the head's layers, compared beside this, are what it read
            told, identity = ({**of, "model": {**of["model"], "only": None, "layers": None}} for of in (told, identity))
        if different := [k for k in identity if _known(told.get(k)) != _known(identity[k])]:
            if _spent(out, card):
                _clear(out)
                return None
            plain = [name for name in different if not isinstance(identity[name], dict)]  # digests say nothing
            k = min(plain or different, key=lambda name: name == "data")
            what = f"{k} is {told.get(k)!r}, asked for {identity[k]!r}" if k != "data" else "its data are others"
            raise UsageError(f"{out} holds another run: {what}. Give another --out, or --overwrite.")
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
            raise UsageError(f"{out} is a folder with other things in it; give another --out.")
        if not (out / CARD).is_file():
            raise UsageError(f"{out} holds no run, and is not deleted; give another --out.")
        if strange := foreign(out):
            raise UsageError(
                f"{out} holds {strange}, which is not of a run, so nothing is deleted; give another --out."
            )
        remove_run(out, keep=(".lock",))
    return None


_ABSENT = {"mix": False, "context": "none", "sequential_head": 1, "sequential_body": 1}
"""What the identity of a run lacks that was begun before there was such a thing."""


def _known(value: Any) -> Any:
    """A description of a model without what it does not have; layers by their names."""
    if isinstance(value, dict):
        return {k: v for k, v in value.items() if v is not None}
    return [str(one) for one in value] if isinstance(value, list) else value


def _spent(out: Path, card: Mapping[str, Any]) -> bool:
    """Whether an unfinished run has left nothing of worth: it failed, or cannot go on and has no checkpoints."""
    left = [*out.glob(f"{RESUME}/checkpoint-*/trainer_state.json"), *out.glob("step-*")]
    return not card["complete"] and ("failed" in card or not left)


def _clear(out: Path) -> None:
    """Remove an unfinished run, and nothing else that may lie in its folder; its card last."""
    if processes()[0]:
        return
    for left in (out / RESUME, *_steps(out), *_steps(out, hidden=True)):
        remove(left)
    (out / CARD).unlink()


def _steps(out: Path, *, hidden: bool = False) -> list[Path]:
    """The folders of earlier steps; hidden ones are those that a killed process was writing."""
    name = r"\.step-\d+\.\d+(-\d+)?" if hidden else r"step-\d+"
    return [f for f in out.iterdir() if re.fullmatch(name, f.name) and f.is_dir() and not f.is_symlink()]


FILES = (
    *(CARD, HEAD, WEIGHTS, ROWS, f"{ROWS}.json", "rows.json", "*.examples.parquet", ".lock", ".tmp??????"),
    *_COPIED,
)
"""What lies in the folder of a run beside the folders of its steps, ``.resume`` and TensorBoard's ``runs``."""


def foreign(out: Path) -> str:
    """The name of something in the folder of a run that no run leaves; "" where there is none."""
    ours = {RESUME, *(f.name for hidden in (False, True) for f in _steps(out, hidden=hidden))}
    for file in sorted(out.iterdir()):
        name = (writer_of(file.name) or (file.name,))[0]  # of a killed process, as well
        if file.is_symlink():
            return f"the link {file.name}"
        if file.is_dir():
            if file.name == "runs":  # TensorBoard's, one folder a start
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
    """Delete what a run left in its folder, its card last, and the folder where nothing else is in it."""
    if not out.is_dir() or out.is_symlink():
        return
    remove_unfinished(out, _is_of_run, held=True)
    left = [f for f in out.iterdir() if f.name not in keep and not f.is_symlink()]
    steps = [*_steps(out), *_steps(out, hidden=True)]
    ours = [f for f in left if f in steps or f.name in (RESUME, "runs") or (f.is_file() and _is_of_run(f.name))]
    for file in sorted(ours, key=lambda f: f.name == CARD):  # until its card goes it is a run
        remove(file)
    with suppress(OSError):
        out.rmdir()


@contextmanager
def locked_run(out: Path) -> Iterator[None]:
    """Hold the folder of a run; raises CacheBusy where another process does. Of torchrun's processes the first does."""
    out.mkdir(parents=True, exist_ok=True)
    if processes()[0]:
        yield
        return
    busy = CacheBusy(f"another process is training in {out}; wait for it, or give another --out.")
    with lock(out / ".lock", busy):
        try:
            yield
        finally:
            (out / ".lock").unlink(missing_ok=True)
            if not any(out.iterdir()):
                out.rmdir()
