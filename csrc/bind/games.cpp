// bind/games.cpp: frames of self-play games for millstream.games. All of it works without the interpreter's lock.
#include "bind/games.h"

#include <nanobind/stl/optional.h>

#include <mutex>
#include <optional>

#include "core/inflate.h"
#include "core/plies.h"
#include "core/reservoir.h"
#include "core/tensors.h"

using namespace nb::literals;
using namespace millstream;

namespace {

using MadeColumns = std::tuple<MadeBytes, Made<std::uint32_t>, Made<std::uint16_t>, Made<float>>;
// Columns, origins, slots, and the origins of what is there now.
using MadeEmitted = std::tuple<MadeColumns, MadeBytes, Made<std::uint32_t>>;

template <typename To, typename From>
Made<To> owned(std::unique_ptr<From[]> values, std::size_t size) {
  From* data = values.release();
  nb::capsule owner(data, [](void* kept) noexcept { delete[] static_cast<From*>(kept); });
  return {reinterpret_cast<To*>(data), {size}, owner};
}

MadeColumns handed_over(FrameStore&& store) {
  store.fit();
  const auto entries = store.entries();
  return {owned<std::uint8_t>(std::move(store.fields), store.size() * sizeof(GameFrame)), made(std::move(store.ends)),
          owned<std::uint16_t>(std::move(store.moves), entries), owned<float>(std::move(store.probabilities), entries)};
}

MadeEmitted handed_over(Reservoir::Emitted&& out) {
  return {handed_over(std::move(out.frames)), made_bytes(std::move(out.origins)), made(std::move(out.slots))};
}

template <typename Real>
std::span<Real> reals(const Array<std::uint8_t>& bytes) {
  if (reinterpret_cast<std::uintptr_t>(bytes.data()) % alignof(Real) != 0 || bytes.size() % sizeof(Real) != 0)
    throw std::invalid_argument("games: an output is cut or crooked");
  return {reinterpret_cast<Real*>(bytes.data()), bytes.size() / sizeof(Real)};
}

template <typename Real>
void fill(const Columns& arrays, const Array<std::uint8_t>& planes, const Array<std::uint8_t>& policy,
          const Array<std::uint8_t>& values) {
  nb::gil_scoped_release released;
  fill_tensors<Real>(columns_of(arrays), reals<Real>(planes), reals<Real>(policy), reals<Real>(values));
}

std::span<const std::uint8_t> view(const nb::bytes& bytes) {
  return {reinterpret_cast<const std::uint8_t*>(bytes.c_str()), bytes.size()};
}

// So many bytes that `fills` writes without the interpreter's lock, or None if it says that it could not.
template <typename Fills>
std::optional<nb::bytes> bytes_of(std::size_t size, Fills&& fills) {
  auto out = nb::steal<nb::bytes>(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(size)));
  if (!out.is_valid()) throw nb::python_error();
  const std::span into(reinterpret_cast<std::uint8_t*>(PyBytes_AsString(out.ptr())), size);
  const bool filled = [&] {
    nb::gil_scoped_release released;  // nobody else has seen `out`
    return fills(into);
  }();
  if (!filled) return std::nullopt;
  return out;
}

// One call at a time, whoever calls.
struct SharedReservoir {
  std::mutex mutex;
  Reservoir reservoir;

  SharedReservoir(std::size_t capacity, std::uint64_t seed) : reservoir(capacity, seed) {}

  template <typename Work>
  auto ask(Work&& work) {
    nb::gil_scoped_release released;  // before waiting for a thread that may wait for the interpreter
    const std::lock_guard lock(mutex);
    return work(reservoir);
  }
};

