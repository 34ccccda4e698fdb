"""The view: linked maps and panels as widgets, and what is selected in them."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import numpy as np
import traitlets as t
from ipywidgets import Box, VBox

from probekit.errors import ProbekitError, UsageError, did_you_mean
from probekit.explore.colours import Colour, colours
from probekit.explore.maps import appearance, height, new_map, points
from probekit.explore.page import save_page
from probekit.explore.panels import captions, first_state, values
from probekit.explore.places import methods, place
from probekit.explore.questions import answer, short_texts
from probekit.explore.widgets import PANELS
from probekit.runtime import Progress, no_progress

if TYPE_CHECKING:
    import pandas as pd

    from probekit.analyses.exploration.scene import Scene


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


LOG = logging.getLogger(__name__)
SHARED: Final = ("layer", "step", "method", "colour", "selected", "example", "origin", "dark", "still")


class View(t.HasTraits):
    """Linked maps of a scene with their panels; the last expression of a notebook cell shows them.

    Attributes
    ----------
    layer, step : int
        Positions of the layer and of the model on the right. Set them to move the maps.
    method, colour : str
        Projection and colour of the maps.
    example : int
        Position of the example shown in the example panel; -1 if none.
    scene : Scene
        What is shown.
    """

    layer, step, example = t.Int(0), t.Int(1), t.Int(-1)
    method, colour = t.Unicode(), t.Unicode()
    origin = t.List()
    selected, dark, still = t.Bytes(), t.Bool(default_value=False), t.Bool(default_value=False)

    def __init__(
        self, scene: Scene, state: Mapping[str, Any] | str | Path | None = None, *, made_by: str = "probekit.explore"
    ) -> None:
        self.scene: Final = scene
        self.made_by: Final = made_by
        self._colours: dict[str, Colour] = {colour.name: colour for colour in colours(scene)}
        super().__init__(**first_state(scene, list(self._colours.values())))
        self._hears = True
        view_sync = uuid4().hex
        self.maps = [new_map(short_texts(scene), view_sync) for _ in scene.sides[:2]]
        known = values(scene, list(self._colours.values()))
        self._panels = {name: kind(**known.get(name, {})) for name, kind in PANELS.items()}
        for name, panel in self._panels.items():
            for trait in set(SHARED) & set(panel.trait_names()) if name not in ("left", "right") else ():
                t.link((self, trait), (panel, trait))
            panel.on_msg(self._ask)
        for one, name in zip(self.maps, ("left", "right"), strict=False):
            self._panels[name].observe(
                lambda change, one=one: setattr(one, "height", height(change["new"])), names="width"
            )
        for number, one in enumerate(self.maps):
            one.observe(lambda change, at=number: self._map_selected(at, change["new"]), names="selection")
            one.observe(lambda change, at=number: self._map_hovered(at, change["new"]), names="hovering")
        self.observe(self._redraw, names=["layer", "step", "method", "colour", "dark"])
        self.observe(self._show_selection, names="selected")
        self.observe(self._show_example, names="example")
        if state is not None:
            self.state = state
        self._draw(moves=False)
        self._show_selection()
        self.widget: Final = self._laid_out()

    def _laid_out(self) -> VBox:
        """The widget of the whole view; where its parts stand is said in explore.css, by their classes."""
        panel = self._panels
        maps = zip(self.maps, ("left", "right"), strict=False)
        parts = {name: VBox([one, panel[name]]).add_class("pk-map") for one, name in maps}
        parts |= {name: panel[name] for name in ("controls", "example", "units", "notes")}
        parts["side"] = VBox([panel["curve"], panel["selection"]])
        for name, part in parts.items():
            part.add_class(f"pk-at-{name}")
        view = Box(list(parts.values())).add_class("pk-view")
        if len(self.maps) == 1:
            view.add_class("pk-one")
        return VBox([view]).add_class("pk-frame")

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        return self.widget._repr_mimebundle_(**kwargs)

    def __repr__(self) -> str:
        return (
            f"<View of {self.scene!r}: layer {self.scene.layers[self.layer]}, {len(self.selection.indices):,} selected>"
        )

    @t.validate("layer", "step", "example")
    def _is_position(self, proposal: Any) -> int:
        name, value = proposal["trait"].name, proposal["value"]
        last = {"layer": len(self.scene.layers), "step": len(self.scene.sides), "example": len(self.scene.ids)}[
            name
        ] - 1
        first = -1 if name == "example" else 0
        if not first <= value <= last:
            raise UsageError(f"{name} is {value}; it must be from {first} to {last}.")
        return int(value)

    @t.validate("method", "colour")
    def _is_known(self, proposal: Any) -> str:
        name, value = proposal["trait"].name, proposal["value"]
        known = methods(self.scene) if name == "method" else list(self._colours)
        if value not in known:
            raise UsageError(f"{name} is {value!r}; {did_you_mean(value, known)}")
        return str(value)

    def _redraw(self, change: Any) -> None:
        self._draw(moves=change["name"] not in ("colour", "dark"))

    def _draw(self, *, moves: bool) -> None:
        """Put the points of the layer on the maps; ``moves`` is whether they have other places than before."""
        colour = self._colours[self.colour]
        self._panels["controls"].legend = colour.legend(self.layer)
        for side, one, panel in zip((0, self.step), self.maps, ("left", "right"), strict=False):
            with one.hold_sync():
                for name, value in appearance(colour, dark=self.dark).items():
                    setattr(one, name, value)
                one.transition_points, one.non_spatial_points_update = moves and not self.still, not moves
                at = place(self.scene, side, self.method, self.layer)
                one.points = points(at.xy, colour.at(side, self.step, self.layer))
            with self._panels[panel].hold_sync():
                for name, text in captions(self.scene, side, self.method, self.layer).items():
                    setattr(self._panels[panel], name, text)

    def _map_selected(self, at: int, found: Any) -> None:
        """Take a selection over; a single point is a click, which shows the example and leaves the selection."""
        if not self._hears:
            return
        chosen = np.unique(np.asarray([] if found is None else found, dtype=np.uint32))
        click = len(chosen) == 1
        self._hears = False
        try:
            if click:
                self.example = int(chosen[0])
            else:
                self.selected, self.origin = chosen.tobytes(), []
            for number, one in enumerate(self.maps):
                if click or number != at:
                    one.selection = self.selection.indices.astype(np.uint32)
        finally:
            self._hears = True

    def _show_selection(self, _: Any = None) -> None:
        if not self._hears:
            return
        self._hears = False
        try:
            for one in self.maps:
                one.selection = self.selection.indices.astype(np.uint32)
        finally:
            self._hears = True

    def _map_hovered(self, at: int, found: int | None) -> None:
        if self._hears:
            self._hover(-1 if found is None else found, but=at)

    def _show_example(self, change: Any) -> None:
        self._hover(change["new"])

    def _hover(self, index: int, but: int = -1) -> None:
        self._hears = False
        try:
            for number, one in enumerate(self.maps):
                if number != but:
                    one.hovering = index
        finally:
            self._hears = True

    def _ask(self, panel: Any, message: Mapping[str, Any], _: Any) -> None:
        """Answer a question of a panel."""
        try:
            found = answer(self.scene, message, self.selection.indices)
        except ProbekitError as error:
            found = {"error": str(error)}
        except Exception as error:  # the reader sees it where it was asked; the log has the traceback
            LOG.exception("a question of the explorer failed: %s", message)
            found = {"error": f"an error inside probekit, {type(error).__name__}: {error}"}
        panel.send(
            {
                "question": message.get("question"),
                "number": message.get("number"),
                "index": message.get("index"),
                **found,
            }
        )

    @property
    def selection(self) -> Selection:
        """The selected examples."""
        chosen = np.frombuffer(self.selected, np.uint32).astype(np.int64)
        return Selection(self.scene, chosen, self.scene.layers[self.layer])

    def select(self, ids: Iterable[str]) -> None:
        """Select examples by id; raises UsageError for ids that the scene does not have."""
        if isinstance(ids, str) or not isinstance(ids, Iterable):
            raise UsageError(f"selected is {ids!r}; give a list of ids.")
        found = self.scene.places(ids)
        self.origin = []
        self.selected = np.unique(found).astype(np.uint32).tobytes()

    @property
    def state(self) -> dict[str, Any]:
        """What the view shows, as JSON: assign it to another view of the same caches, or pass it as ``state``."""
        scene = self.scene
        return {
            "layer": scene.layers[self.layer], "right": scene.sides[self.step].name, "method": self.method,
            "colour": self.colour, "selected": self.selection.ids,
            "example": None if self.example < 0 else str(scene.ids[self.example]),
        }  # fmt: skip

    @state.setter
    def state(self, given: Mapping[str, Any] | str | Path) -> None:
        state, scene = read_state(given), self.scene
        known: dict[str, tuple[str, Sequence[str]]] = {
            "layer": ("layer", scene.layers), "right": ("step", [side.name for side in scene.sides]),
            "method": ("method", methods(scene)), "colour": ("colour", list(self._colours)),
            "example": ("example", scene.ids.tolist()),
        }  # fmt: skip
        if unknown := [name for name in state if name not in (*known, "selected")]:
            raise UsageError(f"the state has {unknown[0]!r}; {did_you_mean(str(unknown[0]), [*known, 'selected'])}")
        chosen = {}
        for name, (trait, names) in known.items():
            if name in state and not (name == "example" and state[name] is None):
                at = _position(state[name], names, name)
                chosen[trait] = names[at] if name in ("method", "colour") else at
        if "selected" in state:
            self.select(state["selected"])
        with self.hold_trait_notifications():
            for trait, value in chosen.items():
                setattr(self, trait, value)

    def save(self, path: str | Path = "explore.html", *, progress: Progress = no_progress) -> Path:
        """Write one self-contained page with these maps and panels; it needs no network.

        Parameters
        ----------
        path : path
            The file to write, .html.
        progress : callable
            Receives the progress of the work.

        Returns
        -------
        Path
            ``path``.
        """
        return save_page(self, path, progress)

    def close(self) -> None:
        """Close the widgets, and the caches that the scene opened."""
        for one in (*self.maps, *self._panels.values(), self.widget):
            one.close()
        self.scene.close()


def read_state(given: Mapping[str, Any] | str | Path) -> dict[str, Any]:
    """A state: a mapping, JSON, or a file with JSON."""
    if isinstance(given, Mapping):
        return dict(given)
    try:
        as_json = isinstance(given, str) and given.lstrip().startswith("{")
        found = json.loads(str(given) if as_json else Path(given).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"the state {given} cannot be read: {error.strerror}.") from None
    except json.JSONDecodeError as error:
        raise UsageError(f"state is not JSON ({error}); give what view.state returned.") from None
    if not isinstance(found, dict):
        raise UsageError("state is JSON, but not an object; give what view.state returned.")
    return found


def _position(name: Any, known: Sequence[str], what: str) -> int:
    if name not in known:
        raise UsageError(
            f"the state's {what} is {name!r}, which is not shown; {did_you_mean(str(name), list(known)[:50])}"
        )
    return list(known).index(name)
