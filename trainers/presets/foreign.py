"""Names that other trainers and older habits use for our settings, so that an error can say what to write instead.

Keys as in kohya's sd-scripts, diffusers' example scripts, OneTrainer, ai-toolkit, SimpleTuner and diffusion-pipe;
they are compared in small letters with "_" for "-".
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Foreign:
    """What to use instead: our key, how to write the value ("" = as it is, "{}" = the one found), and a remark."""

    path: str
    write: str = ""
    remark: str = ""


_PICTURES = Foreign("data.concepts[].folder")
_STEPS = Foreign("run.length", '"{} steps"')
_EPOCHS = Foreign("run.length", '"{} epochs"')
_SAVE_STEPS = Foreign("checkpoint.every", '"{} steps"')
_SAVE_EPOCHS = Foreign("checkpoint.every", '"{} epochs"')
_PREVIEW_STEPS = Foreign("preview.every", '"{} steps"')
_PREVIEW_EPOCHS = Foreign("preview.every", '"{} epochs"')
_SQUARE = Foreign("data.area", '"{}px"')
_TEXT_RATE = Foreign("train.lr", "{ text_encoder = {} }", 'and list "text_encoder" in train.parts')
_MICRO = Foreign("compute.micro_batch", "", "data.batch is the whole step; accumulation follows from the two")
_PRIOR = Foreign("data.concepts[].folder", "", 'in a concept of its own with role = "class"')

KEYS: dict[str, Foreign] = {
    # the run
    "output_dir": Foreign("run.out"), "output_name": Foreign("run.name"), "save_root": Foreign("run.out"),
    "max_train_steps": _STEPS, "max_steps": _STEPS, "train_steps": _STEPS, "num_steps": _STEPS, "steps": _STEPS,
    "iterations": _STEPS, "max_train_epochs": _EPOCHS, "num_train_epochs": _EPOCHS, "num_epochs": _EPOCHS,
    "epochs": _EPOCHS, "epoch": _EPOCHS, "max_epochs": _EPOCHS, "random_seed": Foreign("run.seed"),
    # the model
    "pretrained_model_name_or_path": Foreign("model.weights"), "base_model": Foreign("model.weights"),
    "base_model_name": Foreign("model.weights"), "name_or_path": Foreign("model.weights"),
    "checkpoint_path": Foreign("model.weights"), "model_type": Foreign("model.family"),
    "arch": Foreign("model.family"), "pretrained_vae_model_name_or_path": Foreign("model.vae"),
    "vae_path": Foreign("model.vae"), "v_parameterization": Foreign("model.prediction", '"v"'),
    "prediction_type": Foreign("model.prediction"), "local_files_only": Foreign("model.offline"),
    # what is trained
    "network_dim": Foreign("train.rank"), "network_alpha": Foreign("train.alpha"), "lora_rank": Foreign("train.rank"),
    "lora_alpha": Foreign("train.alpha"), "lora_dropout": Foreign("train.dropout"), "dim": Foreign("train.rank"),
    "network_dropout": Foreign("train.dropout"), "conv_dim": Foreign("train.conv_rank"),
    "network_weights": Foreign("train.init_from"), "target_modules": Foreign("train.targets"),
    "network_module": Foreign("train.kind", '"lora"'), "training_method": Foreign("train.kind"),
    "text_encoder_lr": _TEXT_RATE, "text_encoder_learning_rate": _TEXT_RATE,
    "train_text_encoder": Foreign("train.parts", '["denoiser", "text_encoder"]'),
    "network_train_unet_only": Foreign("train.parts", '["denoiser"]'),
    # the optimizer and its rate
    "learning_rate": Foreign("optimizer.lr"), "unet_lr": Foreign("optimizer.lr"), "rate": Foreign("optimizer.lr"),
    "optimizer_type": Foreign("optimizer.kind"), "optimizer": Foreign("optimizer.kind"),
    "adam_weight_decay": Foreign("optimizer.weight_decay"), "adam_epsilon": Foreign("optimizer.eps"),
    "use_8bit_adam": Foreign("optimizer.kind", '"adamw8bit"'), "max_grad_norm": Foreign("step.clip_norm"),
    "gradient_clipping": Foreign("step.clip_norm"), "clip_grad_norm": Foreign("step.clip_norm"),
    "lr_scheduler": Foreign("schedule.kind"), "lr_scheduler_type": Foreign("schedule.kind"),
    "learning_rate_scheduler": Foreign("schedule.kind"), "lr_warmup_steps": Foreign("schedule.warmup", '"{} steps"'),
    "warmup_steps": Foreign("schedule.warmup", '"{} steps"'),
    "learning_rate_warmup_steps": Foreign("schedule.warmup", '"{} steps"'), "lr_num_cycles": Foreign("schedule.cycles"),
    "lr_scheduler_num_cycles": Foreign("schedule.cycles"), "lr_scheduler_power": Foreign("schedule.power"),
    "lr_power": Foreign("schedule.power"),
    # the objective
    "min_snr_gamma": Foreign("objective.gamma", "", 'with weighting = "min_snr"'),
    "snr_gamma": Foreign("objective.gamma", "", 'with weighting = "min_snr"'),
    "debiased_estimation_loss": Foreign("objective.weighting", '"debiased"'), "loss_type": Foreign("objective.loss"),
    "multires_noise_iterations": Foreign("objective.pyramid_noise", "true"),
    "multires_noise_discount": Foreign("objective.pyramid_discount"),
    "offset_noise_weight": Foreign("objective.noise_offset"), "ip_noise_gamma": Foreign("objective.input_perturbation"),
    "timestep_sampling": Foreign("objective.time.kind"), "timestep_type": Foreign("objective.time.kind"),
    "weighting_scheme": Foreign("objective.weighting"),
    # the data
    "train_data_dir": _PICTURES, "instance_data_dir": _PICTURES, "image_dir": _PICTURES, "folder_path": _PICTURES,
    "dataset_path": _PICTURES, "data_dir": _PICTURES, "path": _PICTURES,
    "class_data_dir": _PRIOR, "reg_data_dir": _PRIOR,
    "instance_prompt": Foreign("data.concepts[].template"), "class_prompt": Foreign("data.concepts[].prompt"),
    "trigger_word": Foreign("data.trigger"), "num_class_images": Foreign("data.concepts[].generate"),
    "prior_loss_weight": Foreign("data.prior_weight"), "num_repeats": Foreign("data.concepts[].repeats"),
    "caption_extension": Foreign("data.concepts[].caption_extensions", "[{}]"),
    "caption_ext": Foreign("data.concepts[].caption_extensions", "[{}]"),
    "train_batch_size": Foreign("data.batch"), "batch_size": Foreign("data.batch"),
    "micro_batch_size_per_gpu": Foreign("compute.micro_batch"), "gradient_accumulation_steps": _MICRO,
    "gradient_accumulation": _MICRO, "resolution": _SQUARE, "resolutions": _SQUARE, "size": _SQUARE,
    "enable_bucket": Foreign("data.buckets"), "enable_ar_bucket": Foreign("data.buckets"),
    "bucket_reso_steps": Foreign("data.bucket_step"), "flip_aug": Foreign("data.flip"),
    "random_flip": Foreign("data.flip"), "random_crop": Foreign("data.crop", '"random"'),
    "center_crop": Foreign("data.crop", '"center"'), "shuffle_caption": Foreign("data.shuffle_tags"),
    "shuffle_tokens": Foreign("data.shuffle_tags"), "keep_tokens": Foreign("data.keep_tags"),
    "caption_dropout_rate": Foreign("data.caption_dropout"), "caption_separator": Foreign("data.tag_separator"),
    "caption_tag_dropout_rate": Foreign("data.tag_dropout"),
    # the machine
    "mixed_precision": Foreign("compute.precision"), "train_dtype": Foreign("compute.precision"),
    "dtype": Foreign("compute.precision"), "xformers": Foreign("compute.attention", '"xformers"'),
    "enable_xformers_memory_efficient_attention": Foreign("compute.attention", '"xformers"'),
    "activation_checkpointing": Foreign("compute.gradient_checkpointing"),
    "max_data_loader_n_workers": Foreign("compute.threads"), "num_workers": Foreign("compute.threads"),
    # what comes out
    "save_every_n_steps": _SAVE_STEPS, "checkpointing_steps": _SAVE_STEPS, "save_every": _SAVE_STEPS,
    "save_every_n_epochs": _SAVE_EPOCHS, "checkpoints_total_limit": Foreign("checkpoint.keep"),
    "max_step_saves_to_keep": Foreign("checkpoint.keep"), "save_precision": Foreign("export.precision"),
    "save_model_as": Foreign("export.layouts"), "sample_every_n_steps": _PREVIEW_STEPS,
    "validation_steps": _PREVIEW_STEPS, "sample_every": _PREVIEW_STEPS, "sample_every_n_epochs": _PREVIEW_EPOCHS,
    "validation_epochs": _PREVIEW_EPOCHS, "sample_prompts": Foreign("preview.prompts", "[{}]"),
    "validation_prompt": Foreign("preview.prompts", "[{}]"), "negative_prompt": Foreign("preview.negative"),
    "guidance_scale": Foreign("preview.guidance"), "sample_steps": Foreign("preview.steps"),
    "sample_sampler": Foreign("preview.sampler"), "use_ema": Foreign("ema.enabled"), "ema_decay": Foreign("ema.decay"),
    "report_to": Foreign("logging.tensorboard", "true"), "log_with": Foreign("logging.tensorboard", "true"),
    "metadata_title": Foreign("export.title"), "metadata_author": Foreign("export.author"),
}  # fmt: skip

TABLES: dict[str, str] = {
    "network": "train", "lora": "train", "adapter": "train", "training": "run", "general": "run", "dataset": "data",
    "datasets": "data", "concepts": "data.concepts", "lr_scheduler": "schedule", "scheduler": "schedule",
    "sample": "preview", "sampling": "preview", "samples": "preview", "save": "checkpoint", "loss": "objective",
    "noise": "objective", "memory": "compute", "hardware": "compute", "device": "compute", "output": "export",
    "eval": "validation", "evaluation": "validation", "tensorboard": "logging",
}  # fmt: skip

_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


def number_of(value: object) -> object:
    """Turn a number word or the digits in a text into the number: "ten" -> 10; other values stay."""
    if isinstance(value, str):
        text = value.strip().lower()
        if text in _WORDS:
            return _WORDS.index(text)
        if text.isdecimal():
            return int(text)
    return value
