// bind/rollout_records.cpp: hashes and checks of rollouts for millstream.rollouts.
#include "bind/module.h"
#include "core/hash.h"
#include "core/kernels.h"

using namespace nb::literals;

void register_rollout_records(nb::module_& m) {
  m.def("hash_stretches", [](Array<const std::uint8_t> data, Array<const std::int64_t> ends, Array<std::uint64_t> hashes) {
    nb::gil_scoped_release unlocked;  // the arguments keep their buffers alive
    millstream::hash_stretches(std::as_bytes(view(data)), view(ends), view(hashes));
  }, "data"_a, "ends"_a, "hashes"_a, "Go on with the XXH64 of each stretch: `hashes` holds seeds, then hashes.");
  m.def("said_outside", [](Array<const float> values, Array<const bool> mask) {
    if (values.size() != mask.size()) throw std::invalid_argument("the mask has another number of tokens");
    nb::gil_scoped_release unlocked;
    return millstream::said_outside(reinterpret_cast<const std::uint8_t*>(mask.data()), values.data(), values.size());
  }, "values"_a, "mask"_a, "Whether anything but 0 stands where the mask does not hold.");
}
