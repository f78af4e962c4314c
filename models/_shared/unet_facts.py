"""Facts that all families with Stable Diffusion's U-Net have in common. Torch-free.

Patterns are globs (`*` matches dots too) on a module path inside its part, e.g. "mid_block.attentions.0.proj_in".
"""

from __future__ import annotations

ATTENTION = (
    "*.attn1.to_q",
    "*.attn1.to_k",
    "*.attn1.to_v",
    "*.attn1.to_out.0",
    "*.attn2.to_q",
    "*.attn2.to_k",
    "*.attn2.to_v",
    "*.attn2.to_out.0",
)
MLP = ("*.ff.net.0.proj", "*.ff.net.2")
REST = (
    "*.proj_in",
    "*.proj_out",
    "*.conv1",
    "*.conv2",
    "*.conv_shortcut",
    "*.time_emb_proj",
    "*.downsamplers.0.conv",
    "*.upsamplers.0.conv",
    "*conv_in",
    "*conv_out",
    "*time_embedding.linear_1",
    "*time_embedding.linear_2",
)
SIZE_EMBEDDING = ("*add_embedding.linear_1", "*add_embedding.linear_2")
"""Only SDXL has these: its embedding of picture size, crop and pooled text."""

TARGETS: dict[str, tuple[str, ...]] = {
    "attention": ATTENTION,
    "attention+mlp": (*ATTENTION, *MLP),
    "all": (*ATTENTION, *MLP, *REST),
}
TEXT_ATTENTION = ("*.self_attn.q_proj", "*.self_attn.k_proj", "*.self_attn.v_proj", "*.self_attn.out_proj")
TEXT_TARGETS = (*TEXT_ATTENTION, "*.mlp.fc1", "*.mlp.fc2")

FIRST_AND_LAST = (
    "*conv_in",
    "*conv_out",
    "*time_embedding.*",
    "*add_embedding.*",
    "*token_embedding",
    "*position_embedding",
    "*text_projection",
)
"""Modules at the rim of the networks; Jordan 2024 ("Muon") keeps such layers on AdamW."""


def block_names(down: int, up: int) -> tuple[str, ...]:
    """Name the U-Net's blocks in order of execution."""
    return (
        *(f"down_blocks.{number}" for number in range(down)),
        "mid_block",
        *(f"up_blocks.{number}" for number in range(up)),
    )
