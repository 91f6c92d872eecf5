"""Arrays of a batch -> tensors of a framework. One file per framework, imported when asked for."""

from millstream.lazy import lazy

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "backends": "FRAMEWORKS accept_as_torch_dataset backend default_framework first_row framework_for "
        "framework_of inside_torch_worker is_dtype numbers_of",
        "ranks": "Ranks refuse_to_be_dealt_again",
    },
)
