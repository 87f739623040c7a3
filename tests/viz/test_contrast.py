"""Contrast where no browser is needed: text in pictures, on coloured cells, on tinted grounds."""

from __future__ import annotations

import re
from base64 import b64decode

import pytest

from tests.viz.sample import full_view
from tileworkbench.viz.model import html
from tileworkbench.viz.model.card import card_html
from tileworkbench.viz.model.palette import CATEGORIES, EMPTY, SEQUENCE, SHADE
from tileworkbench.viz.model.svg import PAPER
from tileworkbench.viz.model.views import VIEWS, view_html

LEAST = 4.5
INK = (20, 20, 20)  # of the texts on cells
Colour = tuple[float, ...]


def luminance(colour: Colour) -> float:
    parts = [c / 255 for c in colour]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def ratio(one: Colour, other: Colour) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def hexadecimal(text: str) -> Colour:
    return tuple(int(text[at : at + 2], 16) for at in (1, 3, 5))


def over(top: Colour, share: float, below: Colour) -> Colour:
    return tuple(a * share + b * (1 - share) for a, b in zip(top, below, strict=True))


def test_the_formula() -> None:
    assert ratio((0, 0, 0), (255, 255, 255)) == pytest.approx(21)
    assert ratio((118, 118, 118), (255, 255, 255)) == pytest.approx(4.54, abs=0.01)


@pytest.mark.parametrize("name", ["text", "faint", "roof", "other", "point", "wrong"])
def test_texts_of_pictures_on_paper(name: str) -> None:
    assert ratio(hexadecimal(PAPER[name]), hexadecimal(PAPER["ground"])) >= LEAST


def test_numbers_on_cells() -> None:
    shades = [
        over((255, 255, 255), SHADE * group, hue) for hue in CATEGORIES for group in range(4)
    ]
    for fill in (*shades, *SEQUENCE, EMPTY):
        assert ratio(INK, fill) >= LEAST, fill


@pytest.mark.parametrize("ground", [(255, 255, 255), (17, 17, 17), (0, 0, 0)])
def test_tinted_grounds(ground: Colour) -> None:
    """A reader's own text, which has at least 10:1 on the page, on what is good or bad."""
    text = (33, 33, 33) if luminance(ground) > 0.5 else (224, 224, 224)
    for colour in (html.GOOD, html.WARN, html.BAD, html.ACCENT):
        red, green, blue, share = re.findall(r"[\d.]+", html.tone(colour))
        tinted = over((float(red), float(green), float(blue)), float(share), ground)
        assert ratio(text, tinted) >= LEAST
    faint = float(html.FAINT.partition(":")[2])
    assert ratio(over(text, faint, ground), ground) >= LEAST


def test_static_views_colour_no_text() -> None:
    """No colour of text has 4.5:1 on a white and on a black page, so there is none."""
    view = full_view()
    for page in (card_html(view), *(view_html(view, name) for name in VIEWS)):
        for style in re.findall(r'style="([^"]*)"', page):
            parts = dict(part.split(":", 1) for part in style.split(";") if ":" in part)
            assert "color" not in parts or "background-color" in parts, style


def test_texts_in_static_pictures() -> None:
    view = full_view()
    pages = "".join(view_html(view, name) for name in VIEWS)
    pictures = re.findall(r"data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)", pages)
    assert pictures
    for picture in pictures:
        drawn = b64decode(picture).decode()
        for colour in re.findall(r'<text[^>]* fill="(#[0-9a-f]{6})"', drawn):
            assert ratio(hexadecimal(colour), (255, 255, 255)) >= LEAST, colour
