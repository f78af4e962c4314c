"""The sampler of previews: one that fits what the weights predict."""

from __future__ import annotations

from typing import Any

from trainers.core.facts import Facts, NoiseSchedule

WORDS = {"eps": "epsilon", "v": "v_prediction", "x0": "sample", "velocity": "flow_prediction"}


def make_scheduler(facts: Facts) -> Any:
    """Make diffusers' scheduler for these facts.

    Zero terminal SNR: DDIM with trailing steps, since only then does sampling start from pure noise (Lin et al. 2023).
    Velocity: DPM-Solver++ on flow sigmas. Else Euler, SDXL's published sampler.
    """
    import diffusers

    schedule = facts.schedule or NoiseSchedule()
    common: dict[str, Any] = {
        "num_train_timesteps": schedule.steps,
        "beta_start": schedule.beta_start,
        "beta_end": schedule.beta_end,
        "beta_schedule": schedule.kind,
        "prediction_type": WORDS[facts.prediction],
    }
    if facts.prediction == "velocity":
        return diffusers.DPMSolverMultistepScheduler(**common, use_flow_sigmas=True)
    common["steps_offset"] = 1
    if schedule.zero_terminal_snr:
        return diffusers.DDIMScheduler(
            **common, rescale_betas_zero_snr=True, timestep_spacing="trailing", clip_sample=False, set_alpha_to_one=True
        )
    return diffusers.EulerDiscreteScheduler(**common, timestep_spacing="leading")
