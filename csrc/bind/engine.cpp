// bind/engine.cpp: stores, feeds, batches and the ring for millstream.batches.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "bind/module.h"
#include "core/feed.h"
#include "core/gather.h"
#include "core/ring.h"
#include "core/step_fill.h"

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

// The ring was closed while somebody waited for a batch.
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
      .def("scratch_bytes", &Ring::scratch_bytes, "clock"_a, "threads"_a, "Bytes that so many threads need besides buffers.");
}

void register_batch(nb::module_& m) {
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

void register_ring(nb::module_& m) {
  nb::class_<Budget>(m, "Budget", "Bytes that all rings of a loader share.")
      .def(nb::init<std::size_t>(), "most_bytes"_a = Budget::no_limit)
      .def_prop_ro("most_bytes", &Budget::most_bytes)
      .def_prop_ro("used_bytes", &Budget::used_bytes, "Bytes of all buffers, also of those in the user's hands.");

  nb::class_<RingHandle>(m, "Ring", "Threads that fill batches ahead of the trainer, handed over in order.")
      .def("__init__", &make_ring, "feed"_a, "clock"_a, "first_step"_a, "threads"_a, "depth"_a, "budget"_a,
           "pad_last"_a = false, "steps_per_update"_a = 0, "end_step"_a = ~std::uint64_t{0}, nb::keep_alive<1, 2>())
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

}  // namespace

void register_engine(nb::module_& m) {
  register_errors(m);
  register_feed(m);
  register_batch(m);
  register_ring(m);
}
