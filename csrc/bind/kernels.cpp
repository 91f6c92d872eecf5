// bind/kernels.cpp: hashes, runs and checks of columns that lie in pieces.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>

#include <optional>
#include <utility>

#include "bind/module.h"
#include "core/kernels/hash.h"
#include "core/kernels/kernels.h"
#include "core/kernels/runs.h"

using namespace nb::literals;

namespace {

template <typename T>
using Pieces = nb::typed<nb::sequence, Array<const T>>;

// What lies in the pieces, which the caller keeps: nothing is converted.
template <typename T>
std::vector<std::span<const T>> views(const Pieces<T>& pieces) {
  std::vector<std::span<const T>> found;
  for (const auto piece : pieces) found.push_back(view(nb::cast<Array<const T>>(piece, false)));
  return found;
}

std::uint64_t xxh64_chain(nb::typed<nb::sequence, Pieces<std::uint8_t>> columns) {
  std::vector<std::vector<std::span<const std::uint8_t>>> found;
  for (const auto column : columns) found.push_back(views(nb::cast<Pieces<std::uint8_t>>(column)));
  nb::gil_scoped_release unlocked;
  std::uint64_t hash = 0;
  for (const auto& column : found) {
    millstream::Xxh64 own(hash);
    for (const auto piece : column) own.add(std::as_bytes(piece));
    hash = own.value();
  }
  return hash;
}

std::optional<std::pair<Made<std::uint32_t>, Made<std::uint32_t>>> runs_of(Pieces<std::uint32_t> pieces) {
  const auto found = views(pieces);
  std::optional<millstream::Runs> runs;
  {
    nb::gil_scoped_release unlocked;
    runs = millstream::runs_of(found);
  }
  if (!runs) return std::nullopt;
  return std::pair(made(std::move(runs->values)), made(std::move(runs->lengths)));
}

}  // namespace

void register_kernels(nb::module_& m) {
  m.def("hash_stretches", [](Array<const std::uint8_t> data, Array<const std::int64_t> ends, Array<std::uint64_t> hashes) {
    nb::gil_scoped_release unlocked;  // the arguments keep their buffers alive
    millstream::hash_stretches(std::as_bytes(view(data)), view(ends), view(hashes));
  }, "data"_a, "ends"_a, "hashes"_a, "Go on with the XXH64 of each stretch: `hashes` holds seeds, then hashes.");
  m.def("xxh64_chain", &xxh64_chain, "columns"_a,
        "XXH64 of columns that lie in pieces, the hash of each the seed of the next.");
  m.def("runs_of", &runs_of, "pieces"_a,
        "The values and the lengths of the runs in pieces that lie end to end; None if there are too many.");
  m.def("said_outside", [](Array<const float> values, Array<const bool> mask) {
    if (values.size() != mask.size()) throw std::invalid_argument("the mask has another number of tokens");
    nb::gil_scoped_release unlocked;
    return millstream::said_outside(reinterpret_cast<const std::uint8_t*>(mask.data()), values.data(), values.size());
  }, "values"_a, "mask"_a, "Whether anything but 0 stands where the mask does not hold.");
}
