// bind/fill.cpp: feeds, the ring and rows of rollouts for millstream.batches.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <tuple>

#include "bind/module.h"
#include "core/fill/filler.h"
#include "core/fill/gather.h"
#include "core/fill/ragged.h"
#include "core/fill/ring.h"
#include "core/fill/step_fill.h"

using namespace nb::literals;
using namespace millstream;

namespace {

using Table = nb::ndarray<const std::uint64_t, nb::shape<-1, 8>, nb::c_contig, nb::device::cpu>;

template <typename Value>
Value named(const std::string& name, std::initializer_list<std::pair<const char*, Value>> values, const char* what) {
  for (const auto& [key, value] : values)
    if (name == key) return value;
  throw std::invalid_argument(std::string("unknown ") + what + " '" + name + "'");
}

// Shards that keep alive the table they look at.
struct StoreFiles {
  Table table;
  std::shared_ptr<Shards> shards;

  // Unmapping files takes a while.
  ~StoreFiles() {
    nb::gil_scoped_release unlocked;
    shards.reset();
  }
};

// The files of a store as Python describes them (store/layout.py).
void make_store_files(StoreFiles* self, const std::string& directory, const std::string& file, const std::string& dtype,
                      std::uint64_t header_bytes, Table table, const std::string& index, const std::string& index_file,
                      std::uint64_t pointers_offset, std::uint64_t boundaries_offset, std::uint64_t sequences,
                      std::uint64_t boundaries, std::uint32_t block_tokens,
                      std::vector<std::pair<std::string, std::string>> paths) {
  StoreLayout layout;
  layout.directory = directory;
  layout.file = file;
  layout.dtype = named<Dtype>(dtype, {{"uint16", Dtype::uint16}, {"uint32", Dtype::uint32}, {"int32", Dtype::int32},
                                {"weighted", Dtype::weighted}}, "dtype");
  layout.header_bytes = header_bytes;
  layout.table = table.data();
  layout.shards = table.shape(0);
  layout.index = named<IndexKind>(
      index, {{"none", IndexKind::none}, {"ends", IndexKind::ends}, {"megatron", IndexKind::megatron}}, "index");
  layout.index_file = index_file;
  layout.pointers_offset = pointers_offset;
  layout.boundaries_offset = boundaries_offset;
  layout.sequences = sequences;
  layout.boundaries = boundaries;
  layout.block_tokens = block_tokens;
  layout.paths = std::move(paths);
  auto shards = std::make_shared<Shards>(std::move(layout));
  new (self) StoreFiles{std::move(table), std::move(shards)};
}

// Documents packed into bins. Counting them takes a pass over all lengths, once.
struct StorePacking {
  std::shared_ptr<const Packing> packing;
  PackingFacts facts;
};

void make_packing(StorePacking* self, const StoreFiles& store, std::uint64_t window_documents, std::uint32_t capacity,
                  std::optional<std::uint64_t> key, const std::string& fill, std::optional<std::uint64_t> documents,
                  std::uint64_t budget, std::uint32_t unit) {
  const auto kind = named<Fill>(
      fill, {{"best_fit", Fill::best_fit}, {"alone", Fill::alone}, {"by_length", Fill::by_length}}, "way to fill bins");
  nb::gil_scoped_release unlocked;
  auto packing = std::make_shared<const Packing>(store.shards, window_documents, capacity, key, Filling{kind, budget, unit},
                                                 documents);
  auto facts = count_bins(*packing);
  new (self) StorePacking{std::move(packing), std::move(facts)};
}

PackedWindow window_of(const StorePacking& self, std::uint64_t number) {
  PackedWindow window;
  Packer packer(self.packing->capacity());
  self.packing->plan(number, window, packer);
  return window;
}

std::vector<std::uint64_t> documents_of(const StorePacking& self, std::uint64_t sample) {
  if (!self.facts.windows.has(sample)) throw nb::index_error("the packing has no such sample");
  const auto window = window_of(self, sample / self.facts.windows.rows);
  std::vector<std::uint64_t> documents;
  for (const auto item : window.bins[sample % self.facts.windows.rows]) documents.push_back(window.documents[item].number);
  return documents;
}

// None for a document without tokens, which lies in no bin.
std::optional<std::uint64_t> sample_of(const StorePacking& self, std::uint64_t document) {
  const auto [number, place] = self.packing->place_of(document);
  const auto window = window_of(self, number);
  for (std::size_t bin = 0; bin < window.bins.count(); ++bin)
    if (std::ranges::find(window.bins[bin], place) != window.bins[bin].end()) return number * self.facts.windows.rows + bin;
  return std::nullopt;
}

void make_source(FeedSource* self, const StoreFiles* store, std::uint32_t id_limit, const std::string& documents,
                 const StorePacking* packing) {
  const auto kind = named<Documents>(documents, {{"attend", Documents::attend}, {"isolate", Documents::isolate},
                                                 {"row", Documents::row}, {"packed", Documents::packed}}, "documents");
  new (self) FeedSource{store->shards, id_limit, kind, packing == nullptr ? nullptr : packing->packing,
                        packing == nullptr ? 1 : packing->facts.most_documents};
}

FeedShape shape_of(std::size_t length, const std::string& labels, std::int64_t pad_id, std::size_t id_bytes,
                   const std::string& mean_of, std::size_t unit) {
  FeedShape shape;
  shape.mean = named<MeanOf>(mean_of, {{"targets", MeanOf::targets}, {"segments", MeanOf::segments}}, "mean");
  shape.length = length;
  shape.labels = named<Labels>(labels, {{"next", Labels::next}, {"same", Labels::same}}, "labels");
  shape.pad_id = pad_id;
  shape.id_bytes = id_bytes;
  shape.unit = unit;
  return shape;
}

void make_feed(Feed* self, std::vector<FeedSource> sources, const Plan& plan, std::size_t length, const std::string& labels,
               std::int64_t pad_id, std::size_t id_bytes, const std::string& mean_of, std::size_t unit) {
  new (self) Feed(std::move(sources), plan, shape_of(length, labels, pad_id, id_bytes, mean_of, unit));
}

// A ring that is left behind, threads, locks and all, when this process is not the one that started it.
struct RingHandle {
  std::unique_ptr<Ring> ring;
  unsigned generation = fork_generation();

