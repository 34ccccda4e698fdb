"""Execute notebooks and write their outputs into them: ``python notebooks/write.py notebooks/*.ipynb``.

The digest of the code cells goes into the notebook's metadata, so that a test sees code that was changed since.
"""

import base64
import hashlib
import io
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from PIL import Image


def code_digest(notebook: Mapping[str, Any]) -> str:
    """SHA-256 of the code cells, whose lines may be a list, as in the file."""
    code = "\0".join("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code")
    return hashlib.sha256(code.encode()).hexdigest()


def small_png(png: str) -> str:
    """A figure in a palette of at most 128 colours, without metadata; base64 in and out."""
    image = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB")
    small = io.BytesIO()
    image.quantize(128, dither=Image.Dither.NONE).save(small, "PNG", optimize=True)
    return base64.b64encode(small.getvalue()).decode()


def execute(path: Path) -> None:
    """Execute a notebook in its folder and write it with its outputs."""
    import nbformat  # builds a parser of addresses, for five seconds: not where only the digest is wanted
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=600,
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(path.parent)}},
        extra_arguments=["--InlineBackend.figure_formats={'retina'}"],
    )
    client.execute()
    for output in (output for cell in notebook.cells for output in cell.get("outputs", ())):
        if output.get("name") == "stderr":  # each note once
            output["text"] = "\n".join(dict.fromkeys(output["text"].splitlines())) + "\n"
        if plain := output.get("data", {}).get("text/plain"):  # addresses in memory differ each time
            output["data"]["text/plain"] = re.sub(r" at 0x[0-9a-f]+", "", plain)
        if png := output.get("data", {}).get("image/png"):
            output["data"]["image/png"] = small_png(png)
    notebook.metadata = {
        "executed": code_digest(notebook),
        "kernelspec": notebook.metadata["kernelspec"],
        "language_info": {"name": "python"},
    }
    nbformat.write(notebook, path)


if __name__ == "__main__":
    os.environ |= {"HF_HUB_OFFLINE": "1", "PROBEKIT_PROGRESS": "0", "PYTHONWARNINGS": "ignore:IProgress not found"}
    for name in sys.argv[1:]:
        execute(Path(name))
        print(f"{name}: {Path(name).stat().st_size / 1e3:.0f} kB")
