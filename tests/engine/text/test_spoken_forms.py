"""What is spoken for what is written."""

from __future__ import annotations

import pytest

from antiphon.engine.text.words import Word
from tests.engine.text.helpers import normalise, spoken

NUMBERS = [
    ("20 apples", "twenty apples"),
    ("1,234,567", "one million two hundred thirty four thousand five hundred sixty seven"),
    ("-5 or −5", "minus five or minus five"),
    ("3.14", "three point one four"),
    (".5", "point five"),
    ("in 1999, 2005, 1900, 2024", "in nineteen ninety nine, two thousand five, nineteen hundred, "
     "twenty twenty four"),
    ("the 1990s and '80s", "the nineteen nineties and eighties"),
    ("the 3rd, 21st", "the third, twenty first"),
    ("007", "zero zero seven"),
    ("10-15 pages", "ten to fifteen pages"),
    ("2019–2024", "twenty nineteen to twenty twenty four"),
    ("50+", "fifty plus"),
    ("It is 3. Then 4.", "It is three. Then four."),
    ("1/2, 3/4 and 2 3/4", "one half, three quarters and two and three quarters"),
    ("2½ cups, ½ cup", "two and a half cups, one half cup"),
    ("24/7", "twenty four seven"),
    ("1e-5", "one times ten to the power of minus five"),
    ("x^2 and 10⁻³", "x squared and ten to the power of minus three"),
    ("y <= 5, x > 0", "y at most five, x greater than zero"),
    ("1/3rd", "one third"),
    ("4111 1111", "four one one one one one one one"),
    ("978-3-16", "nine seven eight, three, one six"),
    ("99%, 3.5 %", "ninety nine percent, three point five percent"),
    ("2+2=4 and 3 * 4 - 1", "two plus two equals four and three times four minus one"),
    ("１２", "twelve"),
    ("9" * 20, " ".join(["nine"] * 20)),
]  # fmt: skip

MONEY = [
    ("$5.50", "five dollars and fifty cents"),
    ("$1, $0.99, $0.01", "one dollar, ninety nine cents, one cent"),
    ("€5 and 5€", "five euros and five euros"),
    ("£2.01", "two pounds and one penny"),
    ("$3M, $3.5 million.", "three million dollars, three point five million dollars."),
    ("-$5", "minus five dollars"),
    ("$5-10", "five to ten dollars"),
    ("$1,234.56", "one thousand two hundred thirty four dollars and fifty six cents"),
    ("$10/month", "ten dollars per month"),
    ("5 USD", "five U S dollars"),
    ("¥500", "five hundred yen"),
]

TIMES_AND_DATES = [
    ("7:30 pm", "seven thirty PM"),
    ("at 19:05.", "at nineteen oh five."),
    ("7pm, 7 p.m. we", "seven PM, seven PM we"),
    ("7 p.m. Then", "seven PM. Then"),
    ("Mon-Fri 9am–5pm", "Monday to Friday nine AM to five PM"),
    ("7:00", "seven o'clock"),
    ("2026-11-30", "November thirtieth, twenty twenty six"),
    ("11/30/2026", "November thirtieth, twenty twenty six"),
    ("30/11/2026", "November thirtieth, twenty twenty six"),
    ("Nov. 30 we", "November thirtieth we"),
    ("Nov. 30, 2026, we", "November thirtieth, twenty twenty six, we"),
    ("30 November 2026", "the thirtieth of November twenty twenty six"),
    ("In May we may March", "In May we may March"),
    ("2026-13-45", "two zero two six, one three, four five"),
]

UNITS = [
    ("5 km, 1 km, 70kg", "five kilometers, one kilometer, seventy kilograms"),
    ("20°C and -3 °C", "twenty degrees Celsius and minus three degrees Celsius"),
    ("100 km/h", "one hundred kilometers per hour"),
    ("25m²", "twenty five square meters"),
    ("6 ft", "six feet"),
    ("20 lbs. of it", "twenty pounds of it"),
    ("2x, 4K", "two x, four K"),
    ("5'10\" tall", "five feet ten tall"),
    ("1/4 tsp. salt", "one quarter teaspoon salt"),
]

ABBREVIATIONS = [
    ("Dr. Smith", "doctor Smith"),
    ("on Elm Dr. in", "on Elm drive in"),
    ("in St. Louis", "in saint Louis"),
    ("12 Main St. Springfield", "twelve Main street. Springfield"),
    ("off I-95. St. Patrick", "off I ninety five. saint Patrick"),
    ("Mr. and Mrs. Jones", "mister and missus Jones"),
    ("e.g. this, i.e. that", "for example this, that is that"),
    ("etc. And vs. them, etc.", "et cetera. And versus them, et cetera."),
    ("No. 5, and no. No.", "number five, and no. No."),
    ("the U.S. Army", "the US Army"),
    ("John F. Kennedy", "John F Kennedy"),
    ("plan B. Then", "plan B. Then"),
    ("So do I. You", "So do I. You"),
    ("World War II, Chapter IV, an IV", "World War two, Chapter four, an IV"),
    ("NASA and FBI", "NASA and FBI"),
    ("in the sun. He sat.", "in the sun. He sat."),
]

