"""Texts for the loop guard: true loops, and honest texts that repeat themselves and are none.

All written for these tests. An honest text is what a model may well write while it thinks.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

PROSE = (
    "The train leaves Bern at 9:10 and needs 58 minutes to Zurich, so it is there at 10:08. "
    "The tram takes another 12 minutes, which makes 10:20, and the meeting begins at half "
    "past ten. If the train is five minutes late we still have five minutes left. What about "
    "the ticket machine? In the morning there is usually a queue, say three minutes, so we "
    "had better buy the tickets the day before. And the way back: the last direct train "
    "leaves at 23:32; after that one has to change in Olten. Dinner must therefore be over by "
    "eleven. Lena does not eat fish, Tom is allergic to nuts, and the place at the river is "
    "closed on Mondays. That leaves the one in the old town, which takes groups of up to "
    "nine. We are seven. I should phone them before noon, since they rest between two and "
    "five.\n"
)


@dataclass(frozen=True)
class Loop:
    """A text that ends in `cycle`, written again and again."""

    cycle: str
    prefix: str = ""


LOOPS: dict[str, Loop] = {
    "wait": Loop("Wait, let me check again. "),
    "wait after a sound beginning": Loop("Wait, let me check again. ", PROSE),
    "late": Loop("Hmm, but is that right? Yes, I think it is.\n", PROSE * 3),
    "one word": Loop(" so"),
    "one character": Loop("a"),
    "newlines": Loop("\n\n", "I am done with the first part."),
    "digits": Loop("0", "The exact value is 0.3"),
    "a sum that is checked for ever": Loop(
        "Check: 347 + 589. 7 + 9 = 16, carry 1. 4 + 8 + 1 = 13, carry 1. 3 + 5 + 1 = 9. So 936.\n",
        "I add the two numbers column by column.\n",
    ),
    "two thoughts in turn": Loop(
        "But the order might matter. If it matters, there are 24 ways.\nThen again, the order does "
        "not matter here. Then there is 1 way.\n",
        "How many ways are there to choose all four?\n",
    ),
    "three thoughts in turn": Loop(
        "Option A is cheaper. Option B is faster. Option C needs no licence. Hmm. Which one? ",
        PROSE,
    ),
    "a paragraph": Loop(
        "Let me reconsider the problem from the start. We have a box with twelve balls, one of "
        "which is heavier. We may use the scales three times. Divide them into three groups.\n\n"
    ),
    "an enumeration that stands still": Loop("Also, consider the edge case of an empty list.\n- "),
    "code": Loop(
        "    if node is None:\n        return None\n    node = node.next\n", "def last(node):\n"
    ),
    "json": Loop('{"name": "", "value": null}, ', '{"items": ['),
    "a table row": Loop("| 12 | 144 | 1728 |\n", "| n | n^2 | n^3 |\n|---|---|---|\n"),
    "latex": Loop("\\frac{1}{2} + ", "We get $S = "),
    "html": Loop("<div><span></span></div>\n", "<body>\n"),
    "a bracket": Loop("((", "f = "),
    "chinese": Loop("等等\N{FULLWIDTH COMMA}让我再检查一下。", "首先我们把两个数相加。"),
    "german": Loop(
        "Moment, das muss ich noch einmal prüfen. ", "Zuerst die Gleichung: x + 4 = 9. "
    ),
    "arabic": Loop("دعني أتحقق مرة أخرى. "),
    "emoji": Loop("🤔", "Hm "),
    "a final answer that is never final": Loop(
        "**Final Answer:** 42\n\nActually, wait. ", "6 times 7 is 42.\n"
    ),
    "a plan": Loop("Step 1: read the question. Step 2: plan. Step 3: read the plan. ", PROSE),
    "a quoted word": Loop('"the" is followed by "the"; ', 'The word after "the" is '),
}

_dice = random.Random(7)


def _digits(numerator: int, denominator: int, count: int) -> str:
    return str(10**count * numerator // denominator).zfill(count)


def _hanoi(disks: int, source: str, target: str, spare: str) -> list[str]:
    if not disks:
        return []
    here = f"Move disk {disks} from {source} to {target}."
    return [
        *_hanoi(disks - 1, source, spare, target),
        here,
        *_hanoi(disks - 1, spare, target, source),
    ]


def _collatz(start: int) -> list[int]:
    chain = [start]
    while chain[-1] != 1:
        chain.append(chain[-1] // 2 if chain[-1] % 2 == 0 else 3 * chain[-1] + 1)
    return chain


_VERSES = (
    ("The kettle sang at half past three,", "the rain came over from the sea,"),
    ("The postman lost his only hat,", "it landed on the neighbour's cat,"),
    ("A candle burned behind the door,", "its wax ran out along the floor,"),
    ("The baker whistled in the lane,", "he set his loaves out in the rain,"),
    ("My sister counted seven stars,", "she kept them all in pickle jars,"),
    ("The clock forgot to strike at ten,", "and so we had to start again,"),
)
_REFRAIN = "and oh, the long road home, my dear,\nand oh, the long road home.\n\n"

HONEST: dict[str, str] = {
    "prose": PROSE,
    "the same page three times": PROSE * 3,
    "three checks in the same words": "347 + 589 = 936.\n"
    + "Let me check again: 936 - 589 = 347. Yes.\n" * 3,
    "markdown table": "| n | square | cube |\n|---|---|---|\n"
    + "".join(f"| {n} | {n**2} | {n**3} |\n" for n in range(1, 41)),
    "markdown table of twelve columns": "| "
    + " | ".join("JFMAMJJASOND")
    + " |\n"
    + "|---" * 12
    + "|\n",
    "multiplication table": "\n".join(
        " ".join(f"{a * b:4}" for b in range(1, 13)) for a in range(1, 13)
    ),
    "truth table": "p q r s | p and q or r and s\n"
    + "".join(
        f"{p} {q} {r} {s} | {p & q | r & s}\n"
        for p in (0, 1)
        for q in (0, 1)
        for r in (0, 1)
        for s in (0, 1)
    ),
    "identity matrix": "\n".join(
        " ".join("1" if i == j else "0" for j in range(12)) for i in range(12)
    ),
    "sudoku": "\n".join(" ".join(_dice.choice("123456789...") for _ in range(9)) for _ in range(9)),
    "python properties": "class Point:\n"
    + "".join(
        f"    @property\n    def {name}(self) -> float:\n        return self._{name}\n\n"
        for name in ("x", "y", "z", "mass", "charge", "spin", "speed", "angle", "radius", "height")
    ),
    "c switch": "switch (key) {\n"
    + "".join(f"    case {n}:\n        handle_{n}(event);\n        break;\n" for n in range(20))
    + "}\n",
    "json rows": "[\n"
    + ",\n".join(
        f'  {{"id": {n}, "name": "user{n}", "active": {"true" if n % 3 else "false"}, "tags": []}}'
        for n in range(1, 31)
    )
    + "\n]",
    "yaml": "".join(f"- name: web-{n}\n  port: {8000 + n}\n  replicas: 2\n" for n in range(1, 21)),
    "sql": "".join(
        f"INSERT INTO seats (seat_row, number, taken) VALUES ({n // 6 + 1}, {n % 6 + 1}, 0);\n"
        for n in range(36)
    ),
    "html list": "<ul>\n" + "".join(f"  <li>Chapter {n}</li>\n" for n in range(1, 31)) + "</ul>\n",
    "latex": "\\begin{align}\n"
    + "".join(f"  a_{{{n}}} &= {2 * n} a_{{{n - 1}}} + {n} \\\\\n" for n in range(1, 21))
    + "\\end{align}\n",
    "diff": "".join(
        f"-    limit_{n} = {n}\n+    limit_{n} = {n + 1}\n     # unchanged\n" for n in range(15)
    ),
    "log": "".join(
        f"2026-03-{1 + n // 8:02} 0{n % 8}:15:{n * 7 % 60:02} INFO worker: heartbeat ok\n"
        for n in range(40)
    ),
    "csv": "day,max,min\n"
    + "".join(f"2026-06-{n:02},{18 + n * 5 % 11},{9 + n * 3 % 7}\n" for n in range(1, 31)),
    "hex dump": "\n".join(
        f"{16 * n:08x}  " + " ".join(f"{_dice.randrange(256):02x}" for _ in range(16))
        for n in range(20)
    ),
    "enumeration": "".join(
        f"{n}. Remove card number {n} and look at the next one.\n" for n in range(1, 41)
    ),
    "proof by cases": "".join(
        f"Case {n}: n leaves {n} when divided by 12. Then n^2 leaves {n * n % 12}, as claimed.\n"
        for n in range(12)
    ),
    "numbers": ", ".join(map(str, range(1, 301))),
    "powers of two": ", ".join(str(2**n) for n in range(64)),
    "binary counting": " ".join(f"{n:06b}" for n in range(64)),
    "collatz": " -> ".join(map(str, _collatz(27))),
    "fizz buzz": "\n".join(
        "Fizz" * (n % 3 == 0) + "Buzz" * (n % 5 == 0) or str(n) for n in range(1, 101)
    ),
    "towers of hanoi": "\n".join(_hanoi(6, "A", "C", "B")),
    "digits of 1/97": "1/97 = 0." + _digits(1, 97, 300) + "...",
    "1/7 to 24 digits": "1/7 = 0." + _digits(1, 7, 24) + "...",
    "dna": "".join(_dice.choice("ACGT") for _ in range(600)),
    "ten copies of a codon": "GGC" + "CAG" * 10 + "TTA",
    "morse": " ".join(
        {"s": "...", "o": "---", "e": ".", "t": "-", "a": ".-"}[c]
        for c in "sosateatostatesoasteast"
    ),
    "scales": "\n".join(" ".join("CDEFGAB"[i:] + "CDEFGAB"[:i]) for i in range(7)),
    "drum pattern": "".join(f"bar {n}: x . o . x x o .\n" for n in range(1, 17)),
    "chess": " ".join(
        f"{n}. {_dice.choice('NBRQK')}{_dice.choice('abcdefgh')}{_dice.randint(1, 8)} "
        f"{_dice.choice('NBRQK')}{_dice.choice('abcdefgh')}{_dice.randint(1, 8)}"
        for n in range(1, 41)
    ),
    "poem with a refrain": "".join(f"{one}\n{two}\n{_REFRAIN}" for one, two in _VERSES),
    "litany": "".join(
        f"For the {thing}, we are grateful.\n"
        for thing in ("bread", "salt", "rain", "wind", "light", "shade", "river", "hill", "friend")
    ),
    "counting song": "".join(
        f"{n} green jars are standing on the shelf,\nand if one jar should take itself,\n"
        f"then {n - 1} green jars are standing on the shelf.\n"
        for n in range(20, 0, -1)
    ),
    "four weeks alike": "".join(
        f"Week {n}:\nMon gym\nTue rest\nWed gym\nThu rest\nFri swim\nSat hike\nSun rest\n"
        for n in range(1, 5)
    ),
    "dialogue": "".join(
        f"Ann: Is it {n}?\nBob: No, it is not {n}. Guess again.\n" for n in range(1, 31)
    ),
    "ha ha ha": "She laughed: " + "ha " * 12 + "and could not stop for a while.",
    "a rule of 40 dashes": "Part one\n" + "-" * 40 + "\nPart two\n" + "-" * 40 + "\n",
    "contents with dot leaders": "".join(
        f"{n}. Chapter {n} {'.' * (30 - len(str(n)))} {n * 13}\n" for n in range(1, 13)
    ),
    "house in ascii": "    /\\\n   /  \\\n  /____\\\n  | [] |\n  |  _ |\n  |_|_||\n",
    "bar chart in ascii": "\n".join(f"{n:2} {'#' * (n * 7 % 23)}" for n in range(1, 21)),
    "chinese enumeration": "".join(
        f"第{n}步 把第{n}个数加到总和上 现在总和是{n * (n + 1) // 2}。\n" for n in range(1, 31)
    ),
    "a word looked at": "s-t-r-a-w-b-e-r-r-y: s, t, r (1), a, w, b, e, r (2), r (3), y. So three. "
    * 2,
    "a rule of 2,000 dashes": "Part one\n" + "-" * 2000 + "\nPart two\n",
    "laughter without end": "She laughed: " + "ha " * 120,
    "1/7 to 200 digits": "1/7 = 0." + _digits(1, 7, 200) + "...",
    "an empty board": ". . . . . . . .\n" * 8,
    "a matrix of zeros": "[" + ", ".join("[" + ", ".join("0" * 8) + "]" for _ in range(8)) + "]",
    "alternating bits": "10" * 128,
    "a hundred copies of a codon": "GGC" + "CAG" * 100 + "TTA",
    "a row of sixty emoji": "🙂" * 60,
    "a box in ascii": "+----------------+\n" + "|                |\n" * 12 + "+----------------+\n",
    "forty equal rows": "id,state\n" + "ok,ok\n" * 40,
}
