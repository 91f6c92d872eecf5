// bind/rollouts.cpp: parts of equal cost for millstream.order, rows of rollouts for millstream.batches.
#include "bind/module.h"
#include "core/balance.h"

using namespace nb::literals;
using namespace millstream;

void register_rollouts(nb::module_& m) {
  m.def("partition",
        [](const Array<const std::int64_t>& costs, std::size_t parts, bool equal_sizes, bool refine,
           const Array<std::int64_t>& part_of) {
          nb::gil_scoped_release unlocked;
          partition(view(costs), parts, equal_sizes, refine, view(part_of));
        },
        "costs"_a, "parts"_a, "equal_sizes"_a, "refine"_a, "part_of"_a,
        "Write the part of each item into `part_of`, so that parts cost about the same; part 0 costs the most.");
}
