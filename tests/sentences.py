"""Sentences of our own for listening tests, beside the ten held out in `../shared/nano`."""

OWN = (
    "Sure, I can read your order back to you: two coffees and one lemon tea.",
    "The invoice comes to $5.50, and it is due on Friday.",
    "Dr. Novak will see you at 7:30 pm in room twelve.",
    "Turn left after the bridge, then keep walking until you see the bakery.",
    "I am sorry, that seat is already taken; would you like one by the window?",
    "Water freezes at zero degrees, but salt water needs a colder night.",
    "Nobody expected the small team to finish before lunch.",
    "Please repeat the last four digits of your card number.",
    "Her garden is full of roses, onions, and very happy bees.",
    "If the line is busy, we will call you again in twenty minutes.",
)
HELD_OUT = (
    "What is the weather like in Madrid today?",
    "Long life is in store for you.",
    "It was a strange day in Seattle.",
    "Is the hospital open on Thursday?",
    "Sure, I can cancel the refund right now.",
    "Good evening, this is Lisa speaking.",
    "As speed increases, objects can be in several places at once.",
    "Put things back where you found them.",
    "The primary cause of failure in electrical appliances is an expired warranty.",
    "Tomorrow, you can be anywhere.",
)
