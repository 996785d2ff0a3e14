"""Question and answer pairs as training sequences: the loss counts on answers alone.

A pair becomes `begin, question mark, question..., answer mark, answer..., end`. Marks are entries of the tokenizer's
own (`steps.tokenizer`); one that has none gets the words in their place, so any tokenizer does. Pairs are packed by
Levanter into sequences of fixed length, each pair a segment that sees nothing of the others.

Levanter's chat format is not used: it needs a template in the tokenizer and writes a cache; pairs are few and made
into sequences in a moment.
"""

import dataclasses
from typing import Any

from executor import Input

PLAIN_QUESTION = "Question: "
PLAIN_ANSWER = "\nAnswer: "


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConversationConfig:
    """Pairs to fine-tune on.

    Attributes:
        pairs: artifact with `train.jsonl` and `validation.jsonl` of question and answer.
        tokenizer: the one the model was trained with.
        seed: of the order.
    """

    pairs: Input
    tokenizer: Input
    seed: int = 0


def prompt_ids(tokenizer: Any, question: str) -> list[int]:
    """What stands before an answer, to train on or to be completed."""
    from steps.tokenizer import ANSWER, QUESTION

    marks = tokenizer.token_id(QUESTION), tokenizer.token_id(ANSWER)
    if None in marks:
        [ids] = tokenizer.encode([f"{PLAIN_QUESTION}{question}{PLAIN_ANSWER}"])
        return [tokenizer.bos_id, *ids]
    [ids] = tokenizer.encode([question])
    return [tokenizer.bos_id, marks[0], *ids, marks[1]]


def conversation_dataset(config: ConversationConfig, *, sequence_length: int) -> Any:
    """Examples for `steps.batches.loader`: endless, every epoch in the same shuffled order."""
    import jax
    from levanter.data.dataset import ListAsyncDataset
    from levanter.data.mixture import MixtureDataset

    examples = packed_examples(config, "train", sequence_length)
    order = ListAsyncDataset(examples).shuffle(jax.random.key(config.seed))
    return MixtureDataset({"pairs": order}, {"pairs": 1.0}, block_size=1, randomize_blocks=False, key=config.seed)


def conversation_validation_batches(config: ConversationConfig, *, sequence_length: int, batch_size: int) -> list[Any]:
    """The held-out pairs in fixed order, as batches of `steps.batches`."""
    from steps.batches import stack

    return stack(packed_examples(config, "validation", sequence_length), batch_size)


def packed_examples(config: ConversationConfig, split: str, sequence_length: int) -> list[dict[str, Any]]:
    """One split as examples of `steps.batches`. Pairs longer than a sequence are left out and counted."""
    import random

    import numpy as np
    from haliax import Axis
    from levanter.data.packing import PromptCompletion, greedy_pack_prompt_completions

    from executor import resolved
    from steps.batches import PADDING
    from steps.corpus.documents import read_documents
    from steps.tokenizer import open_tokenizer

    tokenizer = open_tokenizer(resolved(config.tokenizer))
    pairs = list(read_documents(f"{resolved(config.pairs)}/{split}.jsonl"))
    if split == "train":
        random.Random(f"{config.seed}").shuffle(pairs)
    completions = []
    for pair, answer in zip(pairs, tokenizer.encode([pair["answer"] for pair in pairs]), strict=True):
        prompt = prompt_ids(tokenizer, pair["question"])
        ids = [*prompt, *answer, tokenizer.eos_id]
        if len(ids) > sequence_length:
            continue
        completions.append(PromptCompletion(ids=ids, prompt_length=len(prompt)))
    if not completions:
        raise ValueError(
            f"none of {len(pairs)} pairs of {split}.jsonl fits into {sequence_length} tokens; lengthen the sequence"
        )
    if left_out := len(pairs) - len(completions):
        print(f"{split}: {left_out} of {len(pairs)} pairs are longer than {sequence_length} tokens and left out")
    packed = greedy_pack_prompt_completions(Axis("position", sequence_length), completions, tokenizer.eos_id)
    examples = []
    for example in packed:
        mask: Any = example.attn_mask
        pair_ids = np.asarray(mask.segment_ids[0].array)
        numbered = np.where(pair_ids == -1, PADDING, pair_ids - pair_ids[0])
        examples.append(
            {
                "tokens": np.asarray(example.tokens.array, np.int32),
                "loss_mask": np.asarray(example.loss_weight.array, np.float32),
                "segment_ids": numbered.astype(np.int32),
            }
        )
    return examples
