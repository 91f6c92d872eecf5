from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.tensors.backends import FRAMEWORKS as FRAMEWORKS
    from millstream.tensors.backends import accept_as_torch_dataset as accept_as_torch_dataset
    from millstream.tensors.backends import backend as backend
    from millstream.tensors.backends import default_framework as default_framework
    from millstream.tensors.backends import first_row as first_row
    from millstream.tensors.backends import framework_for as framework_for
    from millstream.tensors.backends import framework_of as framework_of
    from millstream.tensors.backends import inside_torch_worker as inside_torch_worker
    from millstream.tensors.backends import is_dtype as is_dtype
    from millstream.tensors.backends import numbers_of as numbers_of
    from millstream.tensors.ranks import Ranks as Ranks
    from millstream.tensors.ranks import refuse_to_be_dealt_again as refuse_to_be_dealt_again

__all__ = [
    "FRAMEWORKS",
    "Ranks",
    "accept_as_torch_dataset",
    "backend",
    "default_framework",
    "first_row",
    "framework_for",
    "framework_of",
    "inside_torch_worker",
    "is_dtype",
    "numbers_of",
    "refuse_to_be_dealt_again",
]
