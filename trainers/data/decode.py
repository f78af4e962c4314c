"""Pictures from files, the way a person sees them.

Order: orientation -> ICC to sRGB -> 16 bit scaled -> alpha over background -> RGB. Everything that is wrong with one
file becomes a `PictureError` with a reason for people.
"""

from __future__ import annotations

import io
import struct
import warnings
import zlib
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageCms, ImageFile, ImageOps, UnidentifiedImageError

from .config import parse_colour

if TYPE_CHECKING:
    from .buckets import Fit

Pixels = NDArray[np.uint8]

DECODER = "1"
"""Version of these rules; part of every cache key."""
MIN_SIDE = 8
_DAMAGE: tuple[type[Exception], ...] = (
    *(OSError, SyntaxError, ValueError, TypeError, AttributeError, EOFError, LookupError, ArithmeticError),
    *(MemoryError, AssertionError, RuntimeError, struct.error, zlib.error),
)
"""What Pillow's readers raise on damaged files, each in its own way."""
# What Pillow refuses is an error that we report; its warnings (large picture, odd EXIF) name no file and help nobody.
warnings.filterwarnings("ignore", module=r"PIL\.")


class PictureError(Exception):
    """A file that cannot become a picture; the message does not name the file."""


class Picture(NamedTuple):
    """A decoded picture: `pixels` [Y, X, 3], `alpha` [Y, X] or None where all is opaque, and what was noticed."""

    pixels: Pixels
    alpha: Pixels | None
    warnings: tuple[str, ...]


def open_picture(path: Path, background: str = "white") -> Picture:
    """Read and fully decode a picture file. Raises PictureError."""
    return decode(read_file(path), background)


def read_file(path: Path) -> bytes:
    """Read a file's bytes. Raises PictureError."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise PictureError(f"cannot be read: {error.strerror or error}") from error


def decode(data: bytes, background: str = "white") -> Picture:
    """Decode a whole picture from the bytes of its file. Raises PictureError."""
    image, noticed = _load(data)
    image, complaint = _upright(image)
    noticed += complaint
    colours, alpha, complaint = _split_alpha(image)
    noticed += complaint
    pixels = np.asarray(colours, dtype=np.uint8)
    if alpha is None or int(alpha.min()) == 255:
        return Picture(pixels, None, tuple(noticed))
    return Picture(_over(pixels, alpha, parse_colour(background)), alpha, tuple(noticed))


def read_mask(path: Path) -> Pixels:
    """Read a mask file as [Y, X], 255 where the loss counts; of a transparent picture its alpha."""
    pixels, alpha, _ = open_picture(path, "black")
    return alpha if alpha is not None else np.asarray(Image.fromarray(pixels).convert("L"), dtype=np.uint8)


def prepare(pixels: Pixels, fit: Fit, crop_offset: tuple[int, int] | None = None, flip: bool = False) -> Pixels:
    """Scale and cut [Y, X, 3] or [Y, X] to the bucket of `fit`.

    `crop_offset` is (top, left) in the scaled picture, None the centred cut. Scaling and cutting are one resampling of
    the part that is kept; a mask is averaged over areas, so that it stays within its own values.
    """
    height, width = pixels.shape[:2]
    top, left = fit.crop if crop_offset is None else crop_offset
    down, right = height / fit.resized[0], width / fit.resized[1]
    box = (left * right, top * down, (left + fit.bucket[1]) * right, (top + fit.bucket[0]) * down)
    box = (box[0], box[1], min(box[2], width), min(box[3], height))
    how = Image.Resampling.LANCZOS if pixels.ndim == 3 else Image.Resampling.BOX
    image = Image.fromarray(pixels).resize((fit.bucket[1], fit.bucket[0]), how, box=box)
    return np.asarray(ImageOps.mirror(image) if flip else image, dtype=np.uint8)


def _load(data: bytes) -> tuple[Image.Image, list[str]]:
    """Open and decode every pixel of the first frame."""
    if not data:
        raise PictureError("the file is empty (0 bytes)")
    ImageFile.LOAD_TRUNCATED_IMAGES = False  # some libraries ask Pillow to hide damage
    try:
        image = Image.open(io.BytesIO(data))
        width, height = image.size
        if min(width, height) < MIN_SIDE:
            raise PictureError(f"{width}x{height} pixels is too small; the short side must have {MIN_SIDE}")
        noticed = _notice_frames(image)
        image.load()
    except UnidentifiedImageError as error:
        raise PictureError(_what_is_it(data)) from error
    except Image.DecompressionBombError as error:
        limit = 2 * (Image.MAX_IMAGE_PIXELS or 0) // 10**6
        raise PictureError(f"it claims to be larger than {limit} megapixels") from error
    except _DAMAGE as error:
        raise PictureError(_damage(error)) from error
    return image, noticed


def _notice_frames(image: Image.Image) -> list[str]:
    """Say so when a file holds more than is used. A phone's second picture in a JPEG (MPO) is no animation."""
    if image.format == "MPO" or not getattr(image, "is_animated", False):
        return []
    kind = "pages" if image.format == "TIFF" else "frames"
    count = getattr(image, "n_frames", 2)
    image.seek(0)
    return [f"has {count} {kind}; only the first is used"]