void bind_reservoir(nb::module_& m) {
  nb::class_<SharedReservoir>(m, "Reservoir", "Frames in random order; see millstream.games.Reservoir.")
      .def(nb::init<std::size_t, std::uint64_t>(), "capacity"_a, "seed"_a)
      .def("__len__", [](SharedReservoir& self) { return self.ask([](const Reservoir& slots) { return slots.size(); }); })
      .def_prop_ro("counter", [](SharedReservoir& self) {
        return self.ask([](const Reservoir& slots) { return slots.counter(); });
      })
      .def_prop_ro("nbytes", [](SharedReservoir& self) {
        return self.ask([](const Reservoir& slots) { return slots.nbytes(); });
      })
      .def("exchange", [](SharedReservoir& self, const Columns& arrays, const Bytes& origins) {
        return handed_over(self.ask([&](Reservoir& slots) {
          return slots.exchange(columns_of(arrays), records<Origin>(origins));
        }));
      }, "columns"_a, "origins"_a, "(columns, origins, slots, origins of what is there now)")
      .def("drain", [](SharedReservoir& self, std::size_t most) {
        return handed_over(self.ask([&](Reservoir& slots) { return slots.drain(most); }));
      }, "most"_a, "The same for frames that are left.")
      .def("origins", [](SharedReservoir& self) {
        return made_bytes(self.ask([](const Reservoir& slots) { return slots.origins(); }));
      }, "Where the frame in each slot is from.")
      .def("restore", [](SharedReservoir& self, const Columns& arrays, const Bytes& origins, std::uint64_t counter) {
        self.ask([&](Reservoir& slots) { slots.restore(columns_of(arrays), records<Origin>(origins), counter); });
      }, "columns"_a, "origins"_a, "counter"_a, "Fill the slots in order.");
}

}  // namespace

void register_games(nb::module_& m) {
  nb::exception<FrameError>(m, "FrameError", PyExc_ValueError);
  m.def("read_frames", [](const Bytes& raw, const std::optional<Array<const std::uint32_t>>& plies, std::size_t behind) {
    auto store = [&] {
      nb::gil_scoped_release released;  // the arguments keep their buffers alive
      return plies ? read_frames(view(raw), view(*plies), behind) : read_frames(view(raw), {}, behind);
    }();
    return handed_over(std::move(store));
  }, "raw"_a, "plies"_a.none() = nb::none(), "behind"_a = 0,
     "The frames of a chunk, or some of them: (bytes of the fields, ends, moves, probabilities).");
  m.def("plies_at_rate", [](std::uint64_t rounds, std::uint64_t use, std::size_t length, double rate) {
    return made(plies_at_rate(rounds, use, length, rate));  // microseconds: not worth giving up the lock
  }, "rounds"_a, "use"_a, "length"_a, "rate"_a, "The positions that a use of a game gives.");
  m.def("gunzip", [](const nb::bytes& packed, std::size_t size) {
    return bytes_of(size, [from = view(packed)](auto out) { return gunzip(from, out); });
  }, "packed"_a, "size"_a, "The bytes of a gzip file of one member that has so many, or None for any other.");
  m.def("gunzip_front", [](const nb::bytes& packed, std::size_t size, std::uint32_t sum) {
    return bytes_of(size, [=, from = view(packed)](auto out) { return gunzip_front(from, sum, out); });
  }, "packed"_a, "size"_a, "sum"_a, "The first bytes of a gzip file that was found sound with this checksum, else None.");
  m.def("crc32", [](const nb::bytes& packed) {
    const auto bytes = view(packed);
    nb::gil_scoped_release released;
    return crc32(bytes);
  }, "packed"_a, "The checksum that `gunzip_front` asks for.");
  m.def("fill_tensors", &fill<float>, "columns"_a, "planes"_a, "policy"_a, "values"_a, "Write into the bytes of arrays of float32.");
  m.def("fill_half_tensors", &fill<Half>, "columns"_a, "planes"_a, "policy"_a, "values"_a, "Write into the bytes of arrays of float16.");
  m.def("fill_boards", [](const Bytes& fields, const Array<std::uint64_t>& boards, const Array<float>& rule50) {
    nb::gil_scoped_release released;
    fill_boards(records<GameFrame>(fields), view(boards), view(rule50));
  }, "fields"_a, "boards"_a, "rule50"_a, "Write the planes as boards of 64 bits, and what plane 109 stands for.");
  bind_reservoir(m);
}