SIGNS = [
    ("R&D, C++ and C#", "R and D, C plus plus and C sharp"),
    ("#1 #tag @user", "number one hashtag tag at user"),
    ("a < b, x = 5", "a less than b, x equals five"),
    ("well-known and/or", "well known and or"),
    ("one — two and three—four", "one, two and three, four"),
    ("wait... what?! yes…", "wait. what? yes."),
    ("(see below) \"quoted\" 'single'", "see below quoted single"),
    ("don’t rock'n'roll James'", "don't rock'n'roll James"),
    ("end.Next", "end. Next"),
    ("main.py", "main dot py"),
    ("a.b@example.com", "A dot B at example dot com"),
    ("see https://www.example.com/faq.", "see www dot example dot com slash faq."),
    ("555-1234", "five five five, one two three four"),
    ("+1 (555) 123-4567", "plus one, five five five, one two three, four five six seven"),
    ("+44 20 7946", "plus four four, two zero seven nine four six"),
    ("CO2, MP3", "C O two, M P three"),
    ("GPT-4o, B2B", "GPT four o, B two B"),
]

MARKDOWN = [
    ("# Title\n\nText", "Title . Text"),
    ("**bold**, *it* and `code`.", "bold, it and code."),
    ("- one\n- [ ] two\n* [x] three", "one . two . three"),
    ("1. First\n2) Second", "one. First . two. Second"),
    ('[the docs](https://x.y/z_(a) "title") are', "the docs are"),
    ("![alt text](u.png)", "alt text"),
    ("| a | b |\n|---|:--|\n| c | d |", "a, b . c, d"),
    ("```python\nprint\n```\nok", "print . ok"),
    ("> quote\n> more", "quote . more"),
    ("one\n---\nTwo", "one . Two"),
    ("wrapped\nline", "wrapped line"),
    ("Done :) 😀 👍🏽 1️⃣ ok", "Done ok"),
    ("<b>bold</b>", "bold"),
    ("note[^1] here", "note here"),
]

OTHER_SCRIPTS = [
    ("café naïve", "café naïve"),
    ("Привет мир", "Privet mir"),
    ("你好，世界。", "Ni Hao, Shi Jie."),
    ("π and Ω", "pi and omega"),
    ("مرحبا", "mrhb"),
]

UNSPEAKABLE = ["", " ", "\n\n", "...", "?!", "😀", "—", "**", "# ", "---", "()", "\u200d", "|"]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        *(*NUMBERS, *MONEY, *TIMES_AND_DATES, *UNITS),
        *(*ABBREVIATIONS, *SIGNS, *MARKDOWN, *OTHER_SCRIPTS),
    ],
)
def test_spoken(written: str, expected: str) -> None:
    assert spoken(written) == expected


@pytest.mark.parametrize("written", UNSPEAKABLE)
def test_nothing_to_speak_gives_no_words(written: str) -> None:
    assert normalise(written) == []


def test_an_override_is_one_word_with_its_phones() -> None:
    tomato = "[T][AH0][M][AA1][T][OW2]"
    phones = ("T", "AH0", "M", "AA1", "T", "OW2")
    assert normalise(f"a {tomato}, ok") == [
        Word("a", None, "", 1),
        Word(tomato, phones, ",", 27),
        Word("ok", None, "", 30),
    ]
    assert normalise(f'"{tomato}!"')[0].phones == phones
    assert normalise(f"**{tomato}**")[0].phones == phones


@pytest.mark.parametrize(
    "written",
    [
        "$1000000000000000000.00",
        "9999999999999999999th",
        "x^1000000000000000000",
        "10^1111111111111111111",
        "1e1111111111111111111",
    ],
)
def test_numbers_beyond_all_names_are_read_digit_by_digit(written: str) -> None:
    words = [word.text for word in normalise(f"Hello. {written} there.")]
    assert words[0] == "Hello"
    assert words[-1] == "there"
    assert len(words) > 15


@pytest.mark.parametrize("written", ["[X][Y]", "[B]", "[AA]", "[t][uw1]", "[T"])
def test_brackets_without_phones_are_text(written: str) -> None:
    assert all(word.phones is None for word in normalise(written))
    assert normalise(written)


def test_source_end_belongs_to_the_last_word_of_what_was_written() -> None:
    ends = [(word.text, word.source_end) for word in normalise("I pay $5.50 now.")]
    assert ends == [
        *(("I", 1), ("pay", 5), ("five", 5), ("dollars", 5), ("and", 5), ("fifty", 5)),
        *(("cents", 11), ("now", 16)),
    ]