def _damage(error: Exception) -> str:
    text = str(error) or type(error).__name__
    return "the file is cut short or damaged" + ("" if "truncated" in text else f" ({text})")


def _what_is_it(data: bytes) -> str:
    """Say what a file that is no picture seems to be."""
    start = data[:256].lstrip().lower()
    if start.startswith(b"version https://git-lfs"):
        return 'it is a Git LFS pointer, not the picture; run "git lfs pull"'
    if start.startswith((b"<!doctype html", b"<html")):
        return "it is a web page, not a picture; the download failed"
    if b"\x00" not in data[:1024] and data[:1024].isascii():
        return "it is a text file, not a picture"
    if start[4:12] in (b"ftypheic", b"ftypheix", b"ftypmif1"):
        return "it is a HEIC picture, which needs converting to JPEG or PNG"
    return "it is no picture, or its beginning is damaged"


def _upright(image: Image.Image) -> tuple[Image.Image, list[str]]:
    """Turn and mirror the picture as its EXIF orientation says (all eight)."""
    try:
        return ImageOps.exif_transpose(image), []
    except _DAMAGE as error:
        return image, [f"its EXIF data cannot be read ({error}); taken as upright"]


def _split_alpha(image: Image.Image) -> tuple[Image.Image, Pixels | None, list[str]]:
    """Take a picture of any mode apart: (RGB in sRGB, alpha or None, what was noticed)."""
    profile = image.info.get("icc_profile")
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        image, alpha, noticed = _to_eight_bits(image)
    else:
        image, alpha = _without_alpha(image)
        noticed = []
    if profile or image.mode == "LAB":
        image, complaint = _to_srgb(image, profile)
        noticed += complaint
    return image.convert("RGB"), alpha, noticed


def _without_alpha(image: Image.Image) -> tuple[Image.Image, Pixels | None]:
    """Split off transparency in every form Pillow knows: a channel, a palette entry, a colour."""
    if "transparency" in image.info and image.mode in ("1", "L", "P", "RGB"):
        image = image.convert("RGBA")
    if image.mode in ("La", "RGBa"):
        image = image.convert("LA" if image.mode == "La" else "RGBA")
    if image.mode in ("LA", "PA", "RGBA"):
        alpha = np.asarray(image.getchannel("A"), dtype=np.uint8)
        # "PA" has no direct way to RGB in every Pillow
        colours = image.convert("RGBA").convert("RGB") if image.mode == "PA" else image.convert(image.mode[:-1])
        return colours, alpha
    if image.mode in ("P", "RGBX", "YCbCr", "HSV"):
        return image.convert("RGB"), None
    return (image.convert("L") if image.mode == "1" else image), None


