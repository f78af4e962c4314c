"""The [data] section of a preset: folders of pictures, their captions, and how they are cut."""

from __future__ import annotations

import re
import string
from typing import Literal

from pydantic import field_validator, model_validator

from trainers.core.plugin import Config, option

Role = Literal["train", "class", "validation"]
CaptionSource = Literal["files", "metadata", "template", "filename", "folder"]
MissingRule = Literal["auto", "stop", "trigger", "class", "filename", "folder", "template", "empty"]
SmallRule = Literal["upscale", "keep", "skip"]

TEMPLATE_FIELDS = ("trigger", "class", "filename", "folder")
COLOURS = {"white": (255, 255, 255), "black": (0, 0, 0), "grey": (128, 128, 128), "gray": (128, 128, 128)}


class Concept(Config):
    """One folder of pictures that belong together."""

    folder: str = option(help="Folder of the pictures; relative paths start at the preset's folder.", min_length=1)
    role: Role = option(
        "train",
        help='"train": learn these. "class": pictures of the class in general, to keep the model from forgetting it '
        '(prior preservation). "validation": never trained on, only measured.',
    )
    recursive: bool = option(True, help="Also take pictures from the folders inside.")
    repeats: int = option(1, help="How often each picture is seen in one epoch.", unit="times per epoch", ge=1)
    weight: float = option(1.0, help="Factor on the loss of these pictures.", gt=0, advanced=True)

    captions: CaptionSource = option(
        "files",
        help='Where captions come from: "files" beside the pictures (or a metadata file in the folder), only '
        '"metadata", a "template", the "filename", or the "folder" name.',
    )
    caption_extensions: tuple[str, ...] = option(
        (".txt", ".caption", ".json"), help="Endings of caption files; the first one that exists is read.", min_length=1
    )
    metadata_file: str | None = option(
        None,
        help="A .json, .jsonl or .csv with captions of many pictures; by default metadata.* and captions.* are found.",
        advanced=True,
    )
    template: str | None = option(
        None,
        help="Sentence to be filled in with {trigger}, {class}, {filename} and {folder}.",
        examples=["a photo of {trigger} {class}"],
    )
    trigger: str | None = option(
        None, help="Word that calls these pictures; in every caption exactly once.", min_length=1
    )
    class_word: str | None = option(None, help='What the pictures show in general, such as "dog".', min_length=1)
    missing_caption: MissingRule = option(
        "auto",
        help='What a picture without caption gets. "auto": the trigger where one is set, the prompt or template for '
        'class pictures, otherwise "stop": say which ones, and do not start.',
    )
    multi_line: Literal["join", "choose"] = option(
        "join", help='A caption of several lines: "join" them into one text, or "choose" one of them at each visit.'
    )
    prefix: str = option("", help="Text put before every caption.", advanced=True)
    suffix: str = option("", help="Text put behind every caption.", advanced=True)

    mask: Literal["none", "alpha", "files"] = option(
        "none",
        help='Where the loss counts: everywhere, where the picture is opaque ("alpha"), or where a mask is white.',
    )
    mask_suffix: str = option(
        "-mask", help='End of a mask\'s name: "-mask" for "cat-mask.png" beside "cat.jpg".', min_length=1
    )
    mask_folder: str | None = option(None, help="Folder of masks with the pictures' own names.", advanced=True)

    generate: int = option(0, help="Paint class pictures with the base model up to this many.", unit="pictures", ge=0)
    prompt: str | None = option(None, help="Prompt of generated class pictures, also their caption.", min_length=1)

    @field_validator("caption_extensions")
    @classmethod
    def _extensions_have_a_dot(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple((ending if ending.startswith(".") else f".{ending}").lower() for ending in value)

    @field_validator("template")
    @classmethod
    def _template_fields_are_known(cls, value: str | None) -> str | None:
        if value is None:
            return None
        try:
            names = [name for _, name, _, _ in string.Formatter().parse(value) if name is not None]
        except ValueError as error:
            raise ValueError(f"the template cannot be read: {error}") from error
        unknown = [name for name in names if name not in TEMPLATE_FIELDS]
        if unknown:
            known = ", ".join(f"{{{name}}}" for name in TEMPLATE_FIELDS)
            raise ValueError(f"{{{unknown[0]}}} is not known in a template; use {known}")
        return value

    @model_validator(mode="after")
    def _options_have_an_effect(self) -> Concept:
        if self.mask_folder is not None and self.mask != "files":
            raise ValueError('mask_folder has no effect unless mask = "files"')
        if self.role != "class" and (self.generate or self.prompt is not None):
            name = "generate" if self.generate else "prompt"
            raise ValueError(f'{name} has no effect unless role = "class"')
        if self.generate and self.prompt is None:
            raise ValueError('generate needs a prompt, such as prompt = "a photo of a dog"')
        if self.role == "class" and self.trigger is not None:
            raise ValueError("class pictures show the class without its trigger; remove trigger here")
        if self.missing_caption == "class" and self.class_word is None:
            raise ValueError('missing_caption = "class" needs class_word')
        return self


class DataConfig(Config):
    """What is trained on: concepts, the size of a step, the shapes pictures are cut to, and what varies per visit."""

    concepts: tuple[Concept, ...] = option(help="Folders of pictures.", min_length=1)
    batch: int = option(1, help="Samples per optimizer step, over all GPUs together.", unit="samples", ge=1)
    trigger: str | None = option(None, help="Trigger word of all training concepts that name none.", min_length=1)

    area: str | tuple[int, int] | None = option(
        None,
        help='How many pixels a picture may have: "1.0 MP", "512px" (the side of a square) or [width, height]. '
        "By default what the model was made for.",
        examples=["512px", "1.0 MP", [1024, 768]],
    )
    buckets: bool = option(True, help="Keep each picture's shape as far as the area allows; or cut all to one shape.")
    bucket_step: int | None = option(
        None, help="Sides are multiples of this; by default the model's own.", unit="pixels", ge=1, advanced=True
    )
    max_ratio: float = option(2.0, help="Longest shape: long side over short side.", ge=1.0, le=16.0, advanced=True)
    small: SmallRule = option(
        "upscale",
        help="Pictures smaller than the area: enlarge them, keep their own size, or skip them. All are listed.",
    )
    bad_files: Literal["stop", "skip"] = option(
        "stop", help="Pictures that can't be read: stop with the list, or skip them."
    )
    background: str = option("white", help="What lies behind transparent pictures: white, black, grey or #rrggbb.")

    flip: bool = option(False, help="Also show pictures mirrored. Bad for text, faces, all with a left and a right.")
    crop: Literal["center", "random"] = option("center", help="Which part is kept when a shape does not fit exactly.")
    crop_variants: int = option(
        1, help="How many random cuts of a picture are made and cached.", unit="cuts", ge=1, le=64, advanced=True
    )

    caption_dropout: float = option(
        0.0, help="Share of visits without caption, for guidance.", unit="share", ge=0, le=1
    )
    shuffle_tags: bool = option(False, help="Put the tags of a caption in another order at each visit.")
    keep_tags: int = option(0, help="So many first tags stay where they are and are never dropped.", unit="tags", ge=0)
    tag_dropout: float = option(0.0, help="Share of tags left out at each visit.", unit="share 0..1", ge=0, le=1)
    tag_separator: str = option(",", help="What stands between tags.", min_length=1, advanced=True)
    encoding: Literal["fallback", "strict"] = option(
        "fallback",
        help="Caption files that are not Unicode: read them as Windows-1252 with a warning, or stop with the list.",
        advanced=True,
    )

    prior_weight: float = option(1.0, help="Factor on the loss of class pictures.", ge=0)
    validation_share: float = option(
        0.0, help="Share of the training pictures that is held out and only measured.", unit="share 0..1", ge=0, le=0.5
    )

    @field_validator("area", mode="before")
    @classmethod
    def _a_bare_number_is_the_side_of_a_square(cls, value: object) -> object:
        return f"{value}px" if isinstance(value, int) and not isinstance(value, bool) else value

    @field_validator("area")
    @classmethod
    def _area_can_be_read(cls, value: str | tuple[int, int] | None) -> str | tuple[int, int] | None:
        if value is not None:
            parse_area(value)
        return value

    @field_validator("background")
    @classmethod
    def _background_is_a_colour(cls, value: str) -> str:
        parse_colour(value)
        return value

    @model_validator(mode="after")
    def _options_have_an_effect(self) -> DataConfig:
        if self.keep_tags and not (self.shuffle_tags or self.tag_dropout):
            raise ValueError("keep_tags has no effect without shuffle_tags or tag_dropout")
        if self.crop_variants > 1 and self.crop == "center":
            raise ValueError('crop_variants has no effect unless crop = "random"')
        return self

    @model_validator(mode="after")
    def _concepts_fit_together(self) -> DataConfig:
        roles = [concept.role for concept in self.concepts]
        if "train" not in roles:
            raise ValueError('no concept has role = "train", so there is nothing to learn')
        if self.prior_weight != 1.0 and "class" not in roles:
            raise ValueError('prior_weight has no effect without a concept of role = "class"')
        for number, concept in enumerate(self.concepts, start=1):
            if concept.missing_caption == "trigger" and self.trigger_of(concept) is None:
                raise ValueError(f'concept {number}: missing_caption = "trigger" needs a trigger')
            if "template" in (concept.captions, concept.missing_caption):
                _check_template(number, concept, self.trigger_of(concept))
        return self

    def trigger_of(self, concept: Concept) -> str | None:
        """Return the trigger word of a concept; class pictures have none."""
        return None if concept.role == "class" else concept.trigger or self.trigger


def _check_template(number: int, concept: Concept, trigger: str | None) -> None:
    """A template that is used must exist, and a train template must not speak of a trigger that is not set."""
    if concept.template is None:
        if trigger is None and concept.class_word is None and concept.prompt is None:
            raise ValueError(f"concept {number}: captions from a template need template, trigger or class_word")
        return
    if "{trigger}" in concept.template and trigger is None and concept.role != "class":
        raise ValueError(f"concept {number}: the template speaks of {{trigger}}, but no trigger is set")
    if "{class}" in concept.template and concept.class_word is None:
        raise ValueError(f"concept {number}: the template speaks of {{class}}, but class_word is not set")


def parse_area(value: str | tuple[int, int]) -> int:
    """Read "1.0 MP", "512px" or (width, height) as a number of pixels. One MP is 1024 x 1024, as models count it."""
    if not isinstance(value, str):
        width, height = value
        if min(width, height) < 8:
            raise ValueError(f"[{width}, {height}] is too small for a picture; write [width, height] in pixels")
        return width * height
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(mp|px)?\s*", value.lower())
    if match is None or (match.group(2) != "mp" and "." in match.group(1)):
        raise ValueError(f'"{value}" is no size; write for example "1.0 MP", "512px" or [1024, 768]')
    number = float(match.group(1))
    pixels = round(number * 1024 * 1024) if match.group(2) == "mp" else int(number) ** 2
    if pixels < 64:
        raise ValueError(f'"{value}" is too small for a picture')
    return pixels


def parse_colour(value: str) -> tuple[int, int, int]:
    """Read a colour name or "#rrggbb" as (red, green, blue), 0..255."""
    if value.lower() in COLOURS:
        return COLOURS[value.lower()]
    if re.fullmatch(r"#[0-9a-fA-F]{6}", value):
        return (int(value[1:3], 16), int(value[3:5], 16), int(value[5:7], 16))
    raise ValueError(f'"{value}" is no colour; use white, black, grey or #rrggbb')
