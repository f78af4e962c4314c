"""Names of the published layouts, at full width and in the forms that other programs write."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from models._shared import ldm_text, ldm_unet, ldm_vae
from models._shared.loading import make_module
from models._shared.single_file import renamed
from trainers.core import discover
from trainers.core.errors import UserError

UNETS = ("sd15", "sd2", "sdxl")


def family(name: str) -> Any:
    return discover.load("models", name, "family").Family()


@pytest.mark.parametrize("name", UNETS)
def test_every_weight_of_the_full_networks_has_one_original_name(name: str) -> None:
    architecture = family(name).architecture
    for part, module in (("denoiser", ldm_unet), ("vae", ldm_vae)):
        config = architecture.config(part)
        with torch.device("meta"):
            names = list(make_module(config).state_dict())
        turned = {ours: theirs for theirs, ours in module.prefixes(config).items()}
        originals = [renamed(own, turned) for own in names]
        assert None not in originals
        assert len(set(originals)) == len(names)
        assert [renamed(str(original), module.prefixes(config)) for original in originals] == names


@pytest.mark.parametrize(
    ("name", "original", "ours"),
    [
        ("sd15", "input_blocks.1.1.proj_in", "down_blocks.0.attentions.0.proj_in"),
        ("sd15", "input_blocks.3.0.op", "down_blocks.0.downsamplers.0.conv"),
        ("sd15", "output_blocks.2.1.conv", "up_blocks.0.upsamplers.0.conv"),
        ("sd15", "output_blocks.5.2.conv", "up_blocks.1.upsamplers.0.conv"),
        ("sd2", "output_blocks.11.1.transformer_blocks.0.norm1", "up_blocks.3.attentions.2.transformer_blocks.0.norm1"),
        ("sdxl", "input_blocks.4.0.skip_connection", "down_blocks.1.resnets.0.conv_shortcut"),
        ("sdxl", "middle_block.2.emb_layers.1", "mid_block.resnets.1.time_emb_proj"),
        ("sdxl", "output_blocks.5.2.conv", "up_blocks.1.upsamplers.0.conv"),
        ("sdxl", "label_emb.0.2", "add_embedding.linear_2"),
    ],
)
def test_known_names_of_the_unet(name: str, original: str, ours: str) -> None:
    prefixes = ldm_unet.prefixes(family(name).architecture.config("denoiser"))
    assert renamed(f"{original}.weight", prefixes) == f"{ours}.weight"


def test_known_names_of_the_vae() -> None:
    prefixes = ldm_vae.prefixes(family("sd15").architecture.config("vae"))
    assert renamed("decoder.up.3.upsample.conv.weight", prefixes) == "decoder.up_blocks.0.upsamplers.0.conv.weight"
    assert (
        renamed("encoder.down.1.block.0.nin_shortcut.bias", prefixes)
        == "encoder.down_blocks.1.resnets.0.conv_shortcut.bias"
    )
    assert renamed("decoder.mid.attn_1.proj_out.bias", prefixes) == "decoder.mid_block.attentions.0.to_out.0.bias"


def test_open_clip_splits_fuses_and_turns() -> None:
    layer = "transformer.resblocks.0."
    published = {
        layer + "attn.in_proj_weight": torch.arange(24.0).reshape(12, 2),
        layer + "attn.in_proj_bias": torch.arange(12.0),
        layer + "mlp.c_fc.weight": torch.ones(8, 4),
        "text_projection": torch.arange(8.0).reshape(4, 2),
        "transformer.resblocks.1.ln_1.weight": torch.ones(4),
        "logit_scale": torch.ones(()),
    }
    ours = ldm_text.from_open_clip(published, 1)
    assert ours["encoder.layers.0.self_attn.k_proj.bias"].tolist() == [4, 5, 6, 7]
    assert ours["text_projection.weight"].shape == (2, 4)
    assert "encoder.layers.0.mlp.fc1.weight" in ours
    assert not any("layers.1." in name for name in ours)
    back = ldm_text.to_open_clip(ours, repeat_last=True)
    assert torch.equal(back[layer + "attn.in_proj_weight"], published[layer + "attn.in_proj_weight"])
    assert torch.equal(back["text_projection"], published["text_projection"])
    assert torch.equal(back["transformer.resblocks.1.attn.in_proj_bias"], published[layer + "attn.in_proj_bias"])


Q15 = "denoiser.down_blocks.0.attentions.0.transformer_blocks.0.attn1.to_q"
QXL = "denoiser.down_blocks.1.attentions.0.transformer_blocks.0.attn1.to_q"
MID = "middle_block_1_transformer_blocks_9"
OUR_MID = "denoiser.mid_block.attentions.0.transformer_blocks.9"
MLP_2 = "text_encoder_2.text_model.encoder.layers.0.mlp.fc1"
TEXT = "text_encoder.encoder.layers.0.self_attn.q_proj"


@pytest.mark.parametrize(
    ("name", "written", "ours"),
    [
        ("sd15", "lora_unet_down_blocks_0_attentions_0_transformer_blocks_0_attn1_to_q.lora_down.weight", Q15),
        ("sd15", "lycoris_down_blocks_0_attentions_0_transformer_blocks_0_attn1_to_q.lora_down.weight", Q15),
        ("sd15", "unet.down_blocks.0.attentions.0.transformer_blocks.0.attn1.to_q.lora_A.weight", Q15),
        ("sd15", "unet.down_blocks.0.attentions.0.transformer_blocks.0.attn1.processor.to_q_lora.down.weight", Q15),
        ("sd15", "unet.down_blocks.0.attentions.0.transformer_blocks.0.attn1.to_q.lora.down.weight", Q15),
        ("sd15", "base_model.model.down_blocks.0.attentions.0.transformer_blocks.0.attn1.to_q.lora_A.weight", Q15),
        ("sd15", "down_blocks.0.attentions.0.transformer_blocks.0.attn1.to_q.lora_A.default.weight", Q15),
        ("sd15", "diffusion_model.input_blocks.1.1.transformer_blocks.0.attn1.to_q.lora_A.weight", Q15),
        ("sd15", "lora_te_text_model_encoder_layers_0_self_attn_q_proj.lora_down.weight", TEXT),
        ("sd15", "text_encoder.text_model.encoder.layers.0.self_attn.q_proj.lora_linear_layer.down.weight", TEXT),
        ("sd15", "text_encoder.encoder.layers.0.self_attn.q_proj.lora_A.weight", TEXT),
        ("sdxl", "lora_unet_input_blocks_4_1_transformer_blocks_0_attn1_to_q.lora_down.weight", QXL),
        ("sdxl", "lora_unet_down_blocks_1_attentions_0_transformer_blocks_0_attn1_to_q.lora_down.weight", QXL),
        ("sdxl", "lora_te1_text_model_encoder_layers_0_self_attn_q_proj.lora_down.weight", TEXT),
        ("sdxl", "lora_te2_text_model_encoder_layers_0_mlp_fc1.lora_down.weight", MLP_2),
        ("sdxl", "lora_te2_text_projection.lora_down.weight", "text_encoder_2.text_projection"),
        ("sdxl", "lora_unet_output_blocks_2_2_conv.lora_down.weight", "denoiser.up_blocks.0.upsamplers.0.conv"),
        ("sdxl", "lora_unet_label_emb_0_0.lora_down.weight", "denoiser.add_embedding.linear_1"),
        ("sdxl", "lora_unet_input_blocks_4_1_proj_in.lora_down.weight", "denoiser.down_blocks.1.attentions.0.proj_in"),
        ("sdxl", f"lora_unet_{MID}_ff_net_0_proj.lora_down.weight", f"{OUR_MID}.ff.net.0.proj"),
        ("sdxl", f"lora_unet_{MID}_attn2_to_out_0.lora_down.weight", f"{OUR_MID}.attn2.to_out.0"),
    ],
)  # fmt: skip
def test_lora_names_of_other_programs(name: str, written: str, ours: str) -> None:
    up = written.replace("lora_down", "lora_up").replace("lora_A", "lora_B").replace(".down.", ".up.")
    read = family(name).from_published({written: torch.ones(2, 4), up: torch.ones(4, 2)})
    assert read.keys() == {f"{ours}.lora_A.weight", f"{ours}.lora_B.weight", f"{ours}.alpha"}
    assert read[f"{ours}.alpha"] == 2


@pytest.mark.parametrize(
    ("name", "layout", "base"),
    [
        ("sd15", "kohya", "lora_unet_down_blocks_0_attentions_0_transformer_blocks_0_attn1_to_q"),
        ("sd15", "diffusers", "unet.down_blocks.0.attentions.0.transformer_blocks.0.attn1.to_q"),
        ("sdxl", "kohya", "lora_unet_input_blocks_1_0_emb_layers_1"),
    ],
)
def test_lora_names_we_write(name: str, layout: str, base: str) -> None:
    ours = Q15 if name == "sd15" else "denoiser.down_blocks.0.resnets.0.time_emb_proj"
    state = {
        f"{ours}.lora_A.weight": torch.ones(4, 4),
        f"{ours}.lora_B.weight": torch.ones(4, 4),
        f"{ours}.alpha": torch.tensor(2.0),
    }
    published = family(name).to_published(state, layout)
    assert {key.removeprefix(base).partition(".")[0] for key in published} == {""}
    if layout == "kohya":
        assert published[f"{base}.alpha"] == 2
    else:
        assert torch.equal(published[f"{base}.lora_B.weight"], torch.full((4, 4), 0.5))


def test_alpha_from_the_header_of_a_diffusers_file() -> None:
    down = "unet.mid_block.attentions.0.transformer_blocks.0.attn1.to_q.lora_A.weight"
    state = {down: torch.ones(4, 8), down.replace("lora_A", "lora_B"): torch.ones(8, 4)}
    header = {"lora_adapter_metadata": '{"unet.r": 4, "unet.lora_alpha": 8, "unet.alpha_pattern": {}}'}
    read = family("sd15").from_published(state, header)
    assert next(value for name, value in read.items() if name.endswith(".alpha")) == 8


def test_other_methods_and_halves_are_refused() -> None:
    base = "lora_unet_down_blocks_0_attentions_0_transformer_blocks_0_attn1_to_q"
    with pytest.raises(UserError, match="LoHa"):
        family("sd15").from_published(
            {f"{base}.hada_w1_a": torch.ones(2, 2), f"{base}.lora_down.weight": torch.ones(2, 2)}
        )
    with pytest.raises(UserError, match="half"):
        family("sd15").from_published({f"{base}.lora_down.weight": torch.ones(2, 2)})
    with pytest.raises(UserError, match="per input"):
        family("sd15").from_published(
            {
                f"{base}.lora_down.weight": torch.ones(2, 4),
                f"{base}.lora_up.weight": torch.ones(8, 2),
                f"{base}.dora_scale": torch.ones(1, 4),
            }
        )
