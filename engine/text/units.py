"""What is counted: currencies, magnitudes and units, by how they are written."""

from __future__ import annotations

from antiphon.engine.text.table import table

CURRENCIES = {
    "$": ("dollar", "cent"),
    "US$": ("U S dollar", "cent"),
    "€": ("euro", "cent"),
    "£": ("pound", "penny"),
    "¥": ("yen", ""),
    "₹": ("rupee", "paisa"),
    "₩": ("won", ""),
    "₽": ("ruble", "kopek"),
    "USD": ("U S dollar", "cent"),
    "EUR": ("euro", "cent"),
    "GBP": ("pound", "penny"),
    "JPY": ("yen", ""),
    "CHF": ("Swiss franc", "centime"),
}
_PLURALS = {"foot": "feet", "inch": "inches", "penny": "pence", "paisa": "paise"} | {
    word: word for word in ("yen", "won", "hertz", "percent")
}
MAGNITUDES = table(
    """
    k: thousand; K: thousand; M: million; m: million; mn: million; B: billion; b: billion;
    bn: billion; T: trillion; tn: trillion; hundred: hundred; thousand: thousand;
    million: million; billion: billion; trillion: trillion
    """
)
UNITS = table(
    """
    km: kilometer; m: meter; cm: centimeter; mm: millimeter; nm: nanometer; mi: mile; ft: foot;
    yd: yard; kg: kilogram; g: gram; mg: milligram; lb: pound; lbs: pound; oz: ounce;
    tsp: teaspoon; tbsp: tablespoon; l: liter; L: liter; ml: milliliter; mL: milliliter;
    s: second; ms: millisecond; sec: second; secs: second; min: minute; mins: minute; h: hour;
    hr: hour; hrs: hour; Hz: hertz; kHz: kilohertz; MHz: megahertz; GHz: gigahertz;
    kB: kilobyte; KB: kilobyte; MB: megabyte; GB: gigabyte; TB: terabyte;
    Mbps: megabit per second; Gbps: gigabit per second; mph: mile per hour;
    kph: kilometer per hour; km/h: kilometer per hour; m/s: meter per second; W: watt;
    kW: kilowatt; MW: megawatt; kWh: kilowatt hour; V: volt; mA: milliamp; mAh: milliamp hour;
    °: degree; °C: degree Celsius; °F: degree Fahrenheit; %: percent; m^2: square meter;
    km^2: square kilometer; m^3: cubic meter; cm^2: square centimeter; cm^3: cubic centimeter;
    ft^2: square foot; px: pixel; kcal: kilocalorie; cal: calorie; Pa: pascal;
    hPa: hectopascal; dB: decibel; J: joule; kJ: kilojoule; μm: micrometer; μs: microsecond
    """
)
ATTACHED_ONLY = {"J", "V", "W"}
"""`5 W` is more often a letter; `5W` is a unit."""


def singular(noun: str) -> list[str]:
    """`degree Celsius` → its words."""
    return noun.split()


def plural(noun: str) -> list[str]:
    """The counted word is the last one before `per`, `Celsius` or `Fahrenheit`; letters stay."""
    words = noun.split()
    fixed = (i for i, word in enumerate(words) if word in ("per", "Celsius", "Fahrenheit"))
    counted = next(fixed, len(words)) - 1
    if words and len(noun) > 1:
        words[counted] = _PLURALS.get(words[counted], words[counted] + "s")
    return words