def _to_eight_bits(image: Image.Image) -> tuple[Image.Image, Pixels | None, list[str]]:
    """Scale 16-bit, 32-bit and float grey to 8 bits; a 16-bit PNG may name one grey as transparent."""
    values = np.asarray(image).astype(np.float64)
    if not np.isfinite(values).all():
        raise PictureError("it holds numbers that are not finite")
    noticed: list[str] = []
    top = float(values.max(initial=0.0))
    if image.mode == "F":
        white = 1.0 if top <= 1.0 else 255.0 if top <= 255.0 else 65535.0 if top <= 65535.0 else top
        noticed = [f"has floating-point values up to {top:g}; {white:g} is taken as white"]
    else:
        white = 65535.0 if top <= 65535.0 else float(2**31 - 1)
    scaled = np.rint(np.clip(values / white, 0.0, 1.0) * 255.0).astype(np.uint8)
    clear = image.info.get("transparency")
    alpha = np.where(values == clear, 0, 255).astype(np.uint8) if isinstance(clear, int) else None
    return Image.fromarray(scaled), alpha, noticed


def _to_srgb(image: Image.Image, profile: bytes | None) -> tuple[Image.Image, list[str]]:
    """Convert the colours from the file's ICC profile to sRGB; a profile that cannot be used is named and ignored."""
    try:
        mode = "LAB" if image.mode == "LAB" else _mode_of_profile(profile or b"")
        if mode is None:
            return image, []
        if (mode == "CMYK") != (image.mode == "CMYK"):
            return image, ["its colour profile is for another kind of picture; ignored"]
        if mode == "L" and image.mode != "L":
            return image, ["its colour profile is for grey pictures; ignored"]
        image = image if image.mode == mode else image.convert(mode)
        return ImageCms.applyTransform(image, _transform(profile or b"", mode)) or image, []
    except (ImageCms.PyCMSError, OSError, ValueError, TypeError) as error:
        if image.mode == "LAB":
            raise PictureError(f"its LAB colours cannot be converted ({error})") from error
        reason = str(error).strip() or type(error).__name__
        return image, [f"its colour profile cannot be used ({reason}); taken as sRGB"]


@lru_cache(maxsize=16)
def _mode_of_profile(profile: bytes) -> str | None:
    """Return the mode a profile applies to; None for sRGB itself, which needs no conversion."""
    opened = ImageCms.getOpenProfile(io.BytesIO(profile))
    space = opened.profile.xcolor_space.strip()
    if space == "RGB" and (opened.profile.profile_description or "").startswith("sRGB"):
        return None
    modes = {"RGB": "RGB", "GRAY": "L", "CMYK": "CMYK"}
    if space not in modes:
        raise ValueError(f"it is made for {space}")
    return modes[space]


@lru_cache(maxsize=16)
def _transform(profile: bytes, mode: str) -> ImageCms.ImageCmsTransform:
    """Make the conversion to sRGB, by relative colours with black points matched."""
    source = ImageCms.createProfile("LAB") if mode == "LAB" else ImageCms.getOpenProfile(io.BytesIO(profile))
    return ImageCms.buildTransform(
        source,
        ImageCms.createProfile("sRGB"),
        mode,
        "RGB",
        renderingIntent=ImageCms.Intent.RELATIVE_COLORIMETRIC,
        flags=ImageCms.Flags.BLACKPOINTCOMPENSATION,
    )


def _over(pixels: Pixels, alpha: Pixels, background: tuple[int, int, int]) -> Pixels:
    """Lay a picture over a plain colour, rounding to the nearest level."""
    share = alpha[..., None].astype(np.uint32)
    mixed = pixels.astype(np.uint32) * share + np.array(background, dtype=np.uint32) * (255 - share)
    return ((mixed + 127) // 255).astype(np.uint8)
