"""Scoring of multiple choice: what a row holds, and which choice wins."""

import numpy as np

from steps.batches import PADDING
from steps.evaluate import choice_rows


class Letters:
    """A tokenizer of one id a letter."""

    bos_id = 99

    def encode(self, texts):
        return [[ord(letter) - ord("a") for letter in text] for text in texts]


def test_the_loss_counts_on_the_choice_alone():
    rows = choice_rows(Letters(), [{"context": "abc", "choices": ["de", "f"]}], 8)
    np.testing.assert_array_equal(rows[0]["tokens"], [99, 0, 1, 2, 3, 4, 0, 0])
    np.testing.assert_array_equal(rows[0]["loss_mask"], [0, 0, 0, 1, 1, 0, 0, 0])  # at c and d, predicting d and e
    np.testing.assert_array_equal(rows[0]["segment_ids"], [0] * 6 + [PADDING] * 2)
    np.testing.assert_array_equal(rows[1]["tokens"][:5], [99, 0, 1, 2, 5])
    np.testing.assert_array_equal(rows[1]["loss_mask"], [0, 0, 0, 1, 0, 0, 0, 0])


def test_a_long_passage_loses_its_beginning():
    [row] = choice_rows(Letters(), [{"context": "abcdefghij", "choices": ["xy"]}], 8)
    np.testing.assert_array_equal(row["tokens"], [99, 5, 6, 7, 8, 9, 23, 24])
    np.testing.assert_array_equal(row["loss_mask"], [0, 0, 0, 0, 0, 1, 1, 0])
