// bind/rollouts.cpp: parts of equal cost for millstream.order, rows of rollouts for millstream.batches.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <tuple>

#include "bind/module.h"
#include "core/balance.h"
#include "core/ragged.h"

using namespace nb::literals;
using namespace millstream;

namespace {

// An array of any type and shape, borrowed for as long as whoever holds it.
using AnyArray = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;
using Column = std::tuple<std::string, bool>;
using Block = std::tuple<Array<const std::int64_t>, Array<const std::uint32_t>, Array<const std::uint8_t>, std::vector<AnyArray>>;
using Kind = TokenColumn::Kind;

Kind kind_named(const std::string& name) {
  if (name == "copied") return Kind::copied;
  if (name == "masked") return Kind::masked;
  if (name == "widened") return Kind::widened;
  if (name == "spread") return Kind::spread;
  if (name == "last") return Kind::last;
  throw std::invalid_argument("a column is copied, masked, widened, spread or last, not '" + name + "'");
}

// What the values of a column are in a batch, behind rows and places; and what blocks must give for it.
struct Values {
  nb::dlpack::dtype made, given;
  std::vector<std::size_t> shape;
};

Values values_like(const AnyArray& array, Kind kind, std::size_t id_bytes) {
  if (array.ndim() == 0) throw std::invalid_argument("a column has no values");
  const auto id = id_bytes == 8 ? nb::dtype<std::int64_t>() : nb::dtype<std::int32_t>();
  switch (kind) {
    case Kind::masked: return {nb::dtype<float>(), nb::dtype<float>(), {}};
    case Kind::last:
    case Kind::spread: return {nb::dtype<float>(), nb::dtype<double>(), {}};
    case Kind::widened: return {id, nb::dtype<std::uint32_t>(), {}};
    case Kind::copied: break;
  }
  return {array.dtype(), array.dtype(), {array.shape_ptr() + 1, array.shape_ptr() + array.ndim()}};
}

std::size_t width_of(const Values& values) {
  std::size_t width = (values.made.bits * std::size_t{values.made.lanes} + 7) / 8;
  for (const auto size : values.shape) {
    if (size > 0 && width > (std::size_t{1} << 32) / size) throw std::invalid_argument("a column is too wide");
    width *= size;
  }
  return width;
}

const void* data_of(const AnyArray& array, const Values& values, std::size_t each) {
  const bool alike = array.ndim() == values.shape.size() + 1 && array.shape(0) == each && array.dtype() == values.given &&
                     std::equal(values.shape.begin(), values.shape.end(), array.shape_ptr() + 1);
  if (!alike) throw std::invalid_argument("a column has another number, shape or type of values");
  return array.data();
}

// Rows over arrays of Python, which it keeps alive.
struct RolloutRows {
  std::vector<Block> arrays;
  std::vector<Values> values;  // of each column
  RaggedRows rows;
};

RaggedBlock block_of(const Block& block, const std::vector<TokenColumn>& columns, const std::vector<Values>& values) {
  const auto& [ends, tokens, mask, arrays] = block;
  if (mask.size() != tokens.size()) throw std::invalid_argument("the mask has another number of tokens");
  if (arrays.size() != columns.size()) throw std::invalid_argument("a block lacks a column");
  RaggedBlock made{view(ends), view(tokens), mask.data(), {}};
  for (std::size_t number = 0; number < columns.size(); ++number)
    made.columns.push_back(
        data_of(arrays[number], values[number], columns[number].per_rollout() ? ends.size() : tokens.size()));
  return made;
}

void make_rows(RolloutRows* self, std::vector<Block> blocks, const std::vector<Column>& columns, const std::string& labels,
               std::int64_t pad_id, std::size_t id_bytes, bool packed) {
  if (labels != "next" && labels != "same") throw std::invalid_argument("labels are 'next' or 'same', not '" + labels + "'");
  if (!columns.empty() && (blocks.empty() || std::get<3>(blocks[0]).size() != columns.size()))
    throw std::invalid_argument("a block lacks a column");
  install_guard();
  std::vector<TokenColumn> kinds;
  std::vector<Values> values;
  for (const auto& [name, of_inputs] : columns) {
    const auto kind = kind_named(name);
    values.push_back(values_like(std::get<3>(blocks[0])[values.size()], kind, id_bytes));
    kinds.push_back({kind, width_of(values.back()), of_inputs});
  }
  std::vector<RaggedBlock> borrowed;
  for (const auto& block : blocks) borrowed.push_back(block_of(block, kinds, values));
  const RaggedShape shape{labels == "next" ? Labels::next : Labels::same, pad_id, id_bytes, packed};
  new (self) RolloutRows{std::move(blocks), std::move(values), RaggedRows(shape, std::move(kinds), std::move(borrowed))};
}

using Words = Array<const std::uint64_t>;
using Weights = std::optional<Array<const double>>;

// The rollouts of a step, on all ranks.
struct Step {
  Words blocks, rows;
  Weights weights;