  ~RingHandle() {
    if (generation != fork_generation()) (void)ring.release();
    nb::gil_scoped_release unlocked;
    ring.reset();
  }
  RingHandle(std::unique_ptr<Ring> owned) : ring(std::move(owned)) {}
  RingHandle(const RingHandle&) = delete;
  RingHandle& operator=(const RingHandle&) = delete;
};

// The ring was closed while a thread waited for a batch.
struct RingClosed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Waits for the next batch in slices, so that Ctrl-C is heard. None: every buffer is in the user's hands.
nb::object take(RingHandle& handle) {
  if (handle.generation != fork_generation()) throw RingClosed("the ring is in another process");
  auto& ring = *handle.ring;
  constexpr std::int64_t slice_ns = 50'000'000;
  std::optional<Batch> batch;
  auto outcome = Ring::Outcome::waiting;
  if (ring.ready()) outcome = ring.take(0, batch);
  while (outcome == Ring::Outcome::waiting) {
    {
      nb::gil_scoped_release unlocked;
      outcome = ring.take(slice_ns, batch);
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
  if (outcome == Ring::Outcome::closed) throw RingClosed("the ring was closed");
  if (outcome == Ring::Outcome::starved) return nb::none();
  return nb::cast(std::move(*batch));
}

bool extend(RingHandle& handle, std::shared_ptr<Feed> feed, const Clock& clock, std::uint64_t end_step) {
  if (handle.generation != fork_generation()) throw RingClosed("the ring is in another process");
  const auto before = handle.ring->extend(std::move(feed), clock, end_step);
  if (!before) return false;
  if (before->users.load() > 0) {  // rarely: then another thread of Python may run
    nb::gil_scoped_release unlocked;
    before->wait_until_unused();
  }
  return true;
}

// A direct fill that is left behind when this process is not the one that made it: its locks may be held by threads that are
// not here.
struct DirectHandle {
  std::unique_ptr<DirectFill> fill;
  unsigned generation = fork_generation();

  ~DirectHandle() {
    if (generation != fork_generation()) (void)fill.release();
  }
  DirectHandle(std::unique_ptr<DirectFill> owned) : fill(std::move(owned)) {}
  DirectHandle(const DirectHandle&) = delete;
  DirectHandle& operator=(const DirectHandle&) = delete;
};

// None: every buffer is in the user's hands.
nb::object take_direct(DirectHandle& handle, const Clock& clock, std::uint64_t step) {
  if (handle.generation != fork_generation()) throw RingClosed("the direct fill is in another process");
  std::optional<Batch> batch;
  auto outcome = DirectFill::Outcome::stopped;
  {
    nb::gil_scoped_release unlocked;
    outcome = handle.fill->take(clock, step, batch);
  }
  if (outcome == DirectFill::Outcome::stopped) throw RingClosed("the direct fill was stopped");
  return outcome == DirectFill::Outcome::starved ? nb::none() : nb::cast(std::move(*batch));
}

// Threads within a budget that the caller keeps for its next ring.
void make_ring(RingHandle* self, std::shared_ptr<Feed> feed, const Clock& clock, std::uint64_t first_step, std::size_t threads,
               std::size_t depth, std::shared_ptr<Budget> budget, bool pad_last, std::uint64_t steps_per_update,
               std::uint64_t end_step) {
  if (threads == 0 || depth == 0) throw std::invalid_argument("a ring needs a thread and a slot");
  const auto pool = std::make_shared<Pool>(feed->layout(clock.rank_rows).bytes(), std::move(budget), depth + 1);
  new (self) RingHandle(std::make_unique<Ring>(std::move(feed), clock, first_step, threads, depth, pool, pad_last,
                                              steps_per_update, end_step));
}

void register_errors(nb::module_& m) {
  const auto data_error = nb::exception<DataError>(m, "DataError", PyExc_RuntimeError);
  nb::exception<IdError>(m, "IdError", data_error.ptr());
  nb::exception<RingClosed>(m, "RingClosed", PyExc_RuntimeError);
  nb::exception<BudgetFull>(m, "BudgetFull", PyExc_RuntimeError);
}

void register_feed(nb::module_& m) {
  nb::class_<StoreFiles>(m, "StoreFiles", "The files of a store, mapped when first touched.")
      .def("__init__", &make_store_files, "directory"_a, "file"_a, "dtype"_a, "header_bytes"_a, "table"_a, "index"_a,
           "index_file"_a, "pointers_offset"_a, "boundaries_offset"_a, "sequences"_a, "boundaries"_a, "block_tokens"_a = 0,
           "paths"_a = std::vector<std::pair<std::string, std::string>>())
      .def_prop_ro("tokens", [](const StoreFiles& self) { return self.shards->tokens(); })
      .def_prop_ro("documents", [](const StoreFiles& self) { return self.shards->documents(); });

  nb::class_<StorePacking>(m, "Packing", "Documents of a store in bins of a capacity, window by window.")
      .def("__init__", &make_packing, "store"_a, "window_documents"_a, "capacity"_a, "key"_a = nb::none(), "fill"_a = "best_fit",
           "documents"_a = nb::none(), "budget"_a = 0, "unit"_a = 0, nb::keep_alive<1, 2>())
      .def_prop_ro("samples", [](const StorePacking& self) { return self.facts.windows.samples(); }, "Bins of all windows.")
      .def_prop_ro("window_documents", [](const StorePacking& self) { return self.facts.windows.rows; })
      .def_prop_ro("bins",
                   [](const StorePacking& self) { return self.facts.windows.bins; }, "Bins of each window.")
      .def_prop_ro("facts",
                   [](const StorePacking& self) {
                     const auto& facts = self.facts;
                     return std::tuple(facts.tokens, facts.cut, facts.empty, facts.most_documents);
                   },
                   "Tokens that lie in bins, tokens that fit none, empty documents, most documents of a bin.")
      .def_prop_ro("longest", [](const StorePacking& self) { return self.facts.longest; },
                   "The first bin that holds a longest document, where bins go by length.")
      .def("documents", &documents_of, "sample"_a, nb::call_guard<nb::gil_scoped_release>(), "Documents of a bin, in order.")
      .def("sample_of", &sample_of, "document"_a, nb::call_guard<nb::gil_scoped_release>(),
           "The bin that holds a document; None where it is empty.");

  nb::class_<FeedSource>(m, "FeedSource", "A store, and how its documents become rows.")
      .def("__init__", &make_source, "store"_a, "id_limit"_a, "documents"_a, "packing"_a.none() = nb::none(),
           nb::keep_alive<1, 2>(), nb::keep_alive<1, 5>());

  nb::class_<Feed>(m, "Feed", "A plan joined with the stores it speaks of.")
      .def("__init__", &make_feed, "sources"_a, "plan"_a, "length"_a, "labels"_a, "pad_id"_a, "id_bytes"_a,
           "mean_of"_a = "targets", "unit"_a = 0, nb::keep_alive<1, 2>())
      .def("batch_bytes", [](const Feed& feed, std::size_t samples) { return feed.layout(samples).bytes(); }, "samples"_a,
           "Bytes of the buffer of a batch of so many samples.")
      .def("scratch_bytes", &fill_scratch_bytes, "clock"_a, "threads"_a, "Bytes that so many threads need besides buffers.");
}

void register_ring(nb::module_& m) {
  nb::class_<RingHandle>(m, "Ring", "Threads that fill batches ahead of the trainer, handed over in order.")
      .def("__init__", &make_ring, "feed"_a, "clock"_a, "first_step"_a, "threads"_a, "depth"_a, "budget"_a,
           "pad_last"_a = false, "steps_per_update"_a = 0, "end_step"_a = ~std::uint64_t{0})
      .def("extend", &extend, "feed"_a, "clock"_a, "end_step"_a = ~std::uint64_t{0},
           "Fill the steps that are not begun by another feed, up to a later end; False, and nothing changes, if the clock is "
           "another one or the feed needs more room.")
      .def("take", &take, nb::sig("def take(self) -> Batch | None"), "The next batch; None when the user holds every buffer.")
      .def("close", [](RingHandle& self) { self.ring->close(); }, nb::call_guard<nb::gil_scoped_release>(),
           "Stop the threads, and let go of all buffers that are not in the user's hands.")
      .def_prop_ro("ready", [](const RingHandle& self) { return self.ring->filled(); }, "Batches that wait to be taken.")
      .def_prop_ro("counters",
                   [](const RingHandle& self) {
                     const auto c = self.ring->counters();
                     return std::tuple(c.batches, c.filled, c.fill_ns, c.room_wait_ns, c.take_wait_ns);
                   },
                   "Batches taken and filled; nanoseconds of filling, of waiting for room, of waiting for a batch.");

  nb::class_<DirectHandle>(m, "DirectFill", "Fills steps of any size in the thread that asks for them, one thread at a time.")
      .def("__init__",
           [](DirectHandle* self, std::shared_ptr<Feed> feed, std::shared_ptr<Budget> budget, bool pad_last,
              std::uint64_t steps_per_update) {
             new (self) DirectHandle(std::make_unique<DirectFill>(std::move(feed), std::move(budget),
                                                                  StepShape{pad_last, steps_per_update}));
           },
           "feed"_a, "budget"_a, "pad_last"_a = false, "steps_per_update"_a = 0, nb::keep_alive<1, 2>())
      .def("take", &take_direct, "clock"_a, "step"_a, nb::sig("def take(self, clock: Clock, step: int) -> Batch | None"),
           "The batch of a step; None when the user holds every buffer.")
      .def("stop", [](DirectHandle& self) { self.fill->stop(); }, "Send away who fills, for good.")
      .def_prop_ro("since_change",
                   [](const DirectHandle& self) {
                     const auto& since = self.fill->since_change();
                     return std::tuple(since.batches, since.fill_ns);
                   },
                   "Batches, and nanoseconds of filling them, since the clock was another one.")
      .def_prop_ro("counters",
                   [](const DirectHandle& self) {
                     const auto c = self.fill->counters();
                     return std::tuple(c.batches, c.batches, c.fill_ns, std::int64_t{0}, c.fill_ns);
                   },
                   "As those of a ring: who fills waits for the batch.");
}

// An array of any type and shape, borrowed for as long as its holder lives.
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

void register_ragged(nb::module_& m) {
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

}  // namespace

void register_fill(nb::module_& m) {
  register_errors(m);
  register_feed(m);
  register_ring(m);
  register_ragged(m);
}
