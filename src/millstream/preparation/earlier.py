"""What earlier runs left: the bookmark of an unfinished run, and a finished store.

A bookmark is written whenever the writer of the store makes a checkpoint, and says how far the run came: the next one
resumes there. The writer may be ahead of the bookmark, never the reverse. What it wrote since is made again, compared
by number, and not written twice. A finished store is compared with what would be made now.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from millstream.preparation.mixing import Mixing
from millstream.preparation.process import Job, PrepareRun
from millstream.records import Recipe
from millstream.sources import FoundFile, Reading
from millstream.storage import disk, key_of
from millstream.tokens import describe_tokenizer, may_be_learned


def differences(
    manifest: Mapping[str, Any], job: Job, sources: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]
) -> list[str]:
    """Say in words what differs between a store and what would be made: nothing, if it is the same."""
    recipe = manifest.get("recipe")
    if not isinstance(recipe, Mapping) or not manifest.get("sources"):
        return ["does not say what it was made from"]
    if job.identity is None:
        return ["cannot be compared: a step of the recipe cannot be identified"]
    found = [*_other_files(manifest["sources"], sources)]
    tokenizer = describe_tokenizer(job.tokenizer)
    if manifest.get("tokenizer") != _as_json(tokenizer):
        found.append(f"was made with another tokenizer ({_name(manifest.get('tokenizer'))}, not {tokenizer['name']})")
    if manifest.get("dtype") != job.dtype:
        found.append(f"holds {manifest.get('dtype')}, not {job.dtype}")
    return [*found, *_other_ways(recipe, settings)]


def differences_before_learning(
    manifest: Mapping[str, Any], tokenizer: str, sources: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]
) -> list[str]:
    """What differs whatever the tokenizer will be that is still to be learned."""
    recipe, kept = manifest.get("recipe"), manifest.get("tokenizer")
    if not isinstance(recipe, Mapping) or not manifest.get("sources"):
        return ["does not say what it was made from"]
    found = [*_other_files(manifest["sources"], sources)]
    if not isinstance(kept, Mapping) or not may_be_learned(tokenizer, str(kept.get("name"))):
        found.append(f"was made with another tokenizer ({_name(kept)}, not {tokenizer})")
    return [*found, *_other_ways(recipe, {**settings, "eos_id": recipe.get("eos_id")})]


def sources_of(files: Sequence[FoundFile], digests: Sequence[str]) -> list[dict[str, Any]]:
    """What a manifest says of each file."""
    return [
        {"path": file.name, "bytes": file.bytes, "blake2b": digest} for file, digest in zip(files, digests, strict=True)
    ]


def settings_of(run: PrepareRun, mixing: Mixing | None) -> dict[str, Any]:
    """What a manifest says of the way from the files to the tokens, as far as it was asked for."""
    return {
        "eos_id": run.job.eos_id,
        **settings_before(run.files, run.job.reading, run.job.recipe, mixing),
        **({} if run.job.chat is None else {"chat": run.job.chat.settings.description}),
    }


def settings_before(
    files: Sequence[FoundFile], reading: Reading, recipe: Recipe, mixing: Mixing | None
) -> dict[str, Any]:
    """Those of the settings that are known before the tokenizer is."""
    limits = ("chunk_bytes", "max_expansion", "max_decoded_bytes")
    return {
        "formats": [file.format for file in files],
        "reading": {name: value for name, value in asdict(reading).items() if name not in limits},
        "steps": recipe.canonical(),
        **({"steps_digest": recipe.digest()} if recipe.steps else {}),
        "weights": [file.weight for file in files],
        **({} if mixing is None else {"mixing": asdict(mixing)}),
    }


def _other_ways(recipe: Mapping[str, Any], settings: Mapping[str, Any]) -> Iterator[str]:
    wanted = _as_json(settings)
    others = [
        name for name in sorted({*wanted, "chat", "mixing", "steps_digest"}) if recipe.get(name) != wanted.get(name)
    ]
    if "steps" in others and "steps_digest" in others:
        others.remove("steps_digest")  # other steps do other things
    if others:
        yield f"was made in another way: {', '.join(_described(name, recipe, wanted) for name in others)}"


def _other_files(was: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    before, after = ({each["path"]: each["blake2b"] for each in some} for some in (was, now))
    gone, new = [name for name in before if name not in after], [name for name in after if name not in before]
    changed = [name for name in before if name in after and before[name] != after[name]]
    unknown = [name for name, digest in after.items() if not digest]
    if gone or new:
        both = ("also of", gone), ("not of", new)
        yield "was made " + ", and ".join(f"{how} {_some(names)}" for how, names in both if names)
    if changed:
        yield f"was made of another content of {_some(changed)}"
    if unknown and not changed:
        yield f"cannot be compared: what {_some(unknown)} holds cannot be told"
    if not gone and not new and list(before) != list(after):
        yield "was made of the same files in another order"


def _some(names: Sequence[str]) -> str:
    """A few names.

    >>> _some(["a.txt"]), _some(["a.txt", "b.txt", "c.txt"])
    ('a.txt', 'a.txt and 2 others')
    """
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} other{'s' * (len(names) > 2)}"


def _described(name: str, was: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """A setting that differs; of settings that hold others, only those that do."""
    before, after = was.get(name), now.get(name)
    if name == "steps_digest":
        return "what its steps do has changed"
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        inner = [key for key in sorted({*before, *after}) if before.get(key) != after.get(key)]
        return ", ".join(f"{name}.{key} was {before.get(key)!r} and is {after.get(key)!r}" for key in inner)
    return f"{name} was {before!r} and is {after!r}"


def _name(tokenizer: object) -> str:
    return str(tokenizer.get("name")) if isinstance(tokenizer, Mapping) else "none"


def _as_json(value: Any) -> Any:
    """A value as a manifest would give it back."""
    return json.loads(json.dumps(value))


log = logging.getLogger("millstream.preparation")

BOOKMARK_FILE = ".bookmark.json"
_VERSION = 2


@dataclass(frozen=True)
class Bookmark:
    """Parts and documents that are safe in the unfinished store, and what was counted with them.

    `identity` names what the run makes of which files: only a run that would make the same may resume. `rows_before`
    counts the rows of file number `file` before the next part. `kept` holds (bytes, records) of each file of records
    that were kept aside.
    """

    identity: str
    parts: int = 0
    documents: int = 0
    file: int = -1
    rows_before: int = 0
    statistics: dict[str, Any] = field(default_factory=dict)
    kept: dict[str, tuple[int, int]] = field(default_factory=dict)


def identity_of(job: Job, files: Sequence[FoundFile], writing: object) -> str | None:
    """Name what a run makes of which files, and how it writes them; None if that cannot be known."""
    if job.identity is None or any(file.data is not None for file in files):
        return None
    return key_of(
        "run", job.identity, repr(writing), [[file.name, file.bytes, file.mtime_ns, file.inode] for file in files]
    )


def save_bookmark(folder: Path, bookmark: Bookmark) -> None:
    """Write a bookmark; a reader sees the old one or the new one."""
    disk.publish(folder / BOOKMARK_FILE, json.dumps({"version": _VERSION, **asdict(bookmark)}).encode())


def load_bookmark(folder: Path, identity: str | None) -> Bookmark | None:
    """Read the bookmark of an unfinished run that was making the same, or None.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> save_bookmark(folder, Bookmark("ab", parts=3))
    >>> load_bookmark(folder, "ab").parts, load_bookmark(folder, "cd")
    (3, None)
    """
    try:
        content = json.loads((folder / BOOKMARK_FILE).read_bytes())
        version = content.pop("version")
        if version == 1:
            content = _from_first_version(content)
        if version not in (1, _VERSION) or identity is None or content["identity"] != identity:
            log.warning("the unfinished run was making something else, or of other files: it is begun anew")
            return None
        return Bookmark(**content)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _from_first_version(content: dict[str, Any]) -> dict[str, Any]:
    """A bookmark whose counts lie apart by what became of records.

    >>> counts = {"skipped": {"empty": 1}, "changed": {}, "dropped": {}, "files": []}
    >>> _from_first_version({"bad": {"not JSON": 2}, "statistics": counts})
    {'statistics': {'files': [], 'losses': {'skipped:empty': 1, 'bad:not JSON': 2}}}
    """
    statistics = dict(content["statistics"])
    counts = {what: statistics.pop(what, {}) for what in ("skipped", "changed", "dropped")} | {"bad": content["bad"]}
    losses = {f"{what}:{reason}": count for what, reasons in counts.items() for reason, count in reasons.items()}
    rest = {key: value for key, value in content.items() if key not in ("bad", "statistics")}
    return {**rest, "statistics": {**statistics, "losses": losses} if statistics else {}}
