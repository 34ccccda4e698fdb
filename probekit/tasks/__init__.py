"""Tasks: text with labels, as frozen values. Nothing here knows a tokenizer or a model.

task = load_task("sst2", "path/to/SST-2")       # a folder of the official files; without it, the hub's copy
task = load_task("mnli:fiction")                # one domain of it
task = load_task("grammar:acceptability")       # generated, no files needed
task = load_task("mine.toml")                   # your own data: see probekit.tasks.files.custom
task.split("dev")[0].text, task.labels("dev")
"""

from probekit.tasks.folders import task_folders
from probekit.tasks.load import DATASETS, GRAMMARS, SENTENCES, load_task
from probekit.tasks.task import Example, Label, Split, Task, TaskKind

__all__ = [
    "DATASETS",
    "GRAMMARS",
    "SENTENCES",
    "Example",
    "Label",
    "Split",
    "Task",
    "TaskKind",
    "load_task",
    "task_folders",
]
