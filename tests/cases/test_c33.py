"""C33: gradient checkpointing with a frozen base must not stop the LoRA from learning, in text encoders neither."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from diffusers import UNet2DConditionModel
from torch import Tensor
from transformers import CLIPTextConfig, CLIPTextModel

from trainers.adapters import lora
from trainers.adapters._protocol import Adapter, Trainable, draw_keys
from trainers.core.facts import Facts
from trainers.optimizers import adamw
from trainers.optimizers._protocol import make_bundle

FACTS = Facts(
    name="tiny",
    title="Tiny",
    prediction="eps",
    path="ddpm",
    latent_channels=4,
    stride_xy=8,
    size_multiple=8,
    native_area=64 * 64,
    text_encoders=("text_encoder",),
    targets={"attention": ("to_q", "to_k", "to_v", "to_out.0"), "all": ("*",)},
    text_targets=("q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"),
    muon_excluded=("conv_in", "conv_out"),
)


@dataclass
class Net:
    """A tiny Stable Diffusion with a LoRA on both networks."""

    unet: UNet2DConditionModel
    text: CLIPTextModel
    adapter: Adapter
    trained: list[Trainable]

    def loss(self, step: int) -> Tensor:
        generator = torch.Generator().manual_seed(step)
        latents = torch.randn(2, 4, 8, 8, generator=generator)
        tokens = torch.randint(0, 50, (2, 7), generator=generator)
        self.adapter.set_draw(draw_keys(1, step, ["a", "b"]))
        states = self.text(tokens).last_hidden_state
        out = self.unet(latents, torch.tensor([10, 500]), encoder_hidden_states=states, return_dict=False)[0]
        return ((out - latents) ** 2).mean()


def make(*, checkpointing: bool, dropout: float = 0.0, dora: bool = False) -> Net:
    torch.manual_seed(0)
    unet = UNet2DConditionModel(
        sample_size=8,
        block_out_channels=(8, 16),
        norm_num_groups=4,
        layers_per_block=1,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=16,
        attention_head_dim=4,
    )
    config = CLIPTextConfig(
        vocab_size=50, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=7, eos_token_id=49, bos_token_id=48, pad_token_id=49,
    )  # fmt: skip
    text = CLIPTextModel(config)
    settings = lora.Config(
        rank=4,
        conv_rank=2,
        targets="all",
        parts=["denoiser", "text_encoder"],
        lr={"text_encoder": 5e-4},
        dropout=dropout,
        dora=dora,
    )
    adapter = lora.build(settings, seed=1)
    trained = adapter.attach({"denoiser": unet, "text_encoder": text}, FACTS)
    if checkpointing:
        unet.enable_gradient_checkpointing()
        text.gradient_checkpointing_enable()
    unet.train()
    text.train()
    return Net(unet, text, adapter, trained)


def gradients(net: Net) -> dict[str, Tensor | None]:
    net.loss(0).backward()
    return {item.name: item.parameter.grad for item in net.trained}


@pytest.mark.parametrize("dora", [False, True], ids=["lora", "dora"])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_gradients_do_not_depend_on_checkpointing(dropout: float, dora: bool) -> None:
    plain, saving = (make(checkpointing=flag, dropout=dropout, dora=dora) for flag in (False, True))
    for net in (plain, saving):  # A's gradient is zero while B is
        with torch.no_grad():
            for item in net.trained:
                if item.name.endswith("lora_B.weight"):
                    item.parameter.fill_(0.01)
    expected, found = gradients(plain), gradients(saving)
    assert {name.partition(".")[0] for name in expected} == {"denoiser", "text_encoder"}
    for name, gradient in expected.items():
        assert gradient is not None, name
        assert gradient.abs().sum() > 0, name
        torch.testing.assert_close(found[name], gradient, rtol=1e-6, atol=1e-6, msg=name)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_after_two_steps_every_b_matrix_has_moved(checkpointing: bool) -> None:
    net = make(checkpointing=checkpointing)
    bundle = make_bundle(adamw.Config(lr=1e-3), net.trained)
    for step in range(2):
        net.loss(step).backward()
        bundle.step()
        bundle.zero_grad()
    state = net.adapter.state()
    ups = {name: value for name, value in state.items() if name.endswith("lora_B.weight")}
    assert len(ups) > 40
    assert [name for name, value in ups.items() if not value.any()] == []
