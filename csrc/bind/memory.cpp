// bind/memory.cpp: budgets, batches over native memory, and buffers that go back to their pool when the last array over them is gone.
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/tuple.h>

#include <memory>
#include <utility>

#include "bind/module.h"
#include "core/memory/batch.h"
#include "core/memory/budget.h"
#include "core/memory/pool.h"

using namespace nb::literals;
using namespace millstream;

namespace {

struct Taken {
  std::shared_ptr<Pool> pool;
  std::byte* data;
};

nb::object take(std::shared_ptr<Pool> pool) {
  auto* const data = pool->try_take();
  if (!data) return nb::none();
  const std::size_t bytes = pool->buffer_bytes();
  const nb::capsule owner(new Taken{std::move(pool), data}, [](void* taken) noexcept {
    const std::unique_ptr<Taken> out(static_cast<Taken*>(taken));
    out->pool->give_back(out->data);
  });
  return nb::cast(nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>>(data, {bytes}, owner));
}

// A view of a batch that keeps it alive.
template <typename Value>
nb::object numbers(nb::handle self, Value* data, std::size_t count) {
  return nb::cast(nb::ndarray<nb::numpy, Value, nb::ndim<1>, nb::c_contig>(data, {count}, self));
}

template <typename Id>
nb::object column_of(nb::handle self, const Batch& batch, std::size_t number) {
  const auto& layout = batch.layout();
  auto* const data = reinterpret_cast<Id*>(batch.data() + number * layout.column_bytes());
  return nb::cast(nb::ndarray<nb::numpy, Id, nb::ndim<2>, nb::c_contig>(data, {layout.rows, layout.length}, self));
}

nb::object column(nb::handle_t<Batch> self, std::size_t number) {
  const auto& batch = nb::cast<const Batch&>(self);
  if (number >= batch.layout().columns()) throw nb::index_error("no such column");
  return batch.layout().id_bytes == 8 ? column_of<std::int64_t>(self, batch, number)
                                      : column_of<std::int32_t>(self, batch, number);
}

void bind_batch(nb::module_& m) {
  nb::class_<Batch>(m, "Batch", "One batch in one buffer; arrays over it keep it alive.")
      .def_prop_ro("inputs_and_labels",
                   [](nb::handle_t<Batch> self) { return nb::make_tuple(column(self, 0), column(self, 1)); },
                   nb::sig("def inputs_and_labels(self) -> "
                           "tuple[numpy.typing.NDArray[typing.Any], numpy.typing.NDArray[typing.Any]]"),
                   "The two columns that every batch has: (rows, length) each.")
      .def("column", &column, nb::sig("def column(self, number: int) -> numpy.typing.NDArray[typing.Any]"),
           "Inputs (0), labels (1) or, when isolated, positions (2): (rows, length).")
      .def_prop_ro("lengths",
                   [](nb::handle_t<Batch> self) {
                     const auto& batch = nb::cast<const Batch&>(self);
                     return numbers(self, batch.lengths(), batch.layout().rows);
                   },
                   nb::sig("def lengths(self) -> numpy.typing.NDArray[numpy.int32]"), "Real tokens of each row.")
      .def_prop_ro("sources",
                   [](nb::handle_t<Batch> self) {
                     const auto& batch = nb::cast<const Batch&>(self);
                     return numbers(self, batch.sources(), batch.layout().rows);
                   },
                   nb::sig("def sources(self) -> numpy.typing.NDArray[numpy.int32]"),
                   "Number of each row's source in the plan; -1 for filler.")
      .def_prop_ro("cuts",
                   [](nb::handle_t<Batch> self) {
                     const auto& batch = nb::cast<const Batch&>(self);
                     return numbers(self, batch.cuts(), batch.layout().documents ? batch.layout().rows : 0);
                   },
                   nb::sig("def cuts(self) -> numpy.typing.NDArray[numpy.int64]"),
                   "Tokens of each row's document that did not fit; empty where rows are not documents.")
      .def_prop_ro("segment_starts",
                   [](nb::handle_t<Batch> self) {
                     const auto& batch = nb::cast<const Batch&>(self);
                     return numbers(self, batch.starts(), batch.layout().isolated ? batch.facts.segments + 1 : 0);
                   },
                   nb::sig("def segment_starts(self) -> numpy.typing.NDArray[numpy.int32]"),
                   "Starts of the segments in the flattened rows, and their end.")
      .def_prop_ro("weights",
                   [](nb::handle_t<Batch> self) -> nb::object {
                     const auto& batch = nb::cast<const Batch&>(self);
                     const auto& layout = batch.layout();
                     if (!batch.facts.fractional) return nb::none();
                     return nb::cast(nb::ndarray<nb::numpy, float, nb::ndim<2>, nb::c_contig>(
                         batch.weights(), {layout.rows, layout.length}, self));
                   },
                   nb::sig("def weights(self) -> numpy.typing.NDArray[numpy.float32] | None"),
                   "What each target weighs in the loss; None where all weigh 0 or 1.")
      .def_prop_ro("targets", [](const Batch& batch) { return batch.facts.targets; }, "Targets that weigh anything.")
      .def_prop_ro("step_weight",
                   [](const Batch& batch) {
                     const auto& weight = batch.facts.step_weight;
                     return std::tuple(weight.targets, weight.hundredths, weight.segments);
                   },
                   "Targets of a whole update on all ranks, what they weigh in hundredths, and segments that have any.")
      .def_prop_ro("length", [](const Batch& batch) { return batch.layout().length; }, "Places of a row.")
      .def_prop_ro("isolated", [](const Batch& batch) { return batch.layout().isolated; })
      .def_prop_ro("nbytes", [](const Batch& batch) { return batch.layout().bytes(); })
      .def_prop_ro("facts",
                   [](const Batch& batch) {
                     const auto& f = batch.facts;
                     return std::tuple(f.epoch, f.place, f.rows, f.filler, f.tokens, f.cut, f.longest_segment);
                   },
                   "Epoch and place of the first row (since the clock began), rows, filler, tokens, tokens cut, longest "
                   "segment.");
}

}  // namespace

void register_memory(nb::module_& m) {
  nb::class_<Budget>(m, "Budget", "Bytes that all rings of a loader share.")
      .def(nb::init<std::size_t>(), "most_bytes"_a = Budget::no_limit)
      .def_prop_ro("most_bytes", &Budget::most_bytes)
      .def_prop_ro("used_bytes", &Budget::used_bytes, "Bytes of all buffers, also of those in the user's hands.");

  nb::class_<Pool>(m, "BytePool", "Buffers of one size, aligned, used again and again.")
      .def(nb::init<std::size_t, std::shared_ptr<Budget>, std::size_t>(), "bytes"_a, "budget"_a, "keep"_a = 4)
      .def_prop_ro("out", &Pool::out, "Buffers in somebody's hands.")
      .def("take", &take, nb::sig("def take(self) -> NDArray[numpy.uint8] | None"), "A buffer; None where the budget has no room.");

  bind_batch(m);
}
