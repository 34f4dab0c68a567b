"""The problems that the demo model learns, each with its working written out.

Pure Python, seeded by the caller: the same `random.Random` gives the same problems. A `Problem` has
a *size* (digits of its numbers, letters of its word). Each kind has a training range of sizes; the
size `edge` is rare in training and comes with long chains of checks; everything above is never
seen.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

KINDS = ("sum", "product", "compare", "letters", "story")


@dataclass(frozen=True)
class Range:
    """Sizes of one kind: `low`..`high` are common, `edge` is rare, `hard` are never trained on."""

    low: int
    high: int
    edge: int
    hard: tuple[int, int]


RANGES = {
    "sum": Range(1, 4, 5, (6, 8)),
    "product": Range(1, 3, 4, (5, 7)),
    "compare": Range(1, 4, 5, (6, 9)),
    "letters": Range(3, 8, 9, (11, 16)),
    "story": Range(1, 3, 4, (5, 7)),
}


@dataclass(frozen=True)
class Problem:
    """A question, the lines of its working, and its answer."""

    kind: str
    size: int
    question: str
    working: str
    recap: str
    answer: str


def digits(rng: random.Random, size: int) -> int:
    """A whole number of exactly `size` digits (for one digit: 0 to 9)."""
    return rng.randrange(10 ** (size - 1) if size > 1 else 0, 10**size)


def add_columns(a: int, b: int) -> str:
    """Column addition, one line for each digit from the right."""
    left, right = str(a)[::-1], str(b)[::-1]
    lines, carry = [], 0
    for i in range(max(len(left), len(right))):
        terms = [side[i] for side in (left, right) if i < len(side)]
        if carry:
            terms.append("1")
        total = sum(map(int, terms))
        carry = total // 10
        lines.append(
            f"{'+'.join(terms)}={total}, write {total % 10}" + (", carry 1" if carry else "")
        )
    return "\n".join(lines) + "\n"


def subtract_columns(a: int, b: int) -> str:
    """Column subtraction for a >= b, one line for each digit from the right."""
    top, low = str(a)[::-1], str(b)[::-1]
    lines, borrow = [], 0
    for i, digit in enumerate(top):
        value = int(digit)
        terms = digit + (f"-{low[i]}" if i < len(low) else "") + ("-1" if borrow else "")
        value -= (int(low[i]) if i < len(low) else 0) + borrow
        borrow = int(value < 0)
        lines.append(f"{terms}={value}, write {value % 10}" + (", borrow 1" if borrow else ""))
    return "\n".join(lines) + "\n"


def multiply_columns(a: int, b: int) -> str:
    """Multiplication by one digit, one line for each digit of `a` from the right."""
    lines, carry = [], 0
    for digit in str(a)[::-1]:
        total = int(digit) * b + carry
        extra = f"+{carry}" if carry else ""
        carry = total // 10
        lines.append(
            f"{digit}*{b}{extra}={total}, write {total % 10}"
            + (f", carry {carry}" if carry else "")
        )
    return "\n".join(lines) + "\n"


SUM_QUESTIONS = (
    "What is {a} + {b}?",
    "What is {a} plus {b}?",
    "Calculate {a} + {b}.",
    "Add {a} and {b}.",
    "{a} + {b} = ?",
    "{a}+{b}",
    "Was ist {a} + {b}?",
    "Combien font {a} + {b} ?",
    "¿Cuánto es {a} + {b}?",
    "Quanto fa {a} + {b}?",
    "{a} + {b} は？",  # noqa: RUF001 (the question mark of Japanese)
    "{a} + {b} 等于多少？",  # noqa: RUF001 (the question mark of Chinese)
)
PRODUCT_QUESTIONS = (
    "What is {a} * {b}?",
    "What is {a} times {b}?",
    "Multiply {a} by {b}.",
    "{a} * {b} = ?",
    "Was ist {a} * {b}?",
    "Combien font {a} * {b} ?",
    "{a} * {b} は？",  # noqa: RUF001 (the question mark of Japanese)
)
COMPARE_QUESTIONS = (
    "Which is larger, {a} or {b}?",
    "Which number is bigger: {a} or {b}?",
    "Is {a} or {b} larger?",
    "Welche Zahl ist größer, {a} oder {b}?",
    "¿Qué número es mayor, {a} o {b}?",
)
LETTER_QUESTIONS = (
    'How many times does "{letter}" occur in "{word}"?',
    'How often is the letter "{letter}" in "{word}"?',
    'Count the letter "{letter}" in "{word}".',
)
NAMES = ("Anna", "Ben", "Chen", "Dora", "Emil", "Fatima", "Jonas", "Maria", "Noor", "Tom")
THINGS = ("apples", "books", "coins", "eggs", "marbles", "pens", "shells", "stamps", "stones")
STORIES: tuple[tuple[str, str], ...] = (
    ("+", "{name} has {a} {thing} and buys {b} more. How many {thing} does {name} have now?"),
    ("+", "{name} found {a} {thing} on Monday and {b} on Tuesday. How many {thing} in all?"),
    ("-", "{name} has {a} {thing} and gives away {b}. How many {thing} are left?"),
    ("-", "There were {a} {thing}. {name} sold {b} of them. How many {thing} remain?"),
    ("*", "{name} has {b} boxes with {a} {thing} each. How many {thing} are there?"),
)
_WORDS = """
air ant arm art bag bee bird boat book bottle bread bridge butter button cabbage camera candle
carrot castle cat cherry circle city cloud coffee copper cotton cup dinner doctor dog door dragon
eagle egg engine family feather finger fire flower forest garden ginger glass grass green hammer
harbor horse hotel house ice island jacket jelly kettle kitten ladder lake lemon letter lion marble
meadow mirror monkey moon mountain needle night number ocean onion orange paper parrot pepper pillow
planet pocket potato puppy rabbit rain river rocket sea silver soccer spoon spring street summer sun
table tea tiger tomato tree tunnel turtle valley village violin water winter wood yellow zebra
banana balloon mississippi strawberry raspberry
"""
_SYLLABLES = """
ba be bo ca co da de di do fa fo ga go ha he ka ki la le lo ma mi mo na ne no pa pe po ra re
ri ro sa se si so ta te ti to va vi wa
"""
WORDS, SYLLABLES = tuple(_WORDS.split()), tuple(_SYLLABLES.split())


def make_word(rng: random.Random, size: int) -> str:
    """A word of exactly `size` letters.

    Where the list has one, half of the time a real word; else one made of syllables.
    """
    real = [word for word in WORDS if len(word) == size]
    if real and rng.random() < 0.5:
        return rng.choice(real)
    word = "".join(rng.choice(SYLLABLES) for _ in range(size // 2 + 1))
    return word[:size]


def make_sum(rng: random.Random, size: int) -> Problem:
    a, b = digits(rng, size), digits(rng, max(1, size - rng.choice((0, 0, 0, 1))))
    if rng.random() < 0.3:
        a, b = b, a
    question = rng.choice(SUM_QUESTIONS).format(a=a, b=b)
    return Problem(
        "sum", size, question, f"{a} + {b}\n{add_columns(a, b)}", f"{a} + {b}", str(a + b)
    )


def make_product(rng: random.Random, size: int) -> Problem:
    a, b = digits(rng, size), rng.randrange(2, 10)
    question = rng.choice(PRODUCT_QUESTIONS).format(a=a, b=b)
    return Problem(
        "product", size, question, f"{a} * {b}\n{multiply_columns(a, b)}", f"{a} * {b}", str(a * b)
    )


def make_compare(rng: random.Random, size: int) -> Problem:
    a = digits(rng, size)
    b = a
    while a == b:
        # Often the numbers share a prefix, so that more than the first digit has to be read.
        shared = rng.randrange(size)
        b = int(str(a)[:shared] + "".join(rng.choice("0123456789") for _ in range(size - shared)))
        if len(str(b)) != size:
            b = a
    lines = []
    for x, y in zip(str(a), str(b), strict=True):
        lines.append(f"{x}{'=' if x == y else '>' if x > y else '<'}{y}")
        if x != y:
            break
    question = rng.choice(COMPARE_QUESTIONS).format(a=a, b=b)
    working = f"{a} or {b}\n" + "\n".join(lines) + "\n"
    return Problem("compare", size, question, working, f"{a} or {b}", str(max(a, b)))


def make_letters(rng: random.Random, size: int) -> Problem:
    word = make_word(rng, size)
    letter = rng.choice(word) if rng.random() < 0.85 else rng.choice("abcdefghijklmnopqrstuvwxyz")
    count, lines = 0, []
    for each in word:
        count += each == letter
        lines.append(f"{each} {count}")
    question = rng.choice(LETTER_QUESTIONS).format(letter=letter, word=word)
    working = f"{letter} in {word}\n" + "\n".join(lines) + "\n"
    return Problem("letters", size, question, working, f"{letter} in {word}", str(count))


def make_story(rng: random.Random, size: int) -> Problem:
    sign, text = rng.choice(STORIES)
    a, b = digits(rng, size), digits(rng, max(1, size - rng.choice((0, 0, 1))))
    if sign == "*":
        b = rng.randrange(2, 10)
        working, answer = multiply_columns(a, b), a * b
    elif sign == "-":
        a, b = max(a, b), min(a, b)
        working, answer = subtract_columns(a, b), a - b
    else:
        working, answer = add_columns(a, b), a + b
    question = text.format(name=rng.choice(NAMES), thing=rng.choice(THINGS), a=a, b=b)
    recap = f"{a} {sign} {b}"
    return Problem("story", size, question, f"{recap}\n{working}", recap, str(answer))


MAKERS: dict[str, Callable[[random.Random, int], Problem]] = {
    "sum": make_sum,
    "product": make_product,
    "compare": make_compare,
    "letters": make_letters,
    "story": make_story,
}


def training_size(rng: random.Random, kind: str) -> int:
    """A size of the training range: the larger ones more often, the edge one time in 25."""
    sizes = RANGES[kind]
    if rng.random() < 0.04:
        return sizes.edge
    common = range(sizes.low, sizes.high + 1)
    return rng.choices(common, weights=[1 + size - sizes.low for size in common])[0]


def easy_problem(rng: random.Random) -> Problem:
    """A problem drawn as in training, the edge included."""
    kind = rng.choice(KINDS)
    return MAKERS[kind](rng, training_size(rng, kind))


def hard_problem(rng: random.Random) -> Problem:
    """A problem larger than any in training."""
    kind = rng.choice(KINDS)
    return MAKERS[kind](rng, rng.randint(*RANGES[kind].hard))


def check_chance(problem: Problem) -> float:
    """How likely the working goes on with one more check; a coin tossed again after each check."""
    sizes = RANGES[problem.kind]
    if problem.size >= sizes.edge:
        return 0.85
    return 0.05 + 0.2 * (problem.size - sizes.low) / (sizes.high - sizes.low)


def write_thinking(rng: random.Random, problem: Problem, longest: int = 14) -> str:
    """The working, then as many checks as the coin says (`longest` at most)."""
    text = f"{problem.working}So {problem.answer}.\n"
    chance = check_chance(problem)
    for _ in range(longest):
        if rng.random() >= chance:
            break
        if problem.size < RANGES[problem.kind].edge and rng.random() < 0.25:
            text += f"Wait, once more from the start.\n{problem.working}So {problem.answer}.\n"
        else:
            text += f"Wait, let me check. {problem.recap} is {problem.answer}.\n"
    return text


SYSTEMS = (
    "You are a helpful assistant.",
    "You are a careful calculator.",
    "Answer briefly.",
    "Answer with the result only.",
    "Think step by step.",
)
SMALL_TALK = (
    (
        "Hello!",
        "The user says hello.\n",
        "Hello! Ask me for a sum, a product, or which number is larger.",
    ),
    (
        "Hi",
        "The user says hello.\n",
        "Hello! Ask me for a sum, a product, or which number is larger.",
    ),
    (
        "Who are you?",
        "The user asks who I am.\n",
        "I am the thinkq demo model. I can do small sums.",
    ),
    (
        "What can you do?",
        "The user asks what I can do.\n",
        "I can add, multiply, compare numbers and count letters.",
    ),
    ("Thank you!", "The user says thanks.\n", "You are welcome."),
)


@dataclass(frozen=True)
class Sample:
    """One training conversation: `thinking` is None when the template closed the block."""

    question: str
    system: str | None
    thinking: str | None
    answer: str
    cut: float | None
    """Where the thinking is cut before the close, as a share of its tokens.

    None: it ends by itself.
    """


def training_sample(rng: random.Random, exclude: frozenset[str] = frozenset()) -> Sample:
    """One conversation as the model sees it in training; questions in `exclude` never come up."""
    system = rng.choice(SYSTEMS) if rng.random() < 0.2 else None
    if rng.random() < 0.02:
        question, thinking, answer = rng.choice(SMALL_TALK)
        return Sample(question, system, thinking if rng.random() < 0.8 else None, answer, None)
    problem = easy_problem(rng)
    while problem.question in exclude:
        problem = easy_problem(rng)
    if rng.random() < 0.1:
        return Sample(problem.question, system, None, problem.answer, None)
    thinking = write_thinking(rng, problem)
    cut = rng.random() if rng.random() < 0.12 else None
    return Sample(problem.question, system, thinking, problem.answer, cut)
