"""Options of a report."""

from dataclasses import dataclass
from typing import Literal

from probekit.constraint import Checked, Natural, Seed
from probekit.recipe import option


@dataclass(frozen=True, slots=True)
class ReportOptions(Checked):
    """What a page shows in addition to the rows."""

    title: str | None = option(None, "Title of the page; by default the names of the tasks.")
    figure: tuple[str, ...] = option(
        (), "A further figure (.svg), with its caption next to it as .md or .json; may be repeated."
    )
    explore: tuple[str, ...] = option((), "A page of probekit explore to link; may be repeated.")
    text: tuple[str, ...] = option((), "A Markdown file shown at the top of the page; may be repeated.")
    family: Literal["sentence", "report"] = option(
        "sentence",
        "What p-values of the sentences are corrected over: sentence (each over the layers and curves that it is "
        "about), or report (over all sentences of the page as well, which are made again from the rows).",
    )
    responses: Natural = option(
        5, "Response generation: prompts of each split that are shown with reference and response, drawn at random."
    )
    seed: Seed = option(0, "Seed of the prompts that are shown.")
