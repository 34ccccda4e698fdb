"""What is selected in a view, and what can be done with it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

    from probekit.analyses.exploration.scene import Scene

__all__ = ["Selection"]


@dataclass(frozen=True, eq=False)
class Selection:
    """The selected examples of a view, at the layer that it shows.

    Attributes
    ----------
    scene : Scene
        What is shown.
    indices : ndarray of int64
        Positions of the selected examples.
    layer : str
        Name of the layer.
    """

    scene: Scene
    indices: np.ndarray
    layer: str

    def __len__(self) -> int:
        return len(self.indices)

    def __repr__(self) -> str:
        return f"<Selection of {len(self):,} of {len(self.scene):,} at layer {self.layer}>"

    @property
    def ids(self) -> list[str]:
        """The ids of the selected examples."""
        return [str(id_) for id_ in self.scene.ids[self.indices]]

    @property
    def examples(self) -> pd.DataFrame:
        """The selected examples with their texts, labels and predictions at this layer."""
        return self.scene.examples(self.ids, self.layer)

    def compare(self) -> pd.DataFrame:
        """The selection and the rest: probe accuracy at this layer, length, labels and domains, with intervals."""
        return self.scene.compare_selection(self.ids, self.layer)

    def write_task(self, path: str | Path) -> Path:
        """Write the selected examples as a task file.

        Parameters
        ----------
        path : path
            The file, .toml; the examples are written beside it.

        Returns
        -------
        Path
            ``path``.
        """
        return self.scene.write_task(self.ids, path)
