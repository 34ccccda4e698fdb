"""What other tools call the points of a model."""

from __future__ import annotations

import re

from probekit.sites import NAMES, RESIDUAL, Site

UNDERSTOOD = (
    "resid_post.3 (any site of probekit), layer_3, hidden_states.3 (3 blocks were passed), blocks.3.hook_resid_post "
    "(TransformerLens), model.layers.3.output (a module, as in nnsight)"
)
"""Examples of names, for messages."""

HOOKS = {
    "hook_resid_pre": "resid_pre",
    "hook_in": "resid_pre",
    "hook_resid_mid": "resid_mid",
    "ln2.hook_in": "resid_mid",
    "hook_resid_post": RESIDUAL,
    "hook_out": RESIDUAL,
    "hook_attn_out": "attn_out_post",
    "attn.hook_out": "attn_out",
    "attn.hook_z": "z",
    "attn.hook_v": "value",
    "hook_mlp_out": "mlp_out_post",
    "mlp.hook_out": "mlp_out",
    "mlp.hook_post": "mlp_act",
}
"""TransformerLens's hooks in a block. ``hook_attn_out`` is what HookedTransformer adds to the stream."""

SINGLE = {
    "hook_embed": "embeddings",
    "embed.hook_out": "embeddings",
    "ln_final.hook_normalized": "final_norm",
    "ln_final.hook_out": "final_norm",
    "embeddings": "embeddings",
    "final_norm": "final_norm",
}

MODULES = {"": RESIDUAL, "output": RESIDUAL, "input": "resid_pre"} | {
    f"{module}.output": site
    for site, modules in {"attn_out": ("self_attn", "attn", "attention", "self_attention"), "mlp_out": ("mlp",)}.items()
    for module in modules
}
"""Modules in a block, by their names in transformers."""


def site_of(name: str) -> Site | None:
    """The site that a name stands for, or None if it stands for none.

    Parameters
    ----------
    name : str
        The name of an array: of probekit ("resid_post.3", "3"), of TransformerLens ("blocks.3.hook_resid_post"), of a
        module with ".output" or ".input" ("model.layers.3.output"), or with the number of blocks that were passed
        ("layer_3", "hidden_states.3").

    Examples
    --------
    >>> [str(site_of(name)) for name in ("blocks.3.hook_resid_post", "model.layers[3].output[0]", "layer_4")]
    ['4', '4', '4']
    >>> site_of("blocks.0.attn.hook_z"), site_of("pattern")
    (Site(name='z', layer=0), None)
    """
    text = re.sub(r"\[(\d+)\]", r".\1", name.strip().removeprefix("tokens/"))
    text = re.sub(r"(?<=\.output)\.0$", "", text)  # the first of what a module returns
    if text in SINGLE:
        return Site(SINGLE[text])
    if found := re.fullmatch(r"(?:(?:layers?|hidden_states?)[._/-]?)?(\d+)", text):
        return Site(RESIDUAL, int(found[1]))
    if found := re.fullmatch(r"blocks\.(\d+)\.(.+)", text):
        return _numbered(HOOKS.get(found[2]), int(found[1]))
    if found := re.fullmatch(r"([a-z_]+)[._/-](\d+)", text):
        return _numbered(found[1] if found[1] in NAMES else None, int(found[2])) if found[1] not in _BARE else None
    if found := re.fullmatch(r"((?:[A-Za-z_]+\.)*)(?:layers?|h|blocks|block)\.(\d+)(?:\.(.+))?", text):
        return _numbered(MODULES.get(found[3] or ""), int(found[2])) if found[1] or found[3] else None
    return None


_BARE = ("attn_probs", "embeddings", "final_norm")


def _numbered(name: str | None, block: int) -> Site | None:
    return None if name is None else Site(name, block + (name == RESIDUAL))
