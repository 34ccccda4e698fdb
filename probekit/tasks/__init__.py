"""Tasks: text with labels, as frozen values. Nothing here knows a tokenizer or a model.

task = load_task("sst2", "path/to/SST-2")       # a folder of the official files; without it, the hub's copy
task = load_task("mnli:fiction")                # one domain of it
task = load_task("grammar:acceptability")       # generated, no files needed
task = load_task("mine.toml")                   # your own data: see probekit.tasks.files.custom
task.split("dev")[0].text, task.labels("dev")
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
