// bind/order.cpp: permutations, orders, plans and clocks for millstream.order.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <tuple>

#include "bind/module.h"
#include "core/order/balance.h"
#include "core/order/bins.h"
#include "core/order/clock.h"
#include "core/order/order.h"
#include "core/order/plan.h"

using namespace nb::literals;
using namespace millstream;

namespace {

using Words = Array<const std::uint64_t>;
using OutWords = Array<std::uint64_t>;

Shuffle shuffle_named(const std::string& name) {
  if (name == "none") return Shuffle::none;
  if (name == "global") return Shuffle::global;
  if (name == "local") return Shuffle::local;
  throw std::invalid_argument("shuffle is 'none', 'global' or 'local', not '" + name + "'");
}

// Bounds are checked here, once for the whole array; the core trusts them.
void check(std::span<const std::uint64_t> values, std::size_t out, std::uint64_t samples) {
  if (values.size() != out) throw std::invalid_argument("`out` has another length");
  if (std::ranges::any_of(values, [&](auto value) { return value >= samples; }))
    throw std::out_of_range("outside 0.." + std::to_string(samples - 1));
}

}  // namespace

void register_order(nb::module_& m) {
  m.attr("order_version") = order_version;
  m.def("derive", &derive, "key"_a, "word"_a, "The key of something named by `word` under `key`.");

  m.def("pack",
        [](const Array<const std::uint32_t>& lengths, std::uint32_t capacity, std::size_t window, const Array<std::uint32_t>& bins) {
          if (lengths.size() != bins.size()) throw std::invalid_argument("`bins` has another length");
          if (window == 0) throw std::invalid_argument("a window holds at least one item");
          nb::gil_scoped_release unlocked;
          return pack_windows(view(lengths), capacity, window, view(bins));
        },
        "lengths"_a, "capacity"_a, "window"_a, "bins"_a,
        "Write the bin of each item into `bins` (those of length 0 get 2^32 - 1), and give the number of bins.");

  nb::class_<OrderSpec>(m, "OrderSpec", "A shuffle of some number of samples under a key.")
      .def("__init__",
           [](OrderSpec* self, const std::string& shuffle, std::uint64_t samples, std::uint64_t key, std::uint64_t block_samples,
              std::uint64_t group_blocks, std::optional<std::vector<std::uint64_t>> window_bins, std::uint64_t window_rows,
              bool first_in_order, std::uint64_t unit, std::uint64_t window_block, std::optional<std::uint64_t> foremost,
              bool always_in_order, std::vector<std::uint64_t> gaps) {
             OrderSpec spec{shuffle_named(shuffle), samples, key, block_samples, group_blocks, nullptr, unit};
             std::ranges::sort(gaps);
             if (window_bins)
               spec.windows = std::make_shared<Windows>(
                   Windows{std::move(*window_bins), window_rows, first_in_order, window_block, foremost, always_in_order,
                           std::move(gaps)});
             EpochOrder(spec, 0);  // refuses what cannot be
             new (self) OrderSpec(spec);
           },
           "shuffle"_a, "samples"_a, "key"_a = 0, "block_samples"_a = 1, "group_blocks"_a = 1,
           "window_bins"_a = nb::none(), "window_rows"_a = 1, "first_in_order"_a = false, "unit"_a = 1,
           "window_block"_a = 0, "foremost"_a = nb::none(), "always_in_order"_a = false,
           "gaps"_a = std::vector<std::uint64_t>())
      .def_ro("samples", &OrderSpec::samples)
      .def("at",
           [](const OrderSpec& spec, std::uint64_t epoch, const Words& positions, const OutWords& out) {
             nb::gil_scoped_release unlocked;
             check(view(positions), out.size(), spec.samples);
             EpochOrder(spec, epoch).at(view(positions), view(out));
           },
           "epoch"_a, "positions"_a, "out"_a, "Write the sample at each position of an epoch into `out`.")
      .def("inverse",
           [](const OrderSpec& spec, std::uint64_t epoch, const Words& samples, const OutWords& out) {
             nb::gil_scoped_release unlocked;
             if (samples.size() != out.size()) throw std::invalid_argument("`out` has another length");
             EpochOrder order(spec, epoch);
             if (!std::ranges::all_of(view(samples), [&](auto sample) { return order.has(sample); }))
               throw std::out_of_range("the order has no such sample");
             order.inverse(view(samples), view(out));
           },
           "epoch"_a, "samples"_a, "out"_a, "Write the position of each sample in an epoch into `out`.");

  nb::class_<Course>(m, "Course", "How a phase goes through one source.")
      .def("__init__",
           [](Course* self, const OrderSpec& order, const OrderSpec& begun, std::uint64_t split, std::uint64_t epoch,
              std::uint64_t offset) { new (self) Course{order, begun, split, epoch, offset}; },
           "order"_a, "begun"_a, "split"_a = 1, "epoch"_a = 0, "offset"_a = 0)
      .def_prop_ro("left", &Course::left, "Samples left of the epoch in which the phase began.");

  nb::class_<Plan>(m, "Plan", "Position in a phase -> source and sample.")
      .def("__init__",
           [](Plan* self, std::vector<Course> courses, std::optional<std::vector<std::uint64_t>> quotas, std::uint64_t key,
              std::uint64_t start) {
             std::optional<Mixture> mixture;
             if (quotas) mixture.emplace(std::move(*quotas), key);
             new (self) Plan(std::move(courses), std::move(mixture), start);
           },
           "courses"_a, "quotas"_a = nb::none(), "key"_a = 0, "start"_a = 0)
      .def("rows",
           [](const Plan& plan, std::uint64_t first, const OutWords& sources, const OutWords& samples) {
             if (sources.size() != samples.size()) throw std::invalid_argument("`sources` and `samples` differ in length");
             nb::gil_scoped_release unlocked;
             PlanScratch scratch;
             plan.rows(first, sources.size(), scratch);
             std::ranges::transform(scratch.rows, view(sources).begin(), [](const auto& row) { return row.source; });
             std::ranges::transform(scratch.rows, view(samples).begin(), [](const auto& row) { return row.sample; });
           },
           "first"_a, "sources"_a, "samples"_a, "Write source and sample of the positions from `first` on.")
      .def("used", &Plan::used, "source"_a, "position"_a, "How often a source is used before a position.")
      .def("position_of", &Plan::position_of, "source"_a, "number"_a, "Where a source is used for the n-th time.");

  nb::class_<Clock>(m, "Clock", "Step -> rows, within one phase of a run.")
      .def("__init__",
           [](Clock* self, std::uint64_t left, std::uint64_t size, std::uint64_t global_rows, std::uint64_t rank_start,
              std::uint64_t rank_rows, bool drop_last, std::uint64_t start) {
             const Clock clock{left, size, global_rows, rank_start, rank_rows, drop_last, start};
             clock.check();
             new (self) Clock(clock);
           },
           "left"_a, "size"_a, "global_rows"_a, "rank_start"_a, "rank_rows"_a, "drop_last"_a = false, "start"_a = 0)
      .def("steps_in", &Clock::steps_in, "samples"_a, "Steps that an epoch of so many samples has.")
      .def("number_of", &Clock::number_of, "position"_a, "The step that uses a position.")
      .def("resized",
           [](const Clock& clock, std::uint64_t number, std::uint64_t global_rows, std::uint64_t rank_start,
              std::uint64_t rank_rows) {
             const auto [changed, begun] = clock.resized(number, global_rows, rank_start, rank_rows);
             changed.check();
             return std::tuple(changed, begun.epoch, begun.offset, begun.position);
           },
           "number"_a, "global_rows"_a, "rank_start"_a, "rank_rows"_a,
           "The clock that begins at a step with steps of another size, and the step's epoch, offset and position.")
      .def("step",
           [](const Clock& clock, std::uint64_t number) {
             const auto step = clock.step(number);
             return std::tuple(step.epoch, step.offset, step.position, step.rows, step.first, step.own);
           },
           "number"_a, "Epoch, offset, position, rows of all ranks, first own position, own rows.");

  m.def("partition",
        [](const Array<const std::int64_t>& costs, std::size_t parts, bool equal_sizes, bool refine,
           const Array<std::int64_t>& part_of) {
          nb::gil_scoped_release unlocked;
          partition(view(costs), parts, equal_sizes, refine, view(part_of));
        },
        "costs"_a, "parts"_a, "equal_sizes"_a, "refine"_a, "part_of"_a,
        "Write the part of each item into `part_of`, so that parts cost about the same; part 0 costs the most.");
}
