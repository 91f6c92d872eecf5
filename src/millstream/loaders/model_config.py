"""What the model can take: vocabulary, longest row, special ids. Checked at the start, not in the embedding."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millstream.errors import LoaderError

LENGTH_KEYS = ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length")


@dataclass(frozen=True)
class ModelLimits:
    """The part of a model's configuration that its data must respect; None where it does not say.

    >>> ModelLimits.of({"vocab_size": 50257, "n_positions": 1024, "eos_token_id": 50256})
    ModelLimits(vocab_size=50257, longest_row=1024, eos_id=50256, pad_id=None)
    """

    vocab_size: int | None = None
    longest_row: int | None = None
    eos_id: int | None = None
    pad_id: int | None = None

    @classmethod
    def of(cls, config: object) -> ModelLimits:
        """Read a Hugging Face config: an object, a dict, a `config.json` or the folder that holds one."""
        if config is None:
            return cls()
        values = _values(config)
        if isinstance(values.get("text_config"), Mapping):  # multimodal models keep the language model's part inside
            values = {**values, **values["text_config"]}
        length = next((key for key in LENGTH_KEYS if values.get(key) is not None), None)
        limits = cls(
            _integer(values, "vocab_size", least=1),
            None if length is None else _integer(values, length, least=1),
            _integer(values, "eos_token_id"),
            _integer(values, "pad_token_id"),
        )
        for name, value in (("eos_token_id", limits.eos_id), ("pad_token_id", limits.pad_id)):
            if value is not None and limits.vocab_size is not None and value >= limits.vocab_size:
                raise LoaderError(
                    f"model_config: {name} is {value}, but the vocabulary has {limits.vocab_size} ids",
                    hint=f"correct {name} or vocab_size; ids count from 0",
                )
        return limits


NO_LIMITS = ModelLimits()


def _values(config: object) -> Mapping[str, Any]:
    if isinstance(config, str | os.PathLike):
        path = Path(config)
        path = path / "config.json" if path.is_dir() else path
        try:
            config = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise LoaderError(
                f"model_config: {path}: {error}", hint="give a Hugging Face config.json, dict or object"
            ) from None
    if hasattr(config, "to_dict"):
        config = config.to_dict()
    if not isinstance(config, Mapping):
        raise LoaderError(
            f"model_config: {type(config).__name__} is no config", hint="give a config.json, dict or object"
        )
    return config


def _integer(values: Mapping[str, Any], key: str, least: int = 0) -> int | None:
    value = values.get(key)
    if isinstance(value, list) and value:  # some models stop at any of several ids; the first one ends a text
        value = value[0]
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise LoaderError(
            f"model_config: {key} is {value!r}, not an integer of at least {least}",
            hint=f"correct it, or leave {key} out",
        )
    return value
