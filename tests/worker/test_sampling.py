"""The vectorised sampler against the definitions, written out for one row."""

from __future__ import annotations

import random
from collections.abc import Mapping

import mlx.core as mx
import numpy as np
import pytest

from thinkq.client.job import Job, Message
from thinkq.worker.sampling import Penalties, Sampler, Sampling, sampling_of

GRID = 2000


def expected(logits: np.ndarray, sampling: Sampling) -> np.ndarray:
    """The distribution of one row: temperature, then top-k, top-p and min-p, renormalised."""
    scaled = logits.astype(np.float64) / sampling.temperature
    order = np.argsort(-scaled, kind="stable")
    if sampling.top_k:
        scaled[order[sampling.top_k :]] = -np.inf
    probabilities = np.exp(scaled - scaled.max())
    probabilities /= probabilities.sum()
    before = np.concatenate([[0], np.cumsum(probabilities[order])[:-1]])
    keep = np.zeros_like(probabilities, bool)
    keep[order] = before < sampling.top_p
    keep &= probabilities >= sampling.min_p * probabilities.max()
    keep[order[0]] = True
    probabilities[~keep] = 0
    return np.asarray(probabilities / probabilities.sum())


def frequencies(logits: np.ndarray, sampling: Sampling) -> np.ndarray:
    """How often each id is chosen as the random number runs through its range."""
    sampler = Sampler([(sampling, random.Random(0))] * GRID)
    uniforms = mx.array((np.arange(GRID) + 0.5) / GRID, mx.float32)
    rows = mx.array(np.tile(logits, (GRID, 1)).astype(np.float32))
    return np.bincount(np.array(sampler(rows, uniforms)), minlength=len(logits)) / GRID


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=1.0),
        Sampling(temperature=0.5),
        Sampling(temperature=1.5, top_k=5),
        Sampling(temperature=1.0, top_p=0.7),
        Sampling(temperature=1.0, top_p=0.0),
        Sampling(temperature=1.0, min_p=0.2),
        Sampling(temperature=0.8, top_k=20, top_p=0.9, min_p=0.05),
        Sampling(temperature=1.0, top_k=10_000),
    ],
    ids=str,
)
def test_ids_come_as_often_as_their_probability_says(sampling: Sampling) -> None:
    logits = np.random.default_rng(3).normal(size=50) * 2
    found, wanted = frequencies(logits, sampling), expected(logits, sampling)
    assert np.abs(found - wanted).max() <= 1.5 / GRID
    assert not found[wanted == 0].any()


def test_the_candidates_of_a_large_vocabulary_are_the_largest() -> None:
    """A vocabulary large enough to be searched by blocks, with several of the largest in one."""
    source = np.random.default_rng(4)
    logits = source.permutation(64 * 200).reshape(1, -1).astype(np.float32)
    logits[0, 70:75] += 64 * 200
    sampling = Sampling(temperature=1e9, top_k=40)
    sampler = Sampler([(sampling, random.Random(0))] * 400)
    uniforms = mx.array((np.arange(400) + 0.5) / 400, mx.float32)
    chosen = np.array(sampler(mx.array(np.tile(logits, (400, 1))), uniforms))
    assert set(chosen) == set(np.argsort(-logits[0])[:40])


ROWS = [
    Sampling(temperature=0.9, top_k=12, top_p=0.8),
    Sampling(),
    Sampling(temperature=1.0),
    Sampling(temperature=2.0, top_k=100),
    Sampling(temperature=1.0, top_p=0.3),
    Sampling(temperature=0.1, min_p=0.1),
    Sampling(temperature=1.0, top_k=1),
    Sampling(temperature=1.0, top_k=127),
]


@pytest.mark.parametrize("mine", ROWS, ids=str)
@pytest.mark.parametrize("others", [ROWS[:3], ROWS[3:], ROWS], ids=["few", "more", "all"])
def test_a_row_chooses_the_same_beside_any_neighbours(
    mine: Sampling, others: list[Sampling]
) -> None:
    """What the neighbours ask for changes what is computed, never what a row gets."""
    source = np.random.default_rng(5)
    logits = mx.array(source.normal(size=(1 + len(others), 128)).astype(np.float32))
    rows = [(mine, random.Random(11)), *((each, random.Random(1)) for each in others)]
    together, alone = Sampler(rows), Sampler([(mine, random.Random(11))])
    for _ in range(50):
        choice = together(logits, together.draw())[0]
        assert choice.item() == alone(logits[:1], alone.draw())[0].item()


def test_greedy_rows_draw_nothing_and_take_the_largest() -> None:
    sampler = Sampler([(Sampling(), random.Random(0))] * 3)
    logits = mx.array(np.random.default_rng(6).normal(size=(3, 20)))
    assert sampler.draw() is None
    assert sampler(logits, None).tolist() == mx.argmax(logits, axis=-1).tolist()


def test_no_random_number_is_so_large_that_nothing_is_chosen() -> None:
    """The largest double below 1 is 1 as a float32, and no sum would be beyond it."""

    class Largest(random.Random):
        def random(self) -> float:
            return float(np.nextafter(1.0, 0.0))

    for row in (Sampling(temperature=1.0), Sampling(temperature=1.0, top_k=3)):
        sampler = Sampler([(row, Largest())])
        logits = mx.array([[-mx.inf, 0.0, 0.1, 0.2]])
        assert sampler(logits, sampler.draw()).item() != 0


def test_penalties_and_biases_follow_their_definitions() -> None:
    """Repetition over prompt and output, the other two over the output only, each row its own."""
    source = np.random.default_rng(7)
    rows = [
        Sampling(presence_penalty=0.5, frequency_penalty=0.3),
        Sampling(repetition_penalty=1.3),
        Sampling(logit_bias={3: 5.0, 999: 1.0}),
        Sampling(),
    ]
    prompts = [[1, 2], [1, 2, 2], [4], [5]]
    penalties = Penalties(rows[0], prompts[0], 10)
    for row, prompt in zip(rows[1:], prompts[1:], strict=True):
        penalties.extend(Penalties(row, prompt, 10))
    logits = source.normal(size=(4, 10)).astype(np.float32)
    last_of_prompt, first, second = [2, 2, 4, 5], [6, 7, 8, 9], [6, 1, 8, 9]
    for tokens in (last_of_prompt, first, second):
        found = np.array(penalties(mx.array(logits), mx.array(tokens)))
    wanted = logits.copy()
    wanted[0, 6] -= 0.5 + 2 * 0.3
    for seen in (1, 2, 7):
        wanted[1, seen] *= 1.3 if wanted[1, seen] < 0 else 1 / 1.3
    wanted[2, 3] += 5
    assert np.allclose(found, wanted, atol=1e-5)
    penalties.keep([2])
    assert penalties(mx.array(logits[:1]), mx.array([0])).shape == (1, 10)


def test_what_a_job_leaves_open_comes_from_the_models_own_config() -> None:
    def of(defaults: Mapping[str, object], **options: float) -> Sampling:
        messages = [Message(role="user", content="hi")]
        return sampling_of(Job(messages=messages, **options), defaults)  # type: ignore[arg-type]

    config = {"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.95}
    assert of({}).temperature == 0
    assert of({"do_sample": False, "temperature": 0.6}).temperature == 0
    assert of({}, temperature=1e-39).temperature == 0
    own = of(config)
    assert (own.temperature, own.top_k, own.top_p) == (0.6, 20, 0.95)
    stated = of(config, temperature=0, top_k=-1)
    assert (stated.temperature, stated.top_k, stated.top_p) == (0, 0, 0.95)