  RaggedPlace at(std::uint64_t number) const {
    if (number >= rows.size()) throw std::out_of_range("there is no such rollout in the step");
    return {blocks.data()[number], rows.data()[number], weights ? weights->data()[number] : 1};
  }
};

std::optional<Batch> filled(const RaggedRows& ragged, Buffers& buffers, const Step& step, const Words& chosen,
                            const Words& row_ends, std::optional<std::size_t> length, std::size_t unit) {
  if (step.blocks.size() != step.rows.size() || (step.weights && step.weights->size() != step.rows.size()))
    throw std::invalid_argument("each rollout has a block, a row and a weight");
  if (unit == 0) throw std::invalid_argument("rows have a multiple of so many tokens, at least of one");
  nb::gil_scoped_release unlocked;
  std::vector<RaggedPlace> places;
  places.reserve(chosen.size());
  for (const auto number : view(chosen)) places.push_back(step.at(number));
  const auto needed = length ? *length : std::max<std::size_t>(1, ragged.longest(places, view(row_ends)));
  const auto padded = length ? needed : (needed + unit - 1) / unit * unit;
  auto batch = buffers.take(ragged.layout(row_ends.size(), padded, step.weights.has_value()));
  if (batch) ragged.fill(places, view(row_ends), *batch);
  return batch;
}

// A batch, and its further columns; None where the budget has no room.
nb::object make_batch(const RolloutRows& self, Buffers& buffers, const Words& blocks, const Words& rows, const Weights& weights,
                      const Words& chosen, const Words& row_ends, std::optional<std::size_t> length, std::size_t unit) {
  auto batch = filled(self.rows, buffers, {blocks, rows, weights}, chosen, row_ends, length, unit);
  if (!batch) return nb::none();
  const auto layout = batch->layout();
  auto* const data = batch->data();
  const auto owner = nb::cast(std::move(*batch));
  nb::list columns;
  for (std::size_t number = 0; number < self.values.size(); ++number) {
    const auto& values = self.values[number];
    std::vector<std::size_t> shape{layout.rows, layout.length};
    shape.insert(shape.end(), values.shape.begin(), values.shape.end());
    columns.append(nb::cast(nb::ndarray<nb::numpy>(data + self.rows.offset(layout, number), shape.size(), shape.data(), owner,
                                                   nullptr, values.made)));
  }
  return nb::make_tuple(owner, columns);
}

}  // namespace

void register_rollouts(nb::module_& m) {
  m.def("partition",
        [](const Array<const std::int64_t>& costs, std::size_t parts, bool equal_sizes, bool refine,
           const Array<std::int64_t>& part_of) {
          nb::gil_scoped_release unlocked;
          partition(view(costs), parts, equal_sizes, refine, view(part_of));
        },
        "costs"_a, "parts"_a, "equal_sizes"_a, "refine"_a, "part_of"_a,
        "Write the part of each item into `part_of`, so that parts cost about the same; part 0 costs the most.");

  nb::class_<Buffers>(m, "Buffers", "Buffers for batches of any size, used again and again.")
      .def(nb::init<std::shared_ptr<Budget>, std::size_t>(), "budget"_a, "keep"_a = 4);

  nb::class_<RolloutRows>(m, "RolloutRows", "Blocks of rollouts -> rows of a batch, with a column for all that is said of tokens.")
      .def("__init__", &make_rows, "blocks"_a, "columns"_a, "labels"_a, "pad_id"_a, "id_bytes"_a, "packed"_a,
           nb::sig("def __init__(self, blocks: Sequence[tuple[NDArray[numpy.int64], NDArray[numpy.uint32], NDArray[numpy.uint8], "
                   "Sequence[NDArray[typing.Any]]]], columns: Sequence[tuple[str, bool]], labels: str, pad_id: int, "
                   "id_bytes: int, packed: bool) -> None"),
           "Blocks are (ends, token ids, mask, columns); columns (kind, whether beside the inputs).")
      .def("batch", &make_batch, "buffers"_a, "blocks"_a, "rows"_a, "weights"_a.none(), "chosen"_a, "row_ends"_a,
           "length"_a.none(), "unit"_a,
           nb::sig("def batch(self, buffers: Buffers, blocks: NDArray[numpy.uint64], rows: NDArray[numpy.uint64], "
                   "weights: NDArray[numpy.float64] | None, chosen: NDArray[numpy.uint64], row_ends: NDArray[numpy.uint64], "
                   "length: int | None, unit: int) -> tuple[Batch, list[NDArray[typing.Any]]] | None"),
           "A batch of the chosen rollouts of a step, those of row r up to row_ends[r], and its columns; None where the budget has "
           "no room. Without a length, rows are as long as the longest needs, padded to a multiple of `unit`.");
}
