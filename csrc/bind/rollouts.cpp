// bind/rollouts.cpp: parts of equal cost for millstream.order, rows of rollouts for millstream.batches.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>

#include "bind/module.h"
#include "core/balance.h"
#include "core/ragged.h"

using namespace nb::literals;
using namespace millstream;

namespace {

// An array of any type and shape, borrowed for as long as whoever holds it.
using AnyArray = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;
using Column = std::tuple<std::string, std::size_t, bool>;
using Block = std::tuple<Array<const std::int64_t>, Array<const std::uint32_t>, Array<const std::uint8_t>, std::vector<AnyArray>>;

TokenColumn column_of(const Column& column) {
  const auto& [kind, width, of_inputs] = column;
  using Kind = TokenColumn::Kind;
  if (kind == "copied") return {Kind::copied, width, of_inputs};
  if (kind == "masked") return {Kind::masked, width, of_inputs};
  if (kind == "widened") return {Kind::widened, width, of_inputs};
  if (kind == "spread") return {Kind::spread, width, of_inputs};
  throw std::invalid_argument("a column is copied, masked, widened or spread, not '" + kind + "'");
}

// The array has one value of the right type for each token, or for each rollout.
const void* data_of(const AnyArray& array, const TokenColumn& column, std::size_t rollouts, std::size_t tokens) {
  using Kind = TokenColumn::Kind;
  const auto each = column.kind == Kind::spread ? rollouts : tokens;
  if (array.ndim() == 0 || array.shape(0) != each) throw std::invalid_argument("a column has another number of values");
  if (column.kind == Kind::copied ? array.nbytes() != tokens * column.width : array.ndim() != 1)
    throw std::invalid_argument("a column has another shape");
  if (column.kind == Kind::masked && array.dtype() != nb::dtype<float>()) throw std::invalid_argument("masked columns are float32");
  if (column.kind == Kind::widened && array.dtype() != nb::dtype<std::uint32_t>())
    throw std::invalid_argument("widened columns are uint32");
  if (column.kind == Kind::spread && array.dtype() != nb::dtype<double>()) throw std::invalid_argument("spread columns are float64");
  return array.data();
}

// Rows over arrays of Python, which it keeps alive.
struct RolloutRows {
  std::vector<Block> arrays;
  RaggedRows rows;
};

RaggedBlock block_of(const Block& block, const std::vector<TokenColumn>& columns) {
  const auto& [ends, tokens, mask, arrays] = block;
  if (mask.size() != tokens.size()) throw std::invalid_argument("the mask has another number of tokens");
  if (arrays.size() != columns.size()) throw std::invalid_argument("a block lacks a column");
  RaggedBlock made{view(ends), view(tokens), mask.data(), {}};
  for (std::size_t number = 0; number < columns.size(); ++number)
    made.columns.push_back(data_of(arrays[number], columns[number], ends.size(), tokens.size()));
  return made;
}

void make_rows(RolloutRows* self, std::vector<Block> blocks, const std::vector<Column>& columns, const std::string& labels,
               std::int64_t pad_id, std::size_t id_bytes, bool packed) {
  if (labels != "next" && labels != "same") throw std::invalid_argument("labels are 'next' or 'same', not '" + labels + "'");
  install_guard();
  std::vector<TokenColumn> kinds;
  for (const auto& column : columns) kinds.push_back(column_of(column));
  std::vector<RaggedBlock> borrowed;
  for (const auto& block : blocks) borrowed.push_back(block_of(block, kinds));
  const RaggedShape shape{labels == "next" ? Labels::next : Labels::same, pad_id, id_bytes, packed};
  new (self) RolloutRows{std::move(blocks), RaggedRows(shape, std::move(kinds), std::move(borrowed))};
}

using Words = Array<const std::uint64_t>;
using Weights = std::optional<Array<const double>>;

std::optional<Batch> filled(const RaggedRows& ragged, Buffers& buffers, const Words& blocks, const Words& rows,
                            const Words& row_ends, std::size_t length, const Weights& weights) {
  if (blocks.size() != rows.size() || (weights && weights->size() != rows.size()))
    throw std::invalid_argument("each rollout has a block, a row and a weight");
  nb::gil_scoped_release unlocked;
  std::vector<RaggedPlace> places(rows.size());
  for (std::size_t i = 0; i < places.size(); ++i) places[i] = {blocks.data()[i], rows.data()[i], weights ? weights->data()[i] : 1};
  auto batch = buffers.take(ragged.layout(row_ends.size(), length, weights.has_value()));
  if (batch) ragged.fill(places, view(row_ends), *batch);
  return batch;
}

// A batch, and the bytes of its further columns; None where the budget has no room.
nb::object make_batch(const RolloutRows& self, Buffers& buffers, const Words& blocks, const Words& rows, const Words& row_ends,
                      std::size_t length, const Weights& weights) {
  auto batch = filled(self.rows, buffers, blocks, rows, row_ends, length, weights);
  if (!batch) return nb::none();
  const auto layout = batch->layout();
  auto* const data = batch->data();
  const auto owner = nb::cast(std::move(*batch));
  nb::list columns;
  for (std::size_t number = 0; number < self.rows.columns().size(); ++number) {
    auto* const bytes = reinterpret_cast<std::uint8_t*>(data + self.rows.offset(layout, number));
    const auto width = self.rows.columns()[number].width;
    columns.append(nb::cast(Made<std::uint8_t>(bytes, {layout.rows * layout.length * width}, owner)));
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
                   "Sequence[NDArray[typing.Any]]]], columns: Sequence[tuple[str, int, bool]], labels: str, pad_id: int, "
                   "id_bytes: int, packed: bool) -> None"),
           "Blocks are (ends, token ids, mask, columns); columns (kind, bytes of a token, whether beside the inputs).")
      .def("batch", &make_batch, "buffers"_a, "blocks"_a, "rows"_a, "row_ends"_a, "length"_a, "weights"_a = nb::none(),
           nb::sig("def batch(self, buffers: Buffers, blocks: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', "
                   "device='cpu', writable=False)], rows: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', "
                   "device='cpu', writable=False)], row_ends: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', "
                   "device='cpu', writable=False)], length: int, weights: Annotated[NDArray[numpy.float64], "
                   "dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None) -> tuple[Batch, list[NDArray[numpy.uint8]]] | None"),
           "A batch of rollouts, those of row r up to row_ends[r], and the bytes of its columns; None where the budget has no room.");
}
